"""Threads of the client: how they are started, and what is refused when the interpreter ends."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from slurm import locks
from slurm.errors import ProgramEnding

#: A program that ends waits so long for callbacks, all of them together.
AT_EXIT = 10.0

_until: float | None = None
_freed = False


def begin(work: Callable[..., object], name: str, *args: Any) -> threading.Thread:
    """Start a thread that does not keep the program alive.

    In the last part of the interpreter's end a thread that is started never runs, and Python 3.11
    waits for it for ever; later versions refuse earlier, as soon as the main thread is through.
    """
    refuse_at_the_end("a thread was needed")
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # too many of them, or the end
        if threading.main_thread().is_alive():
            raise
        raise refusal("a thread was needed") from error
    return thread


def are_gone() -> bool:
    """Whether all other threads are gone for good: the interpreter is in the last part of its end.

    Locks that they held when they were stopped are freed, for nobody else would.
    """
    global _freed
    if not sys.is_finalizing():
        return False
    if not _freed:
        _freed = True
        locks.free_those_of_others()
    return True


def refuse_at_the_end(what: str) -> None:
    """Raise where all other threads are gone: nobody would ever wake who waits."""
    if are_gone():
        raise refusal(what)


def refusal(what: str) -> ProgramEnding:
    """The error for what comes too late."""
    return ProgramEnding(
        f"{what} when the interpreter was ending already",
        hint="wait for jobs before the program ends, not in __del__ or an exit handler; jobs that "
        "were submitted go on, and cluster.attach(run) finds them from another program",
    )


def end_of_patience() -> float:
    """Until when a program that ends waits for callbacks, by `time.monotonic()`.

    Who asks first begins the time: exit handlers run one after the other, and share it.
    """
    global _until
    if _until is None:
        _until = time.monotonic() + AT_EXIT
    return _until


def _forget_after_fork() -> None:
    global _until
    _until = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
