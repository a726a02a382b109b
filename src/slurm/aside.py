"""What Ctrl-C must not cut short runs on another thread: signals reach the main one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from slurm import locks
from slurm.threads import begin

T = TypeVar("T")


def whole(work: Callable[[], T]) -> T:
    """Do this to its end, and give what it gives; who waits for it may be interrupted.

    A signal handler that raises, as Python's own for Ctrl-C does, would leave half of it done.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    locks.refuse_held("another thread's work was awaited")
    found: list[T] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
            raised.append(error)

    try:
        thread = begin(do, "slurm-aside")
    except RuntimeError:  # no more threads, or the interpreter ends
        return work()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]
