"""Who waits for a job with `concurrent.futures.wait` or `as_completed`, which ask nobody else."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slurm import locks
from slurm.api.embedded import yielding
from slurm.errors import SlurmError, UsageError
from slurm.threads import begin, refuse_at_the_end

if TYPE_CHECKING:
    from slurm.job import Job

#: What could not be submitted or watched is tried again after so many seconds.
AGAIN = 1.0


def checked_timeout(timeout: object) -> float | None:
    """How many seconds to wait; None, for ever, also where no clock goes that far."""
    if timeout is None:
        return None
    if hasattr(timeout, "__float__") or hasattr(timeout, "__index__"):
        seconds = float(timeout)  # type: ignore[arg-type]
        if not math.isnan(seconds):
            return seconds if seconds <= threading.TIMEOUT_MAX else None
    raise UsageError(
        f"timeout={timeout!r} is no number of seconds",
        hint="write a number, such as timeout=60; timeout=None waits without a limit",
    )


class Waiters:
    """The waiters of a job, as the standard library installs them with the job's lock held."""

    __slots__ = ("_installed", "_job")

    def __init__(self, job: Job[Any], installed: list[Any]) -> None:
        self._job = job
        self._installed = installed

    def __iter__(self) -> Iterator[Any]:
        return iter(self._installed)

    def append(self, waiter: Any) -> None:
        """Somebody waits for this job: it has to be submitted, and watched in this process."""
        refuse_at_the_end(f"{self._job.name} was waited for")
        self._installed.append(waiter)
        yielding.enter()
        if not self._job.attended:
            wanted.put(self._job)

    def remove(self, waiter: Any) -> None:
        """Nobody does any more."""
        self._installed.remove(waiter)
        yielding.leave()


class Wanted:
    """Submits and watches jobs, on a thread that lives while there are some."""

    def __init__(self) -> None:
        self._changed = locks.lock("wanted")
        self.forget()

    def forget(self) -> None:
        """In a forked child: nobody waits yet."""
        self._jobs: deque[Job[Any]] = deque()
        self._thread: threading.Thread | None = None

    def put(self, job: Job[Any]) -> None:
        """See to a job; the caller holds its lock, so that it cannot do so itself."""
        with self._changed:
            self._jobs.append(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = begin(self._work, "slurm-wanted")

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            # Calls that are refused end with the refusal.
            with contextlib.suppress(SlurmError, OSError):
                job.watch()
            if not job.settled and not job.attended and job.awaited:
                time.sleep(AGAIN)
                self.put(job)


wanted = Wanted()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=wanted.forget)
