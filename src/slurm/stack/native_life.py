"""The life of a cluster of plain processes that has a cluster.toml: up, apply, destroy."""

from __future__ import annotations

import difflib
import shutil
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import layout, native, probes, record
from slurm.stack.daemons import daemons
from slurm.stack.native_plan import NativeCluster, checked_directory
from slurm.stack.processes import stop
from slurm.stack.read import FILE_NAME, parse_topology
from slurm.stack.running import RunningCluster
from slurm.stack.state import State, load, locked, made
from slurm.stack.topology import Topology


def up(directory: Path, topology: Topology, text: str) -> RunningCluster:
    """Bring the cluster up that `text`, a cluster.toml, describes; one that is up is left alone."""
    path = checked_directory(directory)
    taken = record.directory_of(topology.name)
    if taken not in (None, path) and taken.exists():
        raise StackError(
            f"there is a cluster {topology.name!r} in {taken} already",
            hint='give this one another name: name = "..." in its cluster.toml',
        )
    layout.claim(path, (FILE_NAME,))
    with locked(path):
        before = load(path)
        if before is not None and before.cluster.name != topology.name:
            raise StackError(
                f"name = {topology.name!r}, but the cluster in {path} is {before.cluster.name!r}",
                hint="make another cluster in another directory",
            )
        if before is not None and before.alive():
            if not compare(path, text).nothing:
                raise StackError(
                    f"the cluster {topology.name} is up, and its file asks for something else",
                    hint=f"slurm cluster apply {topology.name} --topology FILE",
                )
            state = before
        else:
            state = native.bring_up(path, topology, {})
            (path / FILE_NAME).write_text(text, encoding="utf-8")
    register(state.cluster)
    return RunningCluster(state)


def register(cluster: NativeCluster) -> None:
    """Let `Cluster.from_stack` and the commands find a cluster by its name."""
    arguments: dict[str, object] = {
        "backend_type": "local",
        "slurm_conf": str(cluster.slurm_conf),
    }
    record.register(cluster.name, cluster.directory, "native", arguments)


@dataclass(frozen=True)
class Change:
    """What a new cluster.toml would do to a cluster of plain processes."""

    after: State
    diff: tuple[str, ...]
    new: tuple[str, ...]
    anew: tuple[str, ...]
    removed: tuple[str, ...]
    accounts: bool

    @property
    def nothing(self) -> bool:
        """Whether all is as the file says already."""
        return not (self.diff or self.accounts)


def compare(directory: Path, text: str) -> Change:
    """What `apply` would do, without doing it."""
    before = made(directory)
    topology = parse_topology(text, str(directory / FILE_NAME))
    for key, had in (("name", before.cluster.name), ("engine", "native")):
        if getattr(topology, key) != had:
            raise StackError(
                f"{key} = {getattr(topology, key)!r}, but the cluster in {directory} has {had!r}, "
                "which cannot be changed",
                hint="make another cluster in another directory",
            )
    if topology.accounting != before.cluster.accounting:
        raise StackError(
            "database.kind cannot be changed while the cluster is up",
            hint=f"slurm cluster down --dir {directory}, then up with the new file",
        )
    after = native.plan(directory, topology, before.cluster.files, before.cluster)
    old, new = before.cluster.conf_files(), after.cluster.conf_files()
    nodes = {node.name: node for node in before.cluster.plan.nodes}
    kept = [node for node in after.cluster.plan.nodes if node.name in nodes]
    return Change(
        after,
        tuple(
            line
            for name in sorted({*old, *new})
            for line in difflib.unified_diff(
                old.get(name, "").splitlines(),
                new.get(name, "").splitlines(),
                f"{name} now",
                f"{name} new",
                lineterm="",
                n=1,
            )
        ),
        new=tuple(n.name for n in after.cluster.plan.nodes if n.name not in nodes),
        anew=tuple(node.name for node in kept if node != nodes[node.name]),
        removed=tuple(name for name in nodes if name not in after.cluster.node_names),
        accounts=_accounts(before.cluster) != _accounts(after.cluster),
    )


def _accounts(cluster: NativeCluster) -> object:
    topology = cluster.plan.topology
    return topology.qos, topology.accounts, cluster.plan.users


def apply(directory: Path, text: str) -> None:
    """Make a cluster what a new cluster.toml says; without an answer of slurmctld all goes back.

    slurmctld starts anew with the new files, nodes come and go, and jobs stay. A node that goes
    must have none.
    """
    with locked(directory):
        change, before = compare(directory, text), made(directory)
        busy = probes.busy_nodes(before.cluster, change.removed)
        if busy:
            raise StackError(
                f"jobs run on {', '.join(busy)}, which the new file has not",
                hint=f"scontrol update nodename={','.join(busy)} state=drain reason=apply; "
                "when they have ended, the same again",
            )
        state = change.after
        state.processes = before.processes
        try:
            _restart_controller(state)
        except StackError:
            before.processes = state.processes
            _restart_controller(before)
            native.await_nodes(before)
            raise
        _renew_nodes(state, change)
        probes.set_accounts(state.cluster)
        (directory / FILE_NAME).write_text(text, encoding="utf-8")
        native.await_nodes(state)


def _restart_controller(state: State) -> None:
    process = state.processes["slurmctld"]
    if not stop(process, patience=native.STOP_PATIENCE):
        raise StackError(f"slurmctld (pid {process.pid}) does not end")
    layout.write_conf(state.cluster)
    _start(state, "slurmctld")


def _renew_nodes(state: State, change: Change) -> None:
    for name in (*change.removed, *change.anew):
        process = state.processes.pop(f"slurmd-{name}", None)
        # Jobs of a node go on while its slurmd starts anew.
        if process is not None and not stop(process, patience=native.STOP_PATIENCE):
            raise StackError(f"slurmd of {name} (pid {process.pid}) does not end")
    for name in (*change.new, *change.anew):
        _start(state, f"slurmd-{name}")
    probes.reconfigure(state.cluster)


def _start(state: State, name: str) -> None:
    daemon = next(d for d in daemons(state.cluster) if d.name == name)
    native.launch_daemon(state, daemon)
    native.await_ready(state, daemon)


def destroy(directory: Path) -> None:
    """Take a cluster down and remove its directory with queue and accounting; its file stays."""
    state = made(directory)
    with locked(directory):
        native.stop_all(state)
        record.forget(state.cluster.name, directory)
        for path in directory.iterdir():
            if path.name in (FILE_NAME, ".lock"):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
