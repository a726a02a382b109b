"""Whether a stored folder still has all its files: those who clean a scratch disk take some away.

Called by the agent where the files are, so it keeps to Python 3.6.
"""

import contextlib
import os
import time
from typing import Dict, Iterable, Tuple

from slurm import rundir

#: Lists the files of a stored folder with their sizes; written last.
LIST = ".slurm-sdk-files"
#: A folder is looked at again after so many seconds, or so many times what the last look took.
PAUSE, SHARE = 10.0, 100
#: A file that nothing has changed for so long is touched: cleaners go by age.
DAY = 86400.0

_next: Dict[str, float] = {}


def write_list(folder: str, sizes: Iterable[Tuple[str, int]]) -> None:
    """Write down what a folder has to hold."""
    lines = "".join(f"{size} {path}\n" for path, size in sizes)
    path = os.path.join(folder, LIST)
    rundir.write_atomically(path, lines.encode("utf-8", "surrogateescape"), sync=False)


def is_whole(path: str) -> bool:
    """Whether something stored is there; of a folder with a list each file with its size."""
    listed = os.path.join(path, LIST)
    if not os.path.exists(listed):
        return os.path.exists(path) and not _needs_list(path)
    begun = time.monotonic()
    if begun < _next.get(path, 0.0):
        return True
    try:
        with open(listed, encoding="utf-8", errors="surrogateescape") as f:
            lines = f.read().split("\n")[:-1]
        for line in lines:
            size, _, name = line.partition(" ")
            info = os.stat(os.path.join(path, name))
            if info.st_size != int(size):
                return False
            if time.time() - info.st_mtime > DAY:
                with contextlib.suppress(OSError):
                    os.utime(os.path.join(path, name))
    except (OSError, ValueError):
        return False
    took = time.monotonic() - begun
    _next[path] = time.monotonic() + max(PAUSE, SHARE * took)
    return True


def forget(path: str) -> None:
    """Look at a folder again the next time."""
    _next.pop(path, None)


def _needs_list(path: str) -> bool:
    """Copies of the SDK always have one; what an older client has stored elsewhere has none."""
    return os.path.basename(os.path.dirname(path)) == rundir.BASE_SDK
