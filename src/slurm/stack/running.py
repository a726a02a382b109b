"""A cluster that is up: how to reach it, how it is, and how to stop and start its parts."""

from __future__ import annotations

import signal as signals
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from slurm.errors import StackError, nearest
from slurm.stack import native, probes
from slurm.stack.daemons import daemons
from slurm.stack.ports import is_free
from slurm.stack.processes import Process, stop, wait_until
from slurm.stack.state import State, load, locked


@dataclass(frozen=True)
class DaemonStatus:
    """One daemon: `pid` is None when it does not run; munged and mariadbd have no port."""

    name: str
    pid: int | None
    port: int | None
    log: str


@dataclass(frozen=True)
class ClusterStatus:
    """How a cluster is at this moment.

    `state` is `up` (all daemons run and all nodes are in service), `degraded` (some) or `down`.
    `nodes` are the node states as slurmctld tells them, `unknown` where it does not answer.
    `enforcement` says what holds jobs to their memory, or why nothing does.
    """

    name: str
    dir: str
    engine: str
    state: str
    enforcement: str
    daemons: tuple[DaemonStatus, ...]
    nodes: dict[str, str]
    env: dict[str, str]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


def look(state: State) -> ClusterStatus:
    """Ask the operating system and slurmctld how the cluster is."""
    cluster = state.cluster
    alive = state.alive()
    told = probes.node_states(cluster) if "slurmctld" in alive else {}
    nodes = {node: told.get(node, "unknown") for node in cluster.node_names}
    fleet = daemons(cluster)
    all_well = len(alive) == len(fleet) and all(map(probes.in_service, nodes.values()))
    return ClusterStatus(
        name=cluster.name,
        dir=str(cluster.directory),
        engine="native",
        state="up" if all_well else "degraded" if alive else "down",
        enforcement=state.enforcement,
        daemons=tuple(
            DaemonStatus(
                d.name,
                state.processes[d.name].pid if d.name in alive else None,
                d.port,
                str(cluster.log(d.name)),
            )
            for d in fleet
        ),
        nodes=nodes,
        env=cluster.client_env,
        notes=tuple(state.notes),
    )


class RunningCluster:
    """A cluster that was brought up."""

    def __init__(self, state: State) -> None:
        self._cluster = state.cluster
        self.dir: Path = state.cluster.directory
        self.name: str = state.cluster.name
        self.nodes: list[str] = state.cluster.node_names
        self.env: dict[str, str] = state.cluster.client_env
        self.enforces_memory: bool = state.cluster.enforce_memory

    def __repr__(self) -> str:
        return f"RunningCluster({str(self.dir)!r}, nodes={len(self.nodes)})"

    def pid(self, daemon: str, node: str | None = None) -> int | None:
        """The pid of a daemon (`slurmd` needs its node), or None when it does not run."""
        process = self._process(daemon, node)
        return process.pid if process and process.alive() else None

    def log(self, daemon: str, node: str | None = None) -> Path:
        """The file with everything a daemon said."""
        return self._cluster.log(self._name(daemon, node))

    def stop_daemon(
        self, daemon: str, node: str | None = None, *, signal: int = signals.SIGTERM
    ) -> None:
        """Stop one daemon with a signal and wait for its end; nothing where it does not run."""
        process = self._process(daemon, node)
        if process is not None and not stop(process, signal, patience=native.STOP_PATIENCE):
            raise StackError(f"{daemon} (pid {process.pid}) does not end")

    def start_daemon(self, daemon: str, node: str | None = None) -> None:
        """Start one daemon again and wait until it listens; nothing where it runs."""
        name = self._name(daemon, node)
        wanted = next(d for d in daemons(self._cluster) if d.name == name)
        with locked(self.dir):
            state = self._state()
            before = state.processes.get(name)
            if before is not None and before.alive():
                return
            if wanted.port is not None:
                # What a killed daemon had started may hold its port for a moment longer.
                wait_until(partial(is_free, wanted.port), 10)
            native.launch_daemon(state, wanted)
            native.await_ready(state, wanted)

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until every node is in service again, at most so many seconds."""
        native.await_nodes(self._state(), timeout)

    def status(self) -> ClusterStatus:
        """How the cluster is now."""
        return look(self._state())

    def down(self) -> None:
        """Take the cluster down; nothing where it is down."""
        with locked(self.dir):
            native.stop_all(self._state())

    def _state(self) -> State:
        state = load(self.dir)
        if state is None:
            raise StackError(f"the cluster in {self.dir} is gone: its directory was removed")
        return state

    def _process(self, daemon: str, node: str | None) -> Process | None:
        return self._state().processes.get(self._name(daemon, node))

    def _name(self, daemon: str, node: str | None) -> str:
        name = daemon if node is None else f"{daemon}-{node}"
        known = [d.name for d in daemons(self._cluster)]
        if name not in known:
            close = nearest(name, known)
            raise StackError(
                f"this cluster has no daemon {name!r}",
                hint=f"did you mean {close!r}?" if close else "one of: " + ", ".join(known),
            )
        return name
