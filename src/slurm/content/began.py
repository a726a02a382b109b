"""When this process began: a file that changed since may be another than the one that runs."""

from __future__ import annotations

import functools
import os
import time

_IMPORTED = time.time()
#: A process imports nothing of the user's in its first moments, shorter than the clock's steps.
_START_S = 0.01


@functools.lru_cache(maxsize=1)
def _began() -> float:
    """The time at which this process started, as Linux tells; else that of our own import."""
    try:
        with open("/proc/self/stat", "rb") as f:
            ticks = int(f.read().rpartition(b")")[2].split()[19])
        since_boot = ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot + _START_S
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED


def is_newer_than_process(path: str) -> bool:
    """Whether a file was changed after this process began; one that is gone was."""
    try:
        return os.stat(path).st_ctime > _began()
    except OSError:
        return True
