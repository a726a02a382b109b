"""How a cluster in containers is at this moment, service by service and node by node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from slurm.stack import mend
from slurm.stack.converge import Stack, open_stack
from slurm.stack.join import hosts


@dataclass(frozen=True)
class ServiceStatus:
    """One service: its container's state, and whether it does its work."""

    name: str
    container: str
    state: str
    healthy: bool
    address: str
    image: str


@dataclass(frozen=True)
class StackStatus:
    """How a cluster is: `up` (all services do their work, all nodes answer), `degraded`, `down`.

    `doing` names a step that was begun and not ended: the same command again goes on with it.
    `controller` is the one that has the queue; "" where none answers.
    """

    name: str
    dir: str
    engine: str
    version: str
    state: str
    doing: str
    controller: str
    services: tuple[ServiceStatus, ...]
    nodes: dict[str, str]
    hosts: dict[str, str]
    jobs: dict[str, int]
    enforcement: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


def look(directory: Path) -> StackStatus:
    """Ask the engine, every service and slurmctld."""
    stack = open_stack(directory)
    services = _services(stack)
    running = [s for s in services if s.state == "running"]
    healthy = any(s.name.startswith("slurmctld") and s.healthy for s in services)
    controller = stack.fleet.in_charge() if healthy else ""
    told = stack.fleet.states() if controller else {}
    nodes = {name: told.get(name, "unknown") for name in stack.nodes}
    # A host that has not joined yet is no fault; one that does not answer any more is.
    nodes |= {node.name: told[node.name] for node in stack.plan.joined if node.name in told}
    well = all(s.healthy for s in services) and all(map(_in_service, nodes.values()))
    left = mend.look(stack.fleet).notes(directory) if controller else ()
    return StackStatus(
        name=stack.record.name,
        dir=str(directory),
        engine=stack.record.engine,
        version=stack.record.version,
        state="up" if well else "degraded" if running else "down",
        doing=stack.record.doing,
        controller=controller,
        services=services,
        nodes=nodes,
        hosts=hosts(stack, told) if controller else {},
        jobs=stack.fleet.counts() if controller else {},
        enforcement=stack.plan.enforcement,
        notes=(*stack.plan.notices, *left),
    )


def _services(stack: Stack) -> tuple[ServiceStatus, ...]:
    seen = stack.engine.seen()
    found = []
    for container in stack.containers:
        here = seen.get(container.service)
        state = here.state if here else "missing"
        found.append(
            ServiceStatus(
                container.service,
                container.name,
                state,
                state == "running" and stack.engine.healthy(container),
                stack.plan.addresses[container.service],
                here.image if here else container.image,
            )
        )
    return tuple(found)


def _in_service(state: str) -> bool:
    return state.startswith(("idle", "mixed", "allocated", "completing")) and state[-1:] != "*"
