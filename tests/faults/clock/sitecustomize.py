"""On the path of a process under libfaketime, which breaks time.sleep: EINVAL, or the wrong clock.

Python sleeps until a moment of the monotonic clock, and libfaketime takes it for one of its own.
"""

import os
import select
import time

if "libfaketime" in os.environ.get("LD_PRELOAD", ""):

    def sleep(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            select.select([], [], [], left)

    time.sleep = sleep  # type: ignore[assignment]
