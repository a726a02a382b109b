"""100,000 small calls: a packed map runs them in warm workers of a few jobs."""

import os
import sys

from slurm import Cluster, WorkerDied, task


@task(time="10min", cpus_per_task=2)
def collatz(n: int) -> int:
    """How many steps it takes from n to 1."""
    steps = 0
    while n > 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@task(time="10min", cpus_per_task=2)
def fragile(n: int) -> int:
    if n == 13:
        os.abort()  # as a broken library would: the whole process is gone
    return 100 // (n - 7)


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        numbers = range(1, 100_001)
        print(str(cluster.explain(collatz).map(numbers, pack="auto")).splitlines()[0])

        array = collatz.map(numbers, pack=50_000)
        steps = array.results(timeout=120)
        longest = max(steps)
        print(f"{len(steps)} results; the longest way, {longest} steps, begins at", end=" ")
        print(steps.index(longest) + 1)
        print(f"{array.progress}; {len(array.members)} jobs")

        # Each item has an outcome of its own, whatever the others do.
        few = fragile.map(range(20), pack=20)
        few.wait(timeout=120)
        print(few.progress)
        print("item 7:", repr(few[7].exception()))
        error = few[13].exception()
        print("item 13 is reported as the one that kills workers:", isinstance(error, WorkerDied))
