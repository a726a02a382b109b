"""`python -m slurm.cli` is the `slurm` command."""

from slurm.cli import main

if __name__ == "__main__":
    main()
