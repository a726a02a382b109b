"""A cluster's own part of the host's cgroup v1 hierarchies: make it, look into it, remove it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from slurm.stack.processes import Process, identify, wait_until

MOUNT = Path("/sys/fs/cgroup")
_NEEDED = ("memory", "freezer", "cpuacct")
# Slurm opens these too, where the host has them.
_OPTIONAL = ("cpuset", "devices", "cpu")


def why_not_enforced(mount: Path = MOUNT) -> str | None:
    """Why jobs cannot be held to their memory here, or None when they can: it is tried."""
    for controller in _NEEDED:
        if not (mount / controller / "cgroup.procs").exists():
            return f"no cgroup v1 {controller} controller is mounted at {mount / controller}"
    probe = mount / "memory" / f"slurm-sdk-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError as error:
        return f"cannot make {probe}: {error.strerror}"
    try:
        (probe / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        return f"cannot set a memory limit in {probe}: {error.strerror}"
    finally:
        probe.rmdir()
    return None


def make(name: str, links: Path) -> None:
    """Make the cluster's directory in each hierarchy and a link to it in `links`.

    Slurm is told that cgroups are mounted at `links`, and so stays inside its own part.
    """
    links.mkdir(exist_ok=True)
    for controller in (*_NEEDED, *_OPTIONAL):
        mounted = MOUNT / controller
        if not (mounted / "cgroup.procs").exists():
            continue
        own = mounted / name
        own.mkdir(exist_ok=True)
        if controller == "cpuset":
            # A new cpuset is empty and takes no process until it has CPUs and memory nodes.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (own / setting).write_text((mounted / setting).read_text())
        link = links / controller
        link.unlink(missing_ok=True)
        link.symlink_to(own)


def members(name: str) -> list[Process]:
    """Every process in the cluster's cgroups: its jobs, and nothing else."""
    pids: set[int] = set()
    for own in _own(name):
        for procs in own.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(int(pid) for pid in procs.read_text().split())
    return [process for pid in sorted(pids) if (process := identify(pid))]


def remove(name: str, patience: float = 15) -> list[Path]:
    """End what still runs in the cluster's cgroups and remove them; what could not be removed."""

    def empty() -> bool:
        for process in members(name):
            process.send(signal.SIGKILL)
        for own in _own(name):
            _thaw(own)
            _remove_tree(own)
        return not _own(name)

    wait_until(empty, patience)
    return _own(name)


def _own(name: str) -> list[Path]:
    return [own for c in (*_NEEDED, *_OPTIONAL) if (own := MOUNT / c / name).is_dir()]


def _thaw(top: Path) -> None:
    # A frozen process cannot die.
    for state in top.rglob("freezer.state"):
        with contextlib.suppress(OSError):
            state.write_text("THAWED")


def _remove_tree(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
