"""Tasks that run in containers: nothing here needs what an image does not have."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from slurm import ArrayJob, WorkflowContext, task, workflow


@task
def read(path: str) -> str:
    """What a file of the image holds."""
    with open(path) as f:
        return f.read()


@task
def look(*names: str) -> dict[str, object]:
    """Where the function runs, and what it sees of some variables, backwards."""
    seen: dict[str, object] = {name: os.environ[name][::-1] for name in names}
    return {
        **seen,
        "cwd": os.getcwd(),
        "python": sys.executable,
        "user": os.getuid(),
        "path": os.environ["PATH"],
    }


@task
def square(x: int) -> tuple[int, str]:
    """A value, and the Python that made it."""
    return x * x, sys.executable


@task
def rank() -> tuple[int, int]:
    """Who this process is, of how many."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


@task
def sleep_with_a_child(mark: str) -> None:
    """Sleep long, in a child of its own."""
    subprocess.run([sys.executable, "-c", f"import time; {mark!r}; time.sleep(600)"], check=True)


@task
def eat(megabytes: int) -> int:
    """Use so much memory."""
    return len(b"x" * (megabytes << 20))


@workflow
def flow(n: int, ctx: WorkflowContext) -> tuple[list[tuple[int, str]], ArrayJob[tuple[int, str]]]:
    """Submit from inside of a container: some children are waited for, the others are not."""
    waited = [square(i) for i in range(n)]
    return [job.result() for job in waited], square.map([7, 8])


@task
def write(path: str) -> float:
    """Write a file where the job sees it."""
    with open(path, "w") as f:
        f.write("written\n")
    return time.time()


@task
def version() -> list[int]:
    """The Python that runs this."""
    return list(sys.version_info[:2])


@task
def call(function: Callable[[], int]) -> int:
    """Call what was given."""
    return function()
