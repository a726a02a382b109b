"""The executor that chooses among the others."""
