"""What this host says about itself and its processes, on Linux and macOS."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LINUX = sys.platform.startswith("linux")
_PR_SET_CHILD_SUBREAPER = 36
# Loaded before the first fork, so that no job pays for it.
_LIBC = ctypes.CDLL(None) if _LINUX else None


@dataclass(frozen=True)
class Machine:
    """What this host can give to jobs."""

    cpus: int
    memory_mb: int
    gpus: int


def machine(environ: Mapping[str, str]) -> Machine:
    """This host's CPUs, memory and GPUs; `SLURM_SDK_EMBEDDED_{CPUS,MEMORY_MB,GPUS}` override."""

    def count(name: str) -> int | None:
        text = environ.get(f"SLURM_SDK_EMBEDDED_{name}", "")
        return int(text) if text.isdigit() else None

    asked = count("CPUS"), count("MEMORY_MB"), count("GPUS")
    return Machine(
        cpus=max(1, _cpus() if asked[0] is None else asked[0]),
        memory_mb=max(1, _memory_mb() if asked[1] is None else asked[1]),
        gpus=_gpus() if asked[2] is None else asked[2],
    )


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if _LINUX else os.cpu_count() or 1


def _memory_mb() -> int:
    if _LINUX:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) // 1024
    return int(_output("sysctl", "-n", "hw.memsize") or 2**30) // 2**20


def _gpus() -> int:
    devices = glob.glob("/dev/nvidia[0-9]*")
    if devices:
        return len(devices)
    # Only where the driver shows no device files (WSL): nvidia-smi can take a second.
    if os.path.exists("/dev/dxg"):
        listed = _output("nvidia-smi", "-L").splitlines()
        return sum(line.startswith("GPU ") for line in listed)
    return 0


def note(text: str) -> None:
    """Write a line to the log, which is this process's stderr; a full disk stops nobody."""
    with contextlib.suppress(OSError):
        os.write(2, os.fsencode(text.rstrip("\n") + "\n"))


def boot_id() -> str:
    """A text that is another one after each boot."""
    if _LINUX:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    return _output("sysctl", "-n", "kern.boottime").replace(" ", "")


def start_time(pid: int) -> str | None:
    """When a live process started, as an opaque text; None if there is none (a zombie is none).

    With the boot id this tells a process from a later one that got the same number.
    """
    if not _LINUX:
        return "".join(_output("ps", "-o", "lstart=", "-p", str(pid)).split()) or None
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] == "Z" else fields[19]


def process_table() -> dict[int, int]:
    """The parent of each process that lives now."""
    if not _LINUX:
        rows = (line.split() for line in _output("ps", "-axo", "pid=,ppid=").splitlines())
        return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields is not None and fields[0] != "Z":
                table[int(name)] = int(fields[1])
    return table


def descendants(table: Mapping[int, int], root: int) -> list[int]:
    """All processes below `root` in a process table, `root` itself not among them."""
    children: dict[int, list[int]] = {}
    for pid, parent in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = children.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def processes_marked(marker: str) -> list[int]:
    """Processes of this user that started with `marker` ("NAME=value") in their environment.

    Linux only; it finds what a killed supervisor left behind, which has no ancestor any more.
    """
    if not _LINUX:
        return []
    wanted = b"\0" + os.fsencode(marker) + b"\0"
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in b"\0" + file.read() + b"\0":
                        found.append(int(name))
            except OSError:
                continue  # gone, or another user's
    return found


def send_signal(pids: Iterable[int], signum: int) -> None:
    """Send a signal to each process that still lives."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def send_group_signal(group: int, signum: int) -> None:
    """Send a signal to a process group, if it still has members."""
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        return


def become_subreaper() -> bool:
    """Let orphans below this process become its children; False where the system cannot."""
    return _LIBC is not None and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def exit_descriptor(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where there are none."""
    if not _LINUX:
        return None
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat behind the name, which may hold spaces and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _output(*command: str) -> str:
    import subprocess  # Linux does without, but for WSL's GPUs

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
