"""A real Slurm cluster in one call: `up`, `down`, `status`."""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm.errors import StackError, nearest
from slurm.stack import native
from slurm.stack.daemons import daemons
from slurm.stack.processes import stop
from slurm.stack.state import State, load, locked
from slurm.stack.topology import check_request, checked_directory

__all__ = ["RunningCluster", "attach", "down", "status", "up"]


class RunningCluster:
    """A cluster that was brought up: how to reach it, and how to stop and start its parts."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.dir = state.topology.directory
        self.name = state.topology.name
        self.nodes = state.topology.node_names
        self.env = native.client_env(state.topology)
        self.enforces_memory = state.topology.enforce_memory

    def __repr__(self) -> str:
        return f"RunningCluster({str(self.dir)!r}, nodes={len(self.nodes)})"

    def pid(self, daemon: str, node: str | None = None) -> int | None:
        """The pid of a daemon (`slurmd` needs its node), or None when it does not run."""
        process = self._state.processes.get(self._name(daemon, node))
        return process.pid if process and process.alive() else None

    def log(self, daemon: str, node: str | None = None) -> Path:
        """The file with everything a daemon said."""
        return self._state.topology.log(self._name(daemon, node))

    def stop_daemon(
        self, daemon: str, node: str | None = None, *, signal: int = signals.SIGTERM
    ) -> None:
        """Stop one daemon with a signal and wait for its end; nothing where it does not run."""
        process = self._state.processes.get(self._name(daemon, node))
        if process is not None and not stop(process, signal, patience=60):
            raise StackError(f"{daemon} (pid {process.pid}) does not end")

    def start_daemon(self, daemon: str, node: str | None = None) -> None:
        """Start one daemon again and wait until it answers; nothing where it runs."""
        name = self._name(daemon, node)
        if self.pid(daemon, node) is not None:
            return
        wanted = next(d for d in daemons(self._state.topology) if d.name == name)
        native.start_one(self._state, wanted)

    def down(self) -> None:
        """Take the cluster down."""
        down(self.dir)

    def _name(self, daemon: str, node: str | None) -> str:
        name = daemon if node is None else f"{daemon}-{node}"
        known = [d.name for d in daemons(self._state.topology)]
        if name not in known:
            close = nearest(name, known)
            raise StackError(
                f"this cluster has no daemon {name!r}",
                hint=f"did you mean {close!r}?" if close else "one of: " + ", ".join(known),
            )
        return name


def up(
    dir: str | Path,
    *,
    nodes: int = 1,
    cpus: int = 8,
    memory_mb: int = 4000,
    extra_conf: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    accounting: bool = True,
    name: str | None = None,
) -> RunningCluster:
    """Bring a real Slurm cluster up in `dir` and return when a job has run on every node.

    `extra_conf` are lines for slurm.conf (a line replaces our default of the same key), `files`
    are further files beside it by name (`oci.conf`, `cgroup.conf`, a prolog). On any failure all
    that was started is stopped again, and the error carries the words of the daemon that failed.
    """
    directory = checked_directory(dir)
    files = dict(files or {})
    check_request(name, nodes, cpus, memory_mb, files)
    directory.mkdir(parents=True, exist_ok=True, mode=0o755)
    with locked(directory):
        before = load(directory)
        if before is not None and before.alive():
            raise StackError(
                f"a cluster is already up in {directory}",
                evidence=[f"running: {', '.join(before.alive())}"],
                hint=f"use it, or: slurm cluster down --dir {directory}",
            )
        state = native.plan(
            directory,
            name=name,
            nodes=nodes,
            cpus=cpus,
            memory_mb=memory_mb,
            extra_conf=extra_conf,
            files=files,
            accounting=accounting,
        )
        try:
            native.start(state)
        except BaseException:
            native.stop_all(state)
            raise
    return RunningCluster(state)


def attach(dir: str | Path) -> RunningCluster:
    """The cluster that somebody else brought up in `dir`."""
    state = load(checked_directory(dir))
    if state is None or not state.alive():
        raise StackError(
            f"no cluster is up in {dir}", hint=f"slurm cluster up --engine native --dir {dir}"
        )
    return RunningCluster(state)


def down(dir: str | Path) -> None:
    """Take the cluster in `dir` down; running jobs end, state and accounting stay. Idempotent."""
    directory = checked_directory(dir)
    if not directory.is_dir():
        return
    with locked(directory):
        state = load(directory)
        if state is not None:
            native.stop_all(state)


def status(dir: str | Path) -> dict[str, object]:
    """What runs in `dir`."""
    state = load(checked_directory(dir))
    return {} if state is None else {"alive": state.alive()}
