"""`cluster.json`: what runs in a cluster's directory, for whoever stops it later."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm.errors import StackError
from slurm.stack.native_plan import NativeCluster
from slurm.stack.processes import Process

_FILE = "cluster.json"
_VERSION = 2
_MOMENT = 2.0


@dataclass
class State:
    """A cluster and its daemons' processes, by daemon name (`slurmd-n1`)."""

    cluster: NativeCluster
    enforcement: str
    processes: dict[str, Process] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def save(self) -> None:
        """Write the file anew, in one step."""
        import msgspec

        document = {
            "version": _VERSION,
            "engine": "native",
            # A duration is a number with a form of its own; all else is a path.
            **msgspec.to_builtins(
                self, enc_hook=lambda v: int(v) if isinstance(v, int) else str(v)
            ),
        }
        path = self.cluster.directory / _FILE
        fresh = path.with_name(_FILE + ".new")
        fresh.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(fresh, path)

    def alive(self) -> list[str]:
        """The names of the daemons that run now."""
        return [name for name, process in self.processes.items() if process.alive()]


def load(directory: Path) -> State | None:
    """What the directory's file says, or None where no cluster was ever made."""
    path = directory / _FILE
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StackError(f"{path} cannot be read: {error}") from error
    if document.get("version") != _VERSION:
        raise StackError(
            f"{path} was written by another version of this package",
            hint="take the cluster down with that version, or use another directory",
        )
    import msgspec

    return msgspec.convert(document, State, dec_hook=lambda _, text: Path(text))


def made(directory: Path) -> State:
    """The cluster of plain processes that was made in a directory."""
    state = load(directory)
    if state is None:
        raise StackError(
            f"no cluster was ever made in dir={str(directory)!r}",
            hint=f"bring one up: slurm cluster up --engine native --dir {directory}",
        )
    return state


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Only one process at a time changes this directory's cluster; the next is told who it is."""
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            holder = os.pread(descriptor, 4096, 0).decode(errors="replace")
            raise StackError(
                f"{holder or 'another process'} is at work on the cluster in {directory}",
                hint="wait for it to end, then look with: slurm cluster status",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _me().encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _me() -> str:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"{command!r} (process {os.getpid()}, since {time.strftime('%H:%M:%S')})"


def _lock(descriptor: int) -> None:
    """Take the lock; a process that was killed may leave it to a child for a moment."""
    end = time.monotonic() + _MOMENT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
