"""What a file looks like, and whether files that a call reads where they lie were changed."""

import json
import os
from typing import Dict, Tuple

from slurm.rundir.names import CACHE_FILES

Stamp = Tuple[int, int, int, int]


def stamp_of(path: str) -> Stamp:
    """Times of change, size and inode; whoever writes to a file or replaces it changes one."""
    info = os.stat(path)
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino


def encode_stamps(stamps: Dict[str, Stamp]) -> bytes:
    """Stamps as a file of a run."""
    return json.dumps(stamps).encode("utf-8", "surrogateescape")


def have_changed(run: str) -> bool:
    """Whether a file that a run's keys speak of is another one than when they were made."""
    if not os.path.exists(os.path.join(run, CACHE_FILES)):
        return False
    try:
        with open(os.path.join(run, CACHE_FILES), "rb") as f:
            stamps = json.loads(f.read().decode("utf-8", "surrogateescape"))
        return any(list(stamp_of(path)) != stamp for path, stamp in stamps.items())
    except (OSError, ValueError):
        return True
