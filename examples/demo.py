"""What `make demo` runs: a few tasks and a failing job's error, on the embedded scheduler."""

import statistics
import tempfile
import textwrap
import time
from typing import Any

from slurm import Cluster, Job, JobContext, JobError, task


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
        print("\n$ where() and four calls of count_primes, each a job of its own\n")
        place = where()
        jobs = [count_primes(n, n + 20_000) for n in range(0, 80_000, 20_000)]
        print(f"    where()                     -> {place.result()}")
        for number, job in enumerate(jobs):
            call = f"count_primes({number * 20_000}, {(number + 1) * 20_000})"
            print(f"    {call:<27} -> {job.result():<6} {job.state.code}  job {job.id}")
        values = mean_of([job.result() for job in jobs])
        print(f"    mean_of([...])              -> {values.result()}")
        show_failure(read_config("/data/missing.toml"))
        show_failure(crash())
    print(f"\n{time.perf_counter() - began:.1f} s in all. Next: README.md, examples/, docs/\n")


if __name__ == "__main__":
    main()
