"""The native engine: a cluster as plain processes of the distribution's packages in one directory."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import cgroups
from slurm.stack.conf import conf_files
from slurm.stack.daemons import Daemon, check_programs, daemon_env, daemons, program
from slurm.stack.ports import free_ports
from slurm.stack.processes import Process, identify, last_lines, launch, stop, wait_until
from slurm.stack.state import State, load
from slurm.stack.topology import NodeSpec, Topology

_STOP_PATIENCE = 60


def plan(
    directory: Path,
    *,
    name: str | None,
    nodes: int,
    cpus: int,
    memory_mb: int,
    extra_conf: Iterable[str],
    files: Mapping[str, str],
    accounting: bool,
) -> State:
    """Decide everything about a new cluster: names, ports, enforcement. Nothing is started."""
    check_programs(accounting)
    before = load(directory)
    ports = free_ports(nodes + 2)
    why_not = cgroups.why_not_enforced()
    topology = Topology(
        # An earlier cluster's name is kept: its state and accounting carry it.
        name=name or (before.topology.name if before else f"sdk{secrets.token_hex(4)}"),
        directory=directory,
        host=socket.gethostname().partition(".")[0],
        user=pwd.getpwuid(os.geteuid()).pw_name,
        nodes=tuple(
            NodeSpec(f"n{number}", port, cpus, memory_mb)
            for number, port in enumerate(ports[2:], start=1)
        ),
        slurmctld_port=ports[0],
        slurmdbd_port=ports[1] if accounting else None,
        enforce_memory=why_not is None,
        extra_conf=tuple(extra_conf),
        files=dict(files),
    )
    enforcement = "cgroup v1" if why_not is None else f"none: {why_not}"
    return State(topology, enforcement)


def start(state: State) -> None:
    """Start all daemons of a planned cluster and wait until a job has run on all nodes."""
    topology = state.topology
    prepare(state)
    state.save()
    if topology.enforce_memory:
        cgroups.make(topology.name, topology.directory / "cgroup")
    fleet = daemons(topology)
    for daemon in fleet:
        if daemon.name == "mariadbd":
            make_database(state)
        start_one(state, daemon, wait=not daemon.name.startswith("slurmd-"))
    for daemon in fleet:
        await_ready(state, daemon)
    await_nodes(state)
    run_first_job(state)


def prepare(state: State) -> None:
    """Make the directories with their owners and modes, the munge key and all configuration."""
    topology = state.topology
    top = topology.directory
    open_to_others = passable(top)
    for name, mode, account in (
        ("etc", 0o755, None),
        ("log", 0o755, None),
        ("run", 0o755, None),
        ("state", 0o700, None),
        ("spool", 0o755, None),
        ("munge", 0o755, "munge"),
        ("db", 0o700, "mysql"),
    ):
        place = top / name
        place.mkdir(exist_ok=True)
        place.chmod(mode)
        own(place, account, open_to_others)
    if not open_to_others:
        state.notes = [f"only {topology.user} can use this cluster: {top} is closed to others"]
    for node in topology.node_names:
        (top / "spool" / node).mkdir(mode=0o755, exist_ok=True)
    key = top / "munge" / "munge.key"
    if not key.exists():
        write(key, secrets.token_bytes(1024), 0o400)
        own(key, "munge", open_to_others)
    for file, text in conf_files(topology).items():
        mode = 0o600 if file == "slurmdbd.conf" else 0o755 if text.startswith("#!") else 0o644
        write(top / "etc" / file, text.encode(), mode)


def write(path: Path, content: bytes, mode: int) -> None:
    """Write a file that has its mode before it has its content."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)


def passable(directory: Path) -> bool:
    """Whether other users can reach the directory (as munge and mysql must, to own a part of it)."""
    return all(place.stat().st_mode & 0o001 for place in (directory, *directory.parents))


def ids(account: str | None, open_to_others: bool) -> tuple[int, int] | None:
    """The user and group a daemon runs as, or None for our own."""
    if account is None or os.geteuid() != 0 or not open_to_others:
        return None
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def own(path: Path, account: str | None, open_to_others: bool) -> None:
    """Give a path to the account of its daemon."""
    pair = ids(account, open_to_others)
    if pair is not None:
        os.chown(path, *pair)


def make_database(state: State) -> None:
    """Make MariaDB's own tables, once for the life of the directory."""
    topology = state.topology
    place = topology.directory / "db"
    if (place / "made").exists():
        return
    shutil.rmtree(place / "data", ignore_errors=True)
    entry = pwd.getpwnam(topology.user)
    pair = ids("mysql", passable(topology.directory))
    owner = pwd.getpwuid(pair[0]).pw_name if pair else topology.user
    done = subprocess.run(
        [
            program("mariadb-install-db"),
            "--no-defaults",
            f"--user={owner}",
            f"--datadir={place}/data",
            "--skip-test-db",
            "--skip-name-resolve",
            # Who may log in is decided by the kernel's word about who is on the socket.
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={entry.pw_name}",
            "--innodb-log-file-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(
            "mariadb-install-db could not make the database",
            evidence=done.stdout.splitlines()[-12:],
        )
    (place / "made").touch()


def start_one(state: State, daemon: Daemon, wait: bool = True) -> None:
    """Start one daemon, write down its process, and wait for it to answer."""
    topology = state.topology
    user = ids(daemon.account, passable(topology.directory))
    log = topology.log(daemon.name)
    state.processes[daemon.name] = launch(daemon.argv, log, daemon_env(topology), user)
    state.save()
    if wait:
        await_ready(state, daemon)


def await_ready(state: State, daemon: Daemon) -> None:
    """Wait until a daemon answers; when it dies or stays silent, say so in its own words."""
    process = state.processes[daemon.name]
    wait_until(lambda: daemon.ready() or not process.alive(), daemon.patience)
    if process.alive() and daemon.ready():
        return
    what = f"did not answer within {daemon.patience:g} s" if process.alive() else "ended"
    raise StackError(
        f"{daemon.name} {what}",
        evidence=last_lines(state.topology.log(daemon.name)),
        hint=f"its whole log: {state.topology.log(daemon.name)}",
    )


def client_env(topology: Topology) -> dict[str, str]:
    """What a client's environment needs to reach this cluster."""
    return {"SLURM_CONF": str(topology.slurm_conf)}


def command(topology: Topology, *argv: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command against the cluster."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SINFO"))}
    return subprocess.run(
        [program(argv[0]), *argv[1:]],
        env={**env, **client_env(topology), "LC_ALL": "C"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def node_states(topology: Topology) -> dict[str, str]:
    """Each node's state as slurmctld sees it; empty when it does not answer."""
    try:
        done = command(topology, "sinfo", "-h", "-N", "-o", "%N %T", timeout=15)
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode != 0:
        return {}
    return dict(line.split(None, 1) for line in done.stdout.splitlines() if " " in line)


def await_nodes(state: State, patience: float = 60) -> None:
    """Wait until slurmctld has every node in service."""
    wanted = set(state.topology.node_names)

    def in_service() -> bool:
        states = node_states(state.topology)
        return wanted == {n for n, s in states.items() if s in ("idle", "mixed", "allocated")}

    if not wait_until(in_service, patience):
        states = node_states(state.topology)
        bad = [node for node in sorted(wanted) if states.get(node) != "idle"]
        raise StackError(
            f"nodes not in service after {patience:g} s: "
            + ", ".join(f"{node} is {states.get(node, 'unknown')}" for node in bad),
            evidence=last_lines(state.topology.log(f"slurmd-{bad[0]}")) if bad else (),
        )


def run_first_job(state: State) -> None:
    """Prove that the cluster takes a job: run `true` on every node."""
    topology = state.topology
    try:
        done = command(
            topology, "srun", f"--nodes={len(topology.nodes)}", "--time=1", "true", timeout=60
        )
        words, failed = done.stdout, done.returncode != 0
    except subprocess.TimeoutExpired as error:
        words, failed = str(error), True
    if failed:
        raise StackError(
            "the first job did not run on all nodes",
            evidence=[*words.splitlines()[-6:], *last_lines(topology.log("slurmctld"), 6)],
        )


def stop_all(state: State) -> None:
    """Stop every daemon and every job process of the cluster; queued jobs stay in its state."""
    names = list(state.processes)
    slurmds = [name for name in names if name.startswith("slurmd-")]
    rest = [n for n in reversed(names) if n not in slurmds and n != "slurmctld"]
    # The controller first: it then saves its state and sees no node die.
    for group in (["slurmctld"], slurmds):
        stop_group(state, [name for name in group if name in names])
    end_jobs(state)
    for name in rest:
        stop_group(state, [name])


def stop_group(state: State, names: list[str]) -> None:
    """Stop some daemons at the same time, in order, and forget them."""
    for name in names:
        state.processes[name].send(signal.SIGTERM)
    for name in names:
        if not stop(state.processes[name], patience=_STOP_PATIENCE):
            raise StackError(f"{name} (pid {state.processes[name].pid}) does not end")
    for name in names:
        del state.processes[name]
    state.save()


def end_jobs(state: State) -> None:
    """End the job processes that slurmd leaves behind, and remove the cluster's cgroups."""
    topology = state.topology
    for process in job_processes(topology):
        process.send(signal.SIGKILL)
    left = cgroups.remove(topology.name)
    if left:
        raise StackError("cgroups could not be removed", evidence=map(str, left))


def job_processes(topology: Topology) -> list[Process]:
    """The slurmstepd of this cluster's jobs and what they started.

    A slurmstepd is known by the configuration file in the environment that slurmd gave it.
    """
    mark = f"SLURM_CONF={topology.slurm_conf}".encode()
    parents: dict[int, int] = {}
    steps: set[int] = set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            stat = (place / "stat").read_text()
            name = stat[stat.index("(") + 1 : stat.rindex(")")]
            parents[int(place.name)] = int(stat.rpartition(")")[2].split()[1])
            if name.startswith("slurmstepd") and mark in (place / "environ").read_bytes().split(
                b"\0"
            ):
                steps.add(int(place.name))
        except (OSError, ValueError):
            continue
    found = set(steps)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return [process for pid in sorted(found) if (process := identify(pid))]
