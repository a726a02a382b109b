"""Changes of a cluster that runs: `apply` a new cluster.toml, `scale`, `upgrade` Slurm itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slurm.errors import StackError, join_names
from slurm.model.hostlist import collapse_hostlist
from slurm.stack import switch
from slurm.stack.backup import copy
from slurm.stack.containers import containers
from slurm.stack.converge import Say, Stack, converge, make_stack, open_stack
from slurm.stack.join import check_left, hosts
from slurm.stack.life import check_same, prepare, settle, write_files
from slurm.stack.read import FILE_NAME, parse_topology
from slurm.stack.record import Record
from slurm.stack.render import rendered
from slurm.stack.state import locked
from slurm.stack.toml_lines import key_lines
from slurm.stack.versions import MAJORS, SUITES, accepts, major


@dataclass(frozen=True)
class Change:
    """What a new cluster.toml would do: lines of files, and services by what becomes of them.

    `unfinished` is what an interrupted command left to do.
    """

    diff: tuple[str, ...]
    new: tuple[str, ...]
    renewed: tuple[str, ...]
    removed: tuple[str, ...]
    unfinished: str

    @property
    def nothing(self) -> bool:
        """Whether all is as the file says already."""
        return not (self.diff or self.new or self.renewed or self.removed or self.unfinished)


def compare(directory: Path, text: str) -> Change:
    """What `apply` would do, without doing it; a file that Slurm would refuse is refused here."""
    stack = open_stack(directory)
    check_same(stack.record, parse_topology(text, str(directory / FILE_NAME)))
    plan = stack.record.plan(text)
    files = {n: f.text for n, f in rendered(plan).items() if n.startswith("shared/")}
    now = {f"shared/{n}": t for n, t in switch.texts(directory / "shared").items()}
    seen = stack.engine.seen()
    wanted = {c.service: c.spec for c in containers(plan, directory)}
    return Change(
        diff=tuple(line for n in sorted({*now, *files}) for line in _diff(n, now, files)),
        new=tuple(name for name in wanted if name not in seen),
        renewed=tuple(n for n, spec in wanted.items() if n in seen and seen[n].spec != spec),
        removed=tuple(name for name in seen if name not in wanted),
        unfinished=stack.record.doing,
    )


def _diff(name: str, old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    before, after = old.get(name, "").splitlines(), new.get(name, "").splitlines()
    return difflib.unified_diff(before, after, f"{name} now", f"{name} new", lineterm="", n=1)


def apply(directory: Path, text: str, say: Say, patience: float = 3600) -> Change:
    """Make a cluster what a new cluster.toml says; without an answer from slurmctld all goes back.

    Nodes that change or go are drained and wait for their jobs. Files are put into use as one;
    daemons read them again, or start anew where Slurm needs that.
    """
    with locked(directory):
        change = compare(directory, text)
        stack = open_stack(directory, say)
        _check_upgraded(stack.record)
        wanted = stack.record.plan(text)
        check_left(stack, wanted)
        stack.record.step("apply")
        if wanted.several_hosts != stack.plan.several_hosts:
            # All nodes get other ports: a job that ended meanwhile could not say so.
            stack.fleet.drain(stack.nodes, "apply")
            stack.fleet.await_no_jobs(stack.nodes, patience)
        _remove(stack, change.removed, patience)
        try:
            _go_over(stack, text, patience)
        except StackError as error:
            if not stack.record.proven or stack.fleet.answers():
                raise
            _go_back(stack, text, error)
    return change


def _remove(stack: Stack, services: tuple[str, ...], patience: float) -> None:
    """Services that are asked for no more; a node first waits for its jobs."""
    for service in services:
        seen = stack.engine.seen()[service]
        node = service.removeprefix("slurmd-") if service.startswith("slurmd-") else ""
        if node and seen.running:
            stack.fleet.drain([node], "it is taken away")
            stack.fleet.await_no_jobs([node], patience)
        stack.engine.stop(seen.name, 120)
        stack.engine.remove(seen.name)
        stack.say(f"removed {service}")


def _go_over(stack: Stack, text: str, patience: float) -> None:
    stack.record.ask_for(text)
    prepare(stack.record, stack.say)
    new = make_stack(stack.record, stack.say)
    write_files(new)
    converge(new, patience)
    settle(new)


def _go_back(stack: Stack, text: str, error: StackError) -> None:
    """The files with which the cluster worked last, and the controller started anew with them."""
    directory, record = stack.record.directory, stack.record
    refused = directory / f"{FILE_NAME}.refused"
    refused.write_text(text, encoding="utf-8")
    record.ask_for(record.proven)
    old = make_stack(record, stack.say)
    write_files(old)
    controller = old.container("slurmctld")
    old.engine.stop(controller.name, controller.grace)
    converge(old)
    settle(old)
    raise StackError(
        f"the change was taken back: {error.message}",
        evidence=error.evidence,
        hint=f"the cluster runs as before; mend {refused}, then: slurm cluster apply "
        f"{record.name} --topology {refused}",
    ) from error


# ---- scale --------------------------------------------------------------------------------------


def scaled(directory: Path, count: int) -> str:
    """The cluster.toml of a cluster with so many nodes instead."""
    stack = open_stack(directory)
    text = (directory / FILE_NAME).read_text(encoding="utf-8")
    groups = stack.record.topology().nodes
    if len(groups) > 1:
        raise StackError(
            f"the cluster has {len(groups)} kinds of nodes: which are to become {count}?",
            hint=f"change names = ... in {directory / FILE_NAME}, then: slurm cluster apply",
        )
    if count < 1:
        raise StackError(f"nodes={count} is too few", hint="a cluster has at least one node")
    stem = groups[0].names[0].rstrip("0123456789") if groups else "n"
    names = collapse_hostlist([f"{stem}{number}" for number in range(1, count + 1)])
    if not groups:
        return f'{text.rstrip()}\n\n[[nodes]]\nnames = "{names}"\n'
    return _with_line(text, ("nodes", 0, "names"), f'names = "{names}"')


def _with_line(text: str, way: tuple[str | int, ...], line: str) -> str:
    """A text of TOML with one key's line replaced, or put at the top."""
    known = key_lines(text)
    lines = text.splitlines()
    if way in known:
        lines[known[way] - 1] = line
    else:
        lines.insert(0, line)
    return "\n".join(lines) + "\n"


# ---- upgrade ------------------------------------------------------------------------------------


def check_upgrade(old: str, new: str) -> None:
    """Refuse what Slurm does not support, naming the step between."""
    if major(new) not in SUITES:
        raise StackError(
            f"Debian has no package of Slurm {new}", hint=f"one of {join_names(list(SUITES))}"
        )
    if MAJORS.index(new) < MAJORS.index(old):
        raise StackError(
            f"Slurm {old} cannot become {new}: there is no way back once a daemon has started",
            hint="slurm cluster restore brings a backup back",
        )
    if old == new or old in accepts(new):
        return
    steps = [v for v in MAJORS if old in accepts(v)]
    raise StackError(
        f"Slurm {new} does not understand the state of {old}: it accepts {', '.join(accepts(new))}",
        evidence=[f"{old} can become {', '.join(steps)}; nothing was touched"],
        hint=f"a step by {steps[-1]} is missing, and Debian has {join_names(list(SUITES))} only",
    )


def upgrade(directory: Path, to: str, say: Say, patience: float = 3600) -> None:
    """Bring a running cluster to another Slurm release; no job is lost.

    A backup first, then slurmdbd, slurmctld, node by node (drain, wait, make anew, resume, a
    job), then the rest. The same command after an interruption goes on where it ended.
    """
    with locked(directory):
        stack = open_stack(directory, say)
        record = stack.record
        check_upgrade(record.version, to)
        if record.version != to:
            _begin(stack, to)
        elif not record.doing:
            say(f"the cluster {record.name} has Slurm {to} already")
            return
        new = make_stack(record, say)
        write_files(new)
        converge(new, patience)
        settle(new)
        say(f"the cluster {record.name} has Slurm {to}")
        for host, state in hosts(new, new.fleet.states()).items():
            if state != "missing":
                say(f"{host} has the release before: slurm cluster join {host} {record.name}")


def _begin(stack: Stack, to: str) -> None:
    record = stack.record
    _check_upgraded(record)
    # Images first: a build that fails must find the cluster untouched.
    prepare(replace(record, version=to), stack.say, save=False)
    stack.say(f"backup in {copy(stack, f'before-{to}')}")
    text = (record.directory / FILE_NAME).read_text(encoding="utf-8")
    # The file before the record: who is interrupted in between is told to upgrade again.
    record.ask_for(_with_line(text, ("version",), f'version = "{to}"'))
    record.version = to
    record.step(f"upgrade to {to}")


def _check_upgraded(record: Record) -> None:
    if record.doing.startswith("upgrade"):
        raise StackError(
            f"the {record.doing} is not finished",
            hint=f"first: slurm cluster upgrade {record.name} --to {record.version}",
        )
