"""The native engine: a cluster as plain processes of the distribution's packages."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import cgroups, layout, probes
from slurm.stack.check import node_groups
from slurm.stack.daemons import Daemon, daemon_env, daemons, program
from slurm.stack.native_plan import NativeCluster, native_plan
from slurm.stack.ports import free_ports, is_free
from slurm.stack.preflight import check_native
from slurm.stack.processes import (
    job_processes,
    last_lines,
    launch,
    stop,
    uninterrupted,
    wait_until,
)
from slurm.stack.site import Site, find_gpus
from slurm.stack.state import State, load
from slurm.stack.topology import Topology
from slurm.stack.versions import major

# slurmctld writes its state when it is asked to end; on a busy host that takes its time.
STOP_PATIENCE = 60
_PORT_TAKEN = "Address already in use"
_TRIES = 3


def plan(
    directory: Path, topology: Topology, files: dict[str, str], keep: NativeCluster | None = None
) -> State:
    """Decide everything about a cluster: name, ports, enforcement. Nothing is started.

    What a running cluster has, given as `keep`, keeps its port.
    """
    check_native(topology.accounting)
    before = load(directory)
    # An earlier cluster's name is kept: its state and its accounting carry it.
    name = topology.name or (before.cluster.name if before else f"sdk{secrets.token_hex(4)}")
    why_not = _why_not_enforced(topology)
    closed = layout.closed_parent(directory)
    host = socket.gethostname()
    alone = _address_of(host) == "127.0.0.1"
    decided = native_plan(
        replace(topology, name=name),
        directory,
        host=host.partition(".")[0],
        user=pwd.getpwuid(os.geteuid()).pw_name,
        ports=_ports(topology, keep),
        version=_version(topology),
        why_not_enforced=why_not,
        site=Site(gpus=find_gpus()) if _wants_gpus(topology) else None,
        alone=alone,
    )
    cluster = NativeCluster(decided, directory, closed is not None, files)
    state = State(cluster, enforcement=f"none: {why_not}" if why_not else "cgroup v1")
    if not alone:
        state.notes.append(
            "Slurm's ports are open on all addresses of this machine, guarded by munge; to have "
            f"them on loopback alone give its name that address: 127.0.0.1 {host} in /etc/hosts"
        )
    if closed is not None:
        state.notes += [f"only {cluster.user} can use this cluster: {closed} is closed to others"]
    return state


def _address_of(host: str) -> str:
    """The address of this host's own name, where Slurm can be made to listen and nowhere else.

    On Debian it often is 127.0.1.1; srun is then called back at 127.0.0.1, where it would not be.
    """
    try:
        return socket.gethostbyname(host)
    except OSError:
        return ""


def _ports(topology: Topology, keep: NativeCluster | None) -> list[int]:
    """The ports of slurmctld, slurmdbd and each node: as they are, or free ones."""
    names = [name for group in node_groups(topology) for name in group.names]
    fresh = free_ports(len(names) + 2)
    if keep is None:
        return fresh
    had = {node.name: node.port for node in keep.plan.nodes}
    own = [keep.plan.slurmctld_port, keep.plan.slurmdbd_port or fresh[1]]
    return [*own, *(had.get(name, port) for name, port in zip(names, fresh[2:], strict=True))]


def _why_not_enforced(topology: Topology) -> str | None:
    """Why jobs are not held to their memory; an error where the topology insists."""
    if topology.limits.enforce is False:
        return "limits.enforce is false"
    why = cgroups.why_not_enforced()
    if why and topology.limits.enforce is True:
        raise StackError(
            f"limits.enforce = true is not possible: {why}", hint='write enforce = "auto"'
        )
    return why


def _version(topology: Topology) -> str:
    """The release that is installed, which must be the one that is asked for."""
    found = installed_version()
    if topology.version not in ("auto", found):
        raise StackError(
            f"version = {topology.version!r}, but Slurm {found} is installed here",
            hint='remove the line, or use containers: engine = "podman"',
        )
    return found


def _wants_gpus(topology: Topology) -> bool:
    return any(group.gpus for group in node_groups(topology))


def installed_version() -> str:
    """The release of the Slurm that is installed here."""
    argv = [program("slurmctld"), "-V"]
    return major(
        subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    )


def bring_up(directory: Path, topology: Topology, files: dict[str, str]) -> State:
    """Plan and start a cluster; once more with new ports when another program took one."""
    for attempt in range(1, _TRIES + 1):
        state = plan(directory, topology, files)
        try:
            start(state)
        except BaseException as error:  # what was started is stopped, whatever happened
            _stop_after(error, state)
            lost_a_port = isinstance(error, StackError) and _PORT_TAKEN in str(error)
            if not lost_a_port or attempt == _TRIES:
                raise
        else:
            return state
    raise AssertionError("unreachable")


def _stop_after(error: BaseException, state: State) -> None:
    try:
        stop_all(state)
    except StackError as left:
        # The first error is what the caller must read; what is left over is said with it.
        if not isinstance(error, StackError):
            raise
        error.evidence += (left.message, *left.evidence)


def start(state: State) -> None:
    """Start all daemons of a planned cluster and wait until a job has run on all nodes."""
    cluster = state.cluster
    layout.prepare(cluster)
    state.save()
    end_jobs(cluster)
    if cluster.enforce_memory:
        cgroups.make(cluster.cgroup, cluster.directory / "cgroup")
    fleet = daemons(cluster)
    nodes = [daemon for daemon in fleet if daemon.name.startswith("slurmd-")]
    for daemon in fleet:
        if daemon.name == "mariadbd":
            layout.make_database(cluster)
        launch_daemon(state, daemon)
        if daemon not in nodes:
            await_ready(state, daemon)
        if daemon.name == "slurmdbd":
            probes.add_cluster(cluster)
            probes.set_accounts(cluster)
    for daemon in nodes:
        await_ready(state, daemon)
    await_nodes(state)
    job_id = probes.run_everywhere(cluster)
    if cluster.accounting:
        probes.await_accounted(cluster, job_id)


def launch_daemon(state: State, daemon: Daemon) -> None:
    """Start one daemon and write down its process."""
    cluster = state.cluster
    if daemon.port is not None and not is_free(daemon.port):
        # slurmctld itself would try for most of a minute before it says so.
        raise StackError(f"{daemon.name} cannot listen on port {daemon.port}: {_PORT_TAKEN}")
    log = cluster.log(daemon.name)
    ids = layout.account_ids(daemon.account, cluster)
    argv = [program(daemon.argv[0]), *daemon.argv[1:]]
    with uninterrupted():
        state.processes[daemon.name] = launch(argv, log, daemon_env(cluster), ids)
        state.save()


def await_ready(state: State, daemon: Daemon) -> None:
    """Wait until a daemon listens; when it dies or stays silent, say so in its own words."""
    process = state.processes[daemon.name]
    wait_until(lambda: daemon.ready(process.pid) or not process.alive(), daemon.patience)
    if not process.alive():
        raise _failed(state, daemon.name, "ended during its start")
    if not daemon.ready(process.pid):
        raise _failed(state, daemon.name, f"does not listen after {daemon.patience:g} s")


def _failed(state: State, name: str, what: str) -> StackError:
    log = state.cluster.log(name)
    return StackError(
        f"{name} {what}; its last words are below",
        evidence=last_lines(log),
        hint=f"mend what {name} complains about; its whole log is {log}",
    )


def await_nodes(state: State, patience: float = 60) -> None:
    """Wait until slurmctld has every node in service; give up when it or a slurmd ended."""
    wanted = set(state.cluster.node_names)
    states: dict[str, str] = {}

    def in_service() -> bool:
        for name, process in state.processes.items():
            if name.startswith(("slurmctld", "slurmd-")) and not process.alive():
                raise _failed(state, name, "does not run")
        states.update(probes.node_states(state.cluster))
        return wanted <= {node for node, word in states.items() if probes.in_service(word)}

    if not wait_until(in_service, patience):
        bad = sorted(node for node in wanted if not probes.in_service(states.get(node)))
        what = ", ".join(f"{node} is {states.get(node, 'unknown')}" for node in bad)
        raise StackError(
            f"not all nodes are in service after {patience:g} s: {what}",
            evidence=last_lines(state.cluster.log(f"slurmd-{bad[0]}")),
        )


def stop_all(state: State) -> None:
    """Stop every daemon and every job process of the cluster; queued jobs stay in its state."""
    names = list(state.processes)
    nodes = [name for name in names if name.startswith("slurmd-")]
    rest = [name for name in reversed(names) if name not in nodes and name != "slurmctld"]
    # The controller first: it then saves its state and sees no node die.
    _stop_together(state, [name for name in names if name == "slurmctld"])
    _stop_together(state, nodes)
    end_jobs(state.cluster)
    for name in rest:
        _stop_together(state, [name])


def _stop_together(state: State, names: list[str]) -> None:
    for name in names:
        state.processes[name].send(signal.SIGTERM)
    for name in names:
        if not stop(state.processes[name], patience=STOP_PATIENCE):
            raise StackError(f"{name} (pid {state.processes[name].pid}) does not end")
        del state.processes[name]
    if names:
        state.save()


def end_jobs(cluster: NativeCluster) -> None:
    """End the job processes that slurmd leaves behind, and remove the cluster's cgroups."""
    for process in job_processes(str(cluster.slurm_conf), cluster.name):
        process.send(signal.SIGKILL)
    left = cgroups.remove(cluster.cgroup)
    if left:
        raise StackError(
            "cgroups of this cluster could not be removed", evidence=[str(path) for path in left]
        )
