"""Reads the kernel's own count of out-of-memory kills in this job's control group."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

_V1 = "/sys/fs/cgroup/memory"
_V2 = "/sys/fs/cgroup"


class OomCounter:
    """Counts the out-of-memory kills in this job since the counter was made.

    Slurm can let a job whose child was killed for memory end with exit code 0; the kernel knows.
    Only control groups that Slurm made are looked at: others hold foreign processes too.
    """

    def __init__(self) -> None:
        self._files = counter_files(read_text("/proc/self/cgroup"))
        self._before = self._count()

    def kills(self) -> int:
        """How many processes of this job were killed for memory since the start."""
        return max(0, self._count() - self._before)

    def _count(self) -> int:
        return max([oom_kills(read_text(path)) for path in self._files] or [0])


def counter_files(membership: str) -> List[str]:
    """The counter files of this process's control group and those above it that belong to Slurm."""
    names = {_V1: "memory.oom_control", _V2: "memory.events"}
    return [f"{folder}/{names[top]}" for top, folder in _groups(membership)]


def group_folders(membership: str) -> List[str]:
    """The folders of the same groups, that of the job last."""
    return [folder for _, folder in _groups(membership)]


def _groups(membership: str) -> List[Tuple[str, str]]:
    found = []  # type: List[Tuple[str, str]]
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "slurm" not in path:
            continue
        if "memory" in controllers.split(","):
            top = _V1
        elif controllers == "":
            top = _V2
        else:
            continue
        while "slurm" in path and ("job_" in path or "step_" in path):
            found.append((top, f"{top}{path}"))
            path = os.path.dirname(path)
    return found


def oom_kills(text: str) -> int:
    """The `oom_kill` line of `memory.oom_control` (v1) or `memory.events` (v2)."""
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdigit():
            return int(count)
    return 0


def read_text(path: str) -> str:
    """A small file of the kernel's; "" where there is none."""
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return ""
