"""Profiles in Slurmfile.toml: where to run and with which defaults, outside of the program."""

import os
import sys
from pathlib import Path

from slurm import Cluster, ConfigError, task


@task
def profile() -> tuple[str | None, str | None]:
    return os.environ.get("PROFILE"), os.environ.get("SLURM_JOB_NAME")


if __name__ == "__main__":
    # from_env looks for Slurmfile.toml here and above, or takes $SLURMFILE.
    os.chdir(Path(__file__).parent)
    name = "laptop" if sys.argv[1:] == ["embedded"] else "hpc"
    with Cluster.from_env(name) as cluster:
        print("defaults:", sorted(cluster.defaults))
        print("the job saw:", profile().result())

    # A file of any name, and single settings changed.
    with Cluster.from_file("Slurmfile.toml", "laptop", backend_type="debug"):
        print("debug:", profile().result()[0])

    try:
        Cluster.from_env("labtop")
    except ConfigError as error:
        print(error.hint)
