"""The laptop may be closed: a job is found again from another process, by run name or job id."""

import subprocess
import sys

from slurm import Cluster, task

SUBMIT = """
import sys, time
from slurm import Cluster, task

@task(time="10min")
def slow_square(n: int) -> int:
    time.sleep(1)
    return n * n

with Cluster(*sys.argv[1:]):
    job = slow_square(12)
print(job.run, job.id)
"""


@task
def total(values: list[int]) -> int:
    return sum(values)


if __name__ == "__main__":
    # A process submits and is gone before the job ends.
    command = [sys.executable, "-c", SUBMIT, *sys.argv[1:]]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    run, job_id = answer.stdout.split()
    print("submitted by a process that has ended:", run.rpartition("-2")[0])

    cluster = Cluster(*sys.argv[1:])
    job = cluster.attach(run)  # a path works, too
    print("by run name:", job.result(timeout=120))
    print("by job id:  ", cluster.get_job(job_id).result(timeout=120))

    # A job among the arguments becomes a dependency; its value is read on the cluster.
    with cluster:
        print("in another call:", total([job, 1, 2]).result())  # type: ignore[list-item]
