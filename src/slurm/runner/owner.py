"""Ends Python in a container when the process of the job that started the container is gone.

podman's containers are no children of the job: a scheduler that kills the job does not reach them.
"""

import os
import threading
import time
from typing import Optional

#: How often the owner is looked for.
INTERVAL = 1.0


def watch() -> None:
    """Watch the owner that the job's script has named, where this process can see it."""
    owner = os.environ.pop("SLURM_SDK_OWNER", "")
    born = _born(owner) if owner.isdigit() else None
    if born is not None:
        threading.Thread(target=_end_with, args=(owner, born), daemon=True).start()


def _end_with(owner: str, born: str) -> None:
    while _born(owner) == born:
        time.sleep(INTERVAL)
    os._exit(137)


def _born(pid: str) -> Optional[str]:
    """When a process began, by the kernel's clock: a number that is used again has another."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
