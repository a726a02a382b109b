"""A job that only waits for other jobs lends its CPUs: how its processes say that they wait.

The embedded scheduler is told over a connection that stays open for as long as the process waits.
So a process that dies has stopped waiting, and a scheduler that is started again hears it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

from slurm import locks
from slurm.api.embedded.environment import RUN_VARIABLE
from slurm.api.embedded.place import find_place
from slurm.threads import begin

#: A wait shorter than this is not worth a word; and how often a lost scheduler is looked for.
_AFTER_S, _AGAIN_S = 0.1, 0.5


class _Waits:
    """The waits of this process."""

    def __init__(self) -> None:
        self._changed = locks.condition("yield")
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._connection: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = begin(self._tell, "slurm-yield")
            self._count += 1
            self._changed.notify_all()

    def leave(self) -> None:
        with self._changed:
            self._count -= 1
            if self._count == 0 and self._connection is not None:
                with contextlib.suppress(OSError):  # it may be broken
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _tell(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._count > 0)
            time.sleep(_AFTER_S)
            with contextlib.suppress(OSError):
                self._hold()
            time.sleep(_AGAIN_S)

    def _hold(self) -> None:
        """Tell the scheduler, and stay connected until the wait, or the scheduler, is over."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(find_place(os.environ).socket)
            message = {"v": 1, "verb": "waiting", "run": os.environ[RUN_VARIABLE].partition("@")[0]}
            with self._changed:
                if self._count == 0:
                    return
                self._connection = connection
            try:
                connection.sendall(json.dumps(message).encode() + b"\n")
                while connection.recv(4096):
                    pass
            finally:
                with self._changed:
                    self._connection = None

    def forget(self) -> None:
        """In a forked child: nothing waits here, and the parent's connection is not ours."""
        if self._connection is not None:
            self._connection.close()
        self._begin()


_waits = _Waits()


def enter() -> None:
    """A thread of this process waits for other jobs, if it belongs to a job itself."""
    if inside():
        _waits.enter()


def leave() -> None:
    """It waits no more."""
    if inside():
        _waits.leave()


def inside() -> bool:
    """Whether this process belongs to a job of the embedded scheduler."""
    return RUN_VARIABLE in os.environ


@contextlib.contextmanager
def yielding() -> Iterator[None]:
    """While this process waits for other jobs, its job's CPUs are free for them."""
    enter()
    try:
        yield
    finally:
        leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waits.forget)
