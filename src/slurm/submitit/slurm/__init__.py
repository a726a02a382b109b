"""Jobs on Slurm."""
