"""Options in Slurm's own words, with human units; wrong ones are refused before submission."""

import os
import sys
from datetime import timedelta

from slurm import Cluster, OptionError, task


@task(
    time="1h30m",  # also "1-00:00:00", timedelta(hours=2), or a number of minutes
    mem="500MiB",  # also "4G", or a number of MiB
    cpus_per_task=2,
    job_name="with-options",
    env={"GREETING": "it's $HOME, literally"},
    setup=["export FROM_SETUP=yes"],
    secrets=("DEMO_TOKEN",),  # only the name is written anywhere; the value travels beside
)
def look() -> dict[str, str | None]:
    names = ("GREETING", "FROM_SETUP", "DEMO_TOKEN", "SLURM_CPUS_PER_TASK", "SLURM_JOB_NAME")
    return {name: os.environ.get(name) for name in names}


os.environ["DEMO_TOKEN"] = "not written to any file"
shorter = look.with_options(time=timedelta(minutes=5), mem=None)  # None removes an option

if __name__ == "__main__":
    with Cluster(*sys.argv[1:], cpus_per_task=1, comment="defaults of this cluster") as cluster:
        job = shorter()
        # The explicit form: options here, arguments there, so that they cannot collide.
        other = cluster.submit(look, time="15min", sbatch={"mincpus": 1})()
        # A dry run.
        plan = cluster.explain(look)()

    print("\n".join(f"{name}={value}" for name, value in job.result().items()))
    print("the other job:", other.result()["SLURM_JOB_NAME"], other.state)
    print("\n".join(line for line in plan.script.splitlines() if line.startswith("#SBATCH")))

    for wrong in ({"cpu_per_task": 4}, {"time": "2 hours 5"}, {"mem": "8 gigs"}, {"ntask": 2}):
        try:
            look.with_options(**wrong)
        except OptionError as error:
            print(error)
