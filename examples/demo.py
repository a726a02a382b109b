"""What `make demo` runs: tasks, an array, a workflow and failures, on the embedded scheduler."""

import itertools
import statistics
import tempfile
import textwrap
import time
from typing import Any

from slurm import Cluster, Job, JobContext, JobError, task, workflow


@task(time="5min", mem="200MiB", cpus_per_task=1)
def count_primes(start: int, stop: int) -> int:
    """How many primes lie in a range."""
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(start, 2), stop))


@task
def where(ctx: JobContext) -> str:
    return f"job {ctx.job_id} on {ctx.hostnames[0]} with {ctx.cpus} CPU"


@task
def mean_of(values: list[int]) -> float:
    return statistics.mean(values)


@workflow(time="10min")
def largest_gap(stop: int) -> Job[int]:
    """Submits jobs from its own job, and returns one of them: its result is that job's."""
    halves = primes.map([(0, stop // 2), (stop // 2, stop)])
    return widest(halves)  # type: ignore[arg-type]


@task
def primes(start: int, stop: int) -> list[int]:
    return [n for n in range(max(start, 2), stop) if all(n % d for d in range(2, int(n**0.5) + 1))]


@task
def widest(halves: list[list[int]]) -> int:
    found = [n for half in halves for n in half]
    return max(b - a for a, b in itertools.pairwise(found))


@task
def read_config(path: str) -> str:
    with open(path) as file:
        return file.read()


@task(time="1min")
def crash() -> None:
    import os
    import signal

    print("allocating the big array", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def show_failure(job: Job[Any]) -> None:
    """Print what `job.result()` raises: the exception, and the job's traceback behind it."""
    error = job.exception()
    own = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
    print(f"\n$ {job.name} failed; job.result() raises\n")
    print(textwrap.indent(own, "    "))
    if error is not None and error.__cause__ is not None:
        print("\n" + textwrap.indent(str(error.__cause__), "    "))


def main() -> None:
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="slurm-demo-") as base,
        Cluster(backend_type="embedded", job_base_dir=base),
    ):
        print("\n$ a job; an array of four; a job that waits for it; a workflow of three more\n")
        place, gap = where(), largest_gap(5_000)
        array = count_primes.map([(n, n + 20_000) for n in range(0, 80_000, 20_000)])
        mean = mean_of(array)  # type: ignore[arg-type]  # the values are read on the cluster
        print(f"    where()                     -> {place.result()}")
        for number, job in enumerate(array):
            call = f"count_primes({number * 20_000}, {(number + 1) * 20_000})"
            print(f"    {call:<27} -> {job.result():<6} {job.state.code}  job {job.id}")
        print(f"    mean_of(array)              -> {mean.result()}")
        print(f"    largest_gap(5000)           -> {gap.result()}")
        show_failure(read_config("/data/missing.toml"))
        show_failure(crash())
    print(f"\n{time.perf_counter() - began:.1f} s in all. Next: README.md, examples/, docs/\n")


if __name__ == "__main__":
    main()
