"""What is measured: one small file per question."""
