"""A function becomes a job: decorate it, call it inside `with Cluster()`, ask for the result."""

import sys

from slurm import Cluster, Job, task


@task(time="10min", mem="1GiB")
def add(a: int, b: int) -> int:
    print(f"adding {a} and {b}")
    return a + b


if __name__ == "__main__":
    # `local` is the default: this machine's Slurm, or the embedded scheduler where there is none.
    # `python first_tasks.py embedded` asks for the embedded one.
    with Cluster(*sys.argv[1:]):
        jobs: list[Job[int]] = [add(n, 10 * n) for n in range(1, 4)]

    for job in jobs:
        print(f"{job.name}: {job.result()}, state {job.state} ({job.state.code})")
    print("it printed:", jobs[0].stdout().strip())
    print("called here, as a plain function:", add.local(2, 3))
