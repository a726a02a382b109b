"""Makes every container of a cluster what it should be, one by one, in the order Slurm needs.

What should be there follows from the record and cluster.toml; what is right already is left alone.
So whatever an interruption left behind, the same command goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import record as records
from slurm.stack import switch
from slurm.stack.advice import likely_fix
from slurm.stack.containers import Container, containers
from slurm.stack.engine import Engine, Seen
from slurm.stack.fleet import Fleet, wait_until
from slurm.stack.mend import mend
from slurm.stack.plan import Plan
from slurm.stack.record import Record

Say = Callable[[str], None]
#: Seconds until a service must answer; slurmdbd may convert its database first.
_PATIENCE = {"slurmdbd": 3600.0}
_USUAL_PATIENCE = 180.0
# A service that has ended so often while it was waited for will go on ending.
_MOST_RESTARTS = 5


@dataclass(frozen=True)
class Stack:
    """A cluster and all that acts on it."""

    record: Record
    plan: Plan
    engine: Engine
    containers: tuple[Container, ...]
    say: Say

    @property
    def fleet(self) -> Fleet:
        """Its nodes and jobs."""
        controllers = [c.service for c in self.containers if c.service.startswith("slurmctld")]
        return Fleet(self.engine, controllers)

    @property
    def nodes(self) -> list[str]:
        """The nodes of this host."""
        return [c.node for c in self.containers if c.node]

    def container(self, service: str) -> Container:
        """One service's container."""
        return next(c for c in self.containers if c.service == service)


def open_stack(directory: Path, say: Say = lambda _: None) -> Stack:
    """The cluster that lies in a directory."""
    record = records.load(directory)
    if record is None and (directory / "cluster.json").exists():
        raise StackError(
            f"the cluster in {directory} is one of plain processes, which cannot do this",
            hint='make one in containers: engine = "podman" in its cluster.toml',
        )
    if record is None:
        raise StackError(
            f"no cluster in containers was made in dir={str(directory)!r}",
            hint=f"bring one up: slurm cluster up --engine podman --dir {directory}",
        )
    return make_stack(record, say)


def make_stack(record: Record, say: Say) -> Stack:
    """The same for a record that is at hand."""
    plan = record.plan()
    engine = Engine(record.engine, record.name)
    return Stack(record, plan, engine, containers(plan, record.directory), say)


def converge(stack: Stack, patience: float = 3600) -> list[str]:
    """Make every container what it should be; the services that were touched.

    A service that must change is ended with SIGTERM and its time to save, and made anew on its
    volumes. A node is first drained, and waits for its jobs for `patience` seconds.
    """
    fixed = [c for c in stack.containers if not c.node]
    # The sorted order is: database, slurmdbd, controllers, nodes, and then who needs those.
    middle = next((n for n, c in enumerate(stack.containers) if c.node), len(fixed))
    crashed = _crashed(stack)
    touched = _bring_first(stack, fixed[:middle])
    if "slurmctld" not in touched and _one_release(stack):
        # Nodes that are new must be known before they come.
        _tell(stack)
    touched += _bring_nodes(stack, patience)
    _tell(stack, anew={f"slurmd-{node}" for node in stack.nodes} <= set(touched))
    for line in mend(stack.fleet, crashed=crashed):
        stack.say(line)
    there = stack.engine.seen()
    later = fixed[middle:]
    for container in later:
        touched += _bring(stack, container, there.get(container.service))
    for container in later:
        await_health(stack, container)
    return touched


def _crashed(stack: Stack) -> bool:
    """Whether slurmctld was ended by a signal; one that does not like its files ends by itself."""
    controller = stack.engine.seen().get("slurmctld")
    return controller is not None and not controller.running and controller.code > 128


def _bring_first(stack: Stack, first: Sequence[Container]) -> list[str]:
    """What nodes need, each when the one before it does its work; says who was away how long."""
    touched: list[str] = []
    for container in first:
        begun = time.monotonic()
        there = stack.engine.seen()
        seen = there.get(container.service)
        if container.service == "slurmctld":
            _stand_down(stack, there.get("slurmctld-backup"))
        touched += _bring(stack, container, seen)
        await_health(stack, container)
        if container.service in touched and seen is not None and seen.running:
            stack.say(f"{container.service} was away for {time.monotonic() - begun:.1f} s")
    return touched


def _one_release(stack: Stack) -> bool:
    """Whether no node is of a release that the files are not for."""
    seen = stack.engine.seen()
    nodes = [c for c in stack.containers if c.node and c.service in seen]
    return all(seen[c.service].image == c.image for c in nodes)


def _tell(stack: Stack, *, anew: bool = False) -> None:
    """Let the daemons read their files again, unless they have, or all were started `anew`."""
    now = switch.current(stack.record.directory / "shared")
    if stack.record.told == now:
        return
    if not anew:
        # Who is interrupted here does not know what they have read.
        stack.record.told = ""
        stack.record.save()
        if not stack.fleet.reconfigure():
            raise StackError(
                "slurmctld does not answer with the new files",
                evidence=stack.engine.log(stack.container("slurmctld").name, 15),
            )
        stack.say("the daemons have read their files again")
    stack.record.told = now
    stack.record.save()


def _stand_down(stack: Stack, backup: Seen | None) -> None:
    """A second controller that must change ends before the first does.

    Otherwise it could take over meanwhile, with an old release and a state of the new one.
    """
    wanted = [c for c in stack.containers if c.service == "slurmctld-backup"]
    if backup is not None and backup.running and wanted and wanted[0].spec != backup.spec:
        stack.engine.stop(backup.name, wanted[0].grace)
        stack.say("slurmctld-backup stands down while slurmctld changes")


def _bring(stack: Stack, container: Container, seen: Seen | None) -> list[str]:
    """Create or start one container; its service, if anything had to be done."""
    if seen is not None and seen.running and seen.spec == container.spec:
        return []
    stack.record.step(f"{stack.record.doing.partition(':')[0]}: {container.service}")
    # One that never ran may have been made where it cannot run.
    if seen is None or seen.spec != container.spec or seen.state not in ("running", "exited"):
        if seen is not None and seen.running:
            stack.engine.stop(seen.name, container.grace)
        stack.engine.create(container)
    stack.engine.start(container)
    stack.say(f"started {container.service}")
    return [container.service]


def await_health(stack: Stack, container: Container) -> None:
    """Wait until a service does its work; else its own last words.

    One that ends again and again is not waited for.
    """
    if stack.engine.healthy(container):
        return
    patience = _PATIENCE.get(container.service, _USUAL_PATIENCE)
    before = _restarts(stack, container)

    def decided() -> bool:
        healthy = stack.engine.healthy(container)
        return healthy or _restarts(stack, container) - before >= _MOST_RESTARTS

    if wait_until(decided, patience) and stack.engine.healthy(container):
        return
    words = stack.engine.log(container.name, 15)
    raise StackError(
        f"{container.service} does not do its work",
        evidence=words,
        hint=_hint(stack, container, words),
    )


def _hint(stack: Stack, container: Container, words: Sequence[str]) -> str:
    """What its last words call for, or where there are more of them."""
    more = f"slurm cluster logs {stack.record.name} {container.service}; then the same again"
    fix = likely_fix(words)
    return f"{fix}. More: {more}" if fix else more


def _restarts(stack: Stack, container: Container) -> int:
    seen = stack.engine.seen().get(container.service)
    return seen.restarts if seen else 0


def _bring_nodes(stack: Stack, patience: float) -> list[str]:
    seen = stack.engine.seen()
    every = [c for c in stack.containers if c.node]
    gone = [c for c in every if c.service not in seen or not seen[c.service].running]
    touched = _bring_gone(stack, gone, seen)
    for container in every:
        if container not in gone and seen[container.service].spec != container.spec:
            _renew_node(stack, container, seen[container.service], patience)
            touched.append(container.service)
    stack.fleet.back(stack.nodes)
    # Nodes that somebody else took out of service are theirs.
    _await_nodes(stack, [c for c in every if c.node not in stack.fleet.reasons()])
    return touched


def _bring_gone(stack: Stack, gone: Sequence[Container], seen: dict[str, Seen]) -> list[str]:
    """Nodes that do not run: the jobs that they had are nobody's now."""
    names = [c.node for c in gone]
    if names and stack.fleet.running(names):
        stack.fleet.let_go(names)
    for container in gone:
        _bring(stack, container, seen.get(container.service))
    _await_nodes(stack, gone)
    return [c.service for c in gone]


def _renew_node(stack: Stack, container: Container, seen: Seen, patience: float) -> None:
    """Drain, wait, make anew, see a job of ours run, and give the node back."""
    fleet, node = stack.fleet, container.node
    what = stack.record.doing.partition(":")[0] or "apply"
    fleet.drain([node], what)
    fleet.await_no_jobs([node], patience)
    _bring(stack, container, seen)
    _await_nodes(stack, [container])
    fleet.back([node])


def _await_nodes(stack: Stack, nodes: Sequence[Container]) -> None:
    names = [c.node for c in nodes]
    if not names or wait_until(lambda: stack.fleet.answer(names), _USUAL_PATIENCE):
        return
    told = stack.fleet.states()
    missing = next((c for c in nodes if told.get(c.node, "*").endswith("*")), nodes[0])
    states = ", ".join(f"{name} is {told.get(name, 'unknown')}" for name in names)
    words = stack.engine.log(missing.name, 15)
    raise StackError(
        f"nodes do not answer: {states}", evidence=words, hint=_hint(stack, missing, words)
    )


def prove(stack: Stack) -> None:
    """See a job run on the nodes that are in service."""
    told = stack.fleet.states()
    able = [n for n in stack.nodes if told.get(n, "").startswith(("idle", "mixed", "alloc"))]
    if able:
        stack.fleet.canary(able)
        stack.say(f"jobs run on {', '.join(able)}")
    else:
        stack.say("no node is in service, so no job of ours was run")
