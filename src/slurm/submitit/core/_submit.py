"""The worker as a program: `python -m slurm.submitit.core._submit FOLDER`."""

from slurm.submitit.core.submission import submitit_main

if __name__ == "__main__":
    submitit_main()
