"""Tasks that end, or do not end, in every way: for questions about the states of jobs."""

from __future__ import annotations

import os
import signal
import time

from slurm import task, workflow


@task(mem="50MiB")
def good(x: int) -> int:
    return x


@task(mem="50MiB")
def bad(x: int) -> int:
    if x % 2:
        raise ValueError(x)
    return x


@task(mem="50MiB")
def leaves(code: int) -> None:
    os._exit(code)


@task(mem="50MiB")
def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task(mem="50MiB")
def waits(path: str) -> int:
    while not os.path.exists(path):
        time.sleep(0.1)
    return 1


@workflow(mem="50MiB")
def flow(x: int) -> int:
    return good(x).result()
