"""Start a daemon that outlives us, know it again by its start time, and stop it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import StackError

# The shell hands the daemon to init and tells its pid: we never keep a zombie, and a crash of
# ours takes no daemon along. setsid does not fork here, so the pid is the daemon's own.
_LAUNCH = 'setsid "$@" </dev/null >&2 & echo $!'


@dataclass(frozen=True)
class Process:
    """A process as it can be known again later: a pid alone may be given to another one."""

    pid: int
    started: int
    boot: str

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.boot == boot_id() and _start_time(self.pid) == self.started

    def send(self, number: int) -> None:
        """Signal this very process; nothing happens where it is gone."""
        if not self.alive():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def gone_within(self, seconds: float) -> bool:
        """Wait for its end, at most so long."""
        return wait_until(lambda: not self.alive(), seconds)


def identify(pid: int) -> Process | None:
    """The running process of this pid, or None."""
    started = _start_time(pid)
    return None if started is None else Process(pid, started, boot_id())


def launch(
    argv: Sequence[str], log: Path, env: Mapping[str, str], user: tuple[int, int] | None
) -> Process:
    """Start a daemon in a session of its own; what it says goes to `log`."""
    ids: dict[str, object] = {}
    if user is not None:
        ids = {"user": user[0], "group": user[1], "extra_groups": []}
    # Opened by us: the daemon's own user need not be able to write in the log directory.
    with log.open("ab") as words:
        done = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, "sh", *argv],
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            timeout=30,
            check=True,
            start_new_session=True,
            **ids,  # type: ignore[call-overload]
        )
    process = identify(int(done.stdout))
    if process is None:
        raise StackError(f"{argv[0]} ended at once", evidence=last_lines(log))
    return process


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C is heard at the end of the block, when what was started in it is written down."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears it
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if heard:
            signal.raise_signal(signal.SIGINT)


def stop(process: Process, first: int = signal.SIGTERM, patience: float = 20) -> bool:
    """Stop a process: `first`, then SIGKILL when it does not listen. False: it outlived both."""
    process.send(first)
    if process.gone_within(patience):
        return True
    process.send(signal.SIGKILL)
    return process.gone_within(10)


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, at most so long; whether it came true."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return True


def last_lines(log: Path, count: int = 12) -> list[str]:
    """The end of a log file, for an error's evidence."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return [f"{log}: {error.strerror}"]
    return text.splitlines()[-count:]


def job_processes(slurm_conf: str, cluster: str) -> list[Process]:
    """Every process of this cluster's jobs that its environment or its parents give away.

    A slurmstepd has its slurmd's SLURM_CONF. What a job left running alone has the variables that
    only slurmd sets, with this cluster's name; a client of the cluster does not have them.
    """
    mine = f"SLURM_CONF={slurm_conf}".encode()
    named = f"SLURM_CLUSTER_NAME={cluster}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            name, fields = _stat(place / "stat")
            given = (place / "environ").read_bytes()
        except OSError:
            continue
        pid, variables = int(place.name), given.split(b"\0")
        parents[pid] = int(fields[1])
        in_job = named in variables and b"\0SLURMD_NODENAME=" in given
        if mine in variables and (name.startswith("slurmstepd") or in_job):
            found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return [process for pid in sorted(found) if (process := identify(pid))]


def boot_id() -> str:
    """Tells one boot of this machine from another: start times count from boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_time(pid: int) -> int | None:
    try:
        _, fields = _stat(Path(f"/proc/{pid}/stat"))
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _stat(path: Path) -> tuple[str, list[str]]:
    """The name and the fields behind it; the name may hold blanks and parentheses itself."""
    head, _, tail = path.read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], tail.split()
