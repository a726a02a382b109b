"""Python functions as Slurm jobs."""
