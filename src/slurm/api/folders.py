"""What lies in folders, and what it takes on the disk; on Python 3.6."""

import contextlib
import os
from typing import List


def names(folder: str) -> List[str]:
    """The names in a folder, sorted; none where it is not there."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def size(path: str) -> int:
    """The bytes that a file, or a folder with all in it, takes on the disk."""
    total = 0
    files = [path] if not os.path.isdir(path) else []
    for folder, _, found in os.walk(path):
        files += [os.path.join(folder, name) for name in found]
    for file in files:
        with contextlib.suppress(OSError):  # it went meanwhile
            total += os.lstat(file).st_blocks * 512
    return total
