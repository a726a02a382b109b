"""What runs inside the job: it loads the payload, calls the function and records the outcome."""
