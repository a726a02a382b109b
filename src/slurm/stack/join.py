"""Other hosts join and leave a running cluster: over SSH from here, or by a command typed there.

The other host gets a folder with its compose project, a script and the key of the daemons, all
through SSH; the key is in no argument and in no log. Its nodes read their configuration from
slurmctld and tell it themselves what they are, so nothing here has to start anew.
"""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import secrets
import shlex
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

from slurm.errors import StackError, nearest
from slurm.stack.converge import Stack, converge, make_stack
from slurm.stack.fleet import wait_until
from slurm.stack.hosts import FOLDER, host_files, joining_hosts, project
from slurm.stack.life import write_files
from slurm.stack.plan import Plan
from slurm.stack.site import NVIDIA_SMI, parse_nvidia
from slurm.stack.state import locked
from slurm.stack.topology import Host

#: Seconds for which the one-time command is good.
GOOD_FOR = 3600
_PATIENCE = 1800
_JOB_PATIENCE = 120


def host_of(stack: Stack, name: str) -> Host:
    """A host of the topology that brings nodes."""
    found = {host.name: host for host in joining_hosts(stack.plan)}
    if name in found:
        return found[name]
    close = nearest(name, found)
    raise StackError(
        f"no node of the cluster {stack.record.name} runs on a host {name!r}",
        evidence=[f"other hosts: {', '.join(found) or 'none'}"],
        hint=f"did you mean {close!r}?"
        if close
        else f'add [[hosts]] name = "{name}" and [[nodes]] host = "{name}" to cluster.toml, then: '
        f"slurm cluster apply {stack.record.name}",
    )


def hosts(stack: Stack, told: dict[str, str]) -> dict[str, str]:
    """Each other host, as slurmctld has its nodes: `joined`, `missing` or `not answering`."""
    found = {}
    for host in joining_hosts(stack.plan):
        states = [told.get(node.name, "") for node in stack.plan.on_host(host.name)]
        lost = any(state.endswith("*") for state in states)
        found[host.name] = "not answering" if lost else "joined" if all(states) else "missing"
    return found


def check_left(stack: Stack, wanted: Plan) -> None:
    """Refuse a topology without a host that is still in: nobody would end its nodes."""
    kept = {host.name for host in joining_hosts(wanted)}
    for name, state in hosts(stack, stack.fleet.states()).items():
        if state != "missing" and name not in kept:
            raise StackError(
                f"{name} is {state} and no longer in cluster.toml",
                hint=f"first: slurm cluster leave {name} {stack.record.name}",
            )


# ---- what the other host gets -------------------------------------------------------------------


def bundle(stack: Stack, host: Host) -> bytes:
    """A tar of the host's folder and the key of the daemons; only its owner may read them."""
    folder = f"{FOLDER}/{host.name}/"
    files = host_files(stack.plan)
    content = {n.removeprefix(folder): files[n].encode() for n in files if n.startswith(folder)}
    for name in project(stack.plan, host)["secrets"]:
        content[f"secrets/{name}"] = (stack.record.directory / "secrets" / name).read_bytes()
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), int(time.time())
            entry.mode = 0o700 if name.endswith(".sh") else 0o600
            archive.addfile(entry, io.BytesIO(data))
    return sink.getvalue()


def _unpack(stack: Stack, host: Host) -> str:
    """What the other host's shell does with the tar that comes on its standard input."""
    place = _place(stack, host)
    return f"umask 077 && mkdir -p {place} && tar -xf - -C {place} && sh {place}/join.sh"


def _place(stack: Stack, host: Host) -> str:
    # The home of a NAS is often in memory.
    if host.storage:
        return shlex.quote(f"{host.storage}/joined-{stack.record.name}")
    return f"~/.local/share/slurm-sdk/joined/{stack.record.name}"


# ---- by a command that is typed there -----------------------------------------------------------


def invite(stack: Stack, host: Host) -> str:
    """A command for the other host that fetches all this over SSH, once."""
    if _known(stack, host):
        raise StackError(
            f"{host.name} has joined already, and its jobs would end with its nodes",
            hint=f"first: slurm cluster leave {host.name} {stack.record.name}",
        )
    word = secrets.token_hex(16)
    ticket = {"digest": _digest(word), "until": time.time() + GOOD_FOR}
    path = _ticket(stack, host)
    path.touch(mode=0o600)
    path.write_text(json.dumps(ticket))
    here = f"{getpass.getuser()}@{stack.plan.topology.network.address}"
    words = [sys.executable, "-m", "slurm.cli", "cluster", "hand-over", host.name, word]
    fetch = shlex.join([*words, "--dir", str(stack.record.directory)])
    return f"ssh -T {here} {shlex.quote(fetch)} | ({_unpack(stack, host)})"


def hand_over(stack: Stack, host: Host, word: str) -> bytes:
    """The tar for whoever brings the word of an invitation; it is good once."""
    path = _ticket(stack, host)
    with locked(stack.record.directory):
        try:
            ticket = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            ticket = {"digest": "", "until": 0.0}
        known = secrets.compare_digest(str(ticket["digest"]), _digest(word))
        if not known or time.time() > float(ticket["until"]):
            raise StackError(
                f"this command for {host.name} was used already, or is older than an hour",
                hint=f"ask for a new one: slurm cluster join {host.name} {stack.record.name}",
            )
        path.unlink()
    return bundle(stack, host)


def _ticket(stack: Stack, host: Host) -> Path:
    return stack.record.directory / "secrets" / f"join-{host.name}"


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


# ---- over SSH from here -------------------------------------------------------------------------


def join(stack: Stack, host: Host, ssh: list[str], patience: float = 3600) -> None:
    """Bring a host in by `ssh`, the words that reach it; ready when a job has run on its nodes.

    One that has joined already leaves first: it may have become another one.
    """
    if _known(stack, host):
        leave(stack, host, ssh, patience)
    stack = _with_gpus(stack, host, ssh, patience)
    _remote(ssh, _unpack(stack, host), bundle(stack, host), f"{host.name} could not join")
    stack.say(f"{host.name} has its files, and its nodes start")
    await_nodes(stack, host)
    prove(stack, [node.name for node in stack.plan.on_host(host.name)])


def _with_gpus(stack: Stack, host: Host, ssh: list[str], patience: float) -> Stack:
    """The cluster with the GPUs of a host whose nodes take what there is.

    Slurm's files name them, so those are put into use before the host comes.
    """
    groups = [group for group in stack.plan.topology.nodes if group.host == host.name]
    if not any(group.gpus == "auto" for group in groups):
        return stack
    look = f"{shlex.join(NVIDIA_SMI)} 2>/dev/null || true"
    found = parse_nvidia(_remote(ssh, look, b"", f"{host.name} cannot be asked for its GPUs"))
    record = stack.record
    if not found and not record.site.gpus_of(host.name):
        return stack
    stack.say(f"{host.name} has {', '.join(gpu.type for gpu in found) or 'no GPU any more'}")
    with locked(record.directory):
        known = {**record.site.joined_gpus, host.name: found}
        record.site = replace(record.site, joined_gpus=known)
        record.save()
        new = make_stack(record, stack.say)
        write_files(new)
        converge(new, patience)
    return new


def await_nodes(stack: Stack, host: Host) -> None:
    """Wait until slurmctld has all nodes of a host, and they answer."""
    nodes = stack.plan.on_host(host.name)
    if wait_until(lambda: stack.fleet.answer(node.name for node in nodes), _JOB_PATIENCE):
        return
    told = stack.fleet.states()
    raise StackError(
        f"{host.name} has started its nodes, and slurmctld does not have them all",
        evidence=[f"{node.name} is {told.get(node.name, 'unknown')}" for node in nodes],
        hint=f"can {host.name} reach {stack.plan.topology.network.address}:"
        f"{stack.plan.slurmctld_port}, and this host {host.address}:{nodes[0].port}? Do their "
        "clocks agree?",
    )


def prove(stack: Stack, names: list[str]) -> None:
    """See a job run on each of these nodes: their own files are enough for it."""
    for name in names:
        part = next(p.name for p in stack.plan.partitions if p.nodes == "ALL" or name in p.nodes)
        words = ("--chdir=/", "--output=/dev/null", "--mem=8", "--time=1", "--job-name=canary")
        said = stack.fleet.must(
            "sbatch", "--parsable", f"--partition={part}", f"--nodelist={name}", *words,
            "--wrap=true",
        )  # fmt: skip
        job = said.split()[-1]
        if not wait_until(lambda job=job: _completed(stack, job), _JOB_PATIENCE):  # type: ignore[misc]
            raise StackError(
                f"a job on {name} did not run",
                evidence=stack.fleet.ask("scontrol", "show", "job", job).last,
                hint=f"slurm cluster exec {stack.record.name} scontrol show node {name}",
            )
    stack.say(f"jobs run on {', '.join(names)}")


def _completed(stack: Stack, job: str) -> bool:
    return "JobState=COMPLETED" in stack.fleet.ask("scontrol", "show", "job", job).text


def _known(stack: Stack, host: Host) -> list[str]:
    """The nodes of a host that slurmctld has."""
    told = stack.fleet.states()
    return [node.name for node in stack.plan.on_host(host.name) if node.name in told]


def leave(stack: Stack, host: Host, ssh: list[str], patience: float = 3600) -> None:
    """Take a host out: no new jobs, wait for those that run, end its nodes, forget them.

    Without `ssh` the nodes must be ended there first; slurmctld forgets them here.
    """
    names = _known(stack, host)
    if names:
        stack.fleet.drain(names, f"{host.name} leaves")
        stack.fleet.await_no_jobs(names, patience)
    if ssh:
        place = _place(stack, host)
        words = f"[ ! -e {place}/join.sh ] || sh {place}/join.sh leave && rm -rf {place}"
        _remote(ssh, words, b"", f"{host.name} does not let its nodes go")
    for name in names:
        stack.fleet.must("scontrol", "delete", f"nodename={name}")
        stack.say(f"{name} is no longer known")
    _ticket(stack, host).unlink(missing_ok=True)


def _remote(ssh: list[str], command: str, data: bytes, problem: str) -> str:
    """What a command on the other host prints; it must succeed."""
    argv = ["ssh", "-o", "BatchMode=yes", *ssh, command]
    try:
        done = subprocess.run(
            argv,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(
            problem, evidence=[str(error)], hint=f"try: ssh {shlex.join(ssh)}"
        ) from None
    said = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        lines = said.splitlines()[-8:]
        raise StackError(problem, evidence=lines, hint=f"try: ssh {shlex.join(ssh)}")
    return said
