"""What one run of the campaign does, drawn from its seed: a small workload and what breaks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

#: What can break, and how.
HOWS: dict[str, tuple[str, ...]] = {
    "client": ("killed", "terminated", "paused"),
    "runner": ("killed", "terminated", "paused"),
    "slurmstepd": ("killed", "paused"),
    "slurmd": ("killed", "terminated", "paused", "lost"),
    "slurmctld": ("killed", "terminated", "paused"),
    "slurmdbd": ("killed", "terminated", "paused"),
    "mariadbd": ("killed", "paused"),
    "munged": ("killed", "paused"),
    "job": ("requeued",),
    "disk": ("full",),
    "clock": ("forward", "back"),
    "files": ("late", "hung"),
    "network": ("cut",),
    "connection": ("killed",),
}
#: What only a client on the cluster's own machine has, and what only one behind SSH has.
_LOCAL, _SSH = ("files",), ("network", "connection")

#: How one item ends: `flaky` raises the first time, `exit` leaves without a word.
ENDS = ("value", "value", "value", "value", "raise", "exit")
#: Plans of earlier seeds have neither batches nor cached calls: those that are kept stay the same.
SINCE = 3000


@dataclass(frozen=True)
class Call:
    """One submission: a task, an array, a packed map, the calls of a batch, or a workflow with a
    map and a sum. The values of a cached one are asked for once more when all is over."""

    name: str
    kind: str
    ends: tuple[str, ...]
    seconds: float
    retry: int = 0
    cached: bool = False

    @property
    def may_requeue(self) -> bool:
        """Whether Slurm may start it again by itself."""
        return self.retry > 0


@dataclass(frozen=True)
class Fault:
    """Something that breaks `at` so many seconds after the client is there, and for how long."""

    victim: str
    how: str
    at: float
    lasts: float
    node: int

    def __str__(self) -> str:
        return f"{self.victim} {self.how} @{self.at:.1f}s"


@dataclass(frozen=True)
class Plan:
    """One run of the campaign."""

    seed: int
    ssh: bool
    calls: tuple[Call, ...]
    faults: tuple[Fault, ...]

    def fault(self, victim: str) -> Fault | None:
        """What happens to this victim."""
        return next((fault for fault in self.faults if fault.victim == victim), None)

    def __str__(self) -> str:
        calls = " ".join(
            f"{c.kind}[{len(c.ends)}]" + (f"r{c.retry}" if c.retry else "") + "c" * c.cached
            for c in self.calls
        )
        return f"{'ssh' if self.ssh else 'local'} {calls} | {', '.join(map(str, self.faults))}"


def draw(seed: int) -> Plan:
    """The plan of a seed: always the same."""
    chance = random.Random(seed)
    ssh = chance.random() < 0.3
    calls = tuple(_call(chance, f"c{n}") for n in range(chance.choice((1, 2, 2, 3))))
    if seed >= SINCE:
        own = random.Random(f"batches and caches of {seed}")
        calls = tuple(_collected_or_cached(own, call) for call in calls)
    victims = [v for v in HOWS if v not in (_LOCAL if ssh else _SSH)]
    if ssh and chance.random() < 0.5:
        victims = [v for v in victims if v not in _SSH]
        first = [chance.choice(_SSH)]
    else:
        first = []
    chosen = first + chance.sample(victims, chance.choice((1, 1, 2, 3)) - len(first))
    return Plan(seed, ssh, calls, tuple(_fault(chance, victim) for victim in chosen))


def _call(chance: random.Random, name: str) -> Call:
    kind = chance.choice(("task", "task", "array", "packed", "workflow"))
    size = {"task": 1, "array": chance.randint(2, 5), "packed": chance.randint(4, 12)}.get(
        kind, chance.randint(2, 3)
    )
    retry = chance.choice((0, 0, 1))
    ends = tuple(chance.choice(ENDS + (("flaky",) if retry else ())) for _ in range(size))
    seconds = chance.uniform(0.1, 0.8) if kind == "packed" else chance.uniform(0.2, 3)
    return Call(name, kind, ends, round(seconds, 2), retry)


def _collected_or_cached(chance: random.Random, call: Call) -> Call:
    kind = "batch" if call.kind == "array" and chance.random() < 0.4 else call.kind
    return replace(call, kind=kind, cached=kind != "workflow" and chance.random() < 0.4)


def _fault(chance: random.Random, victim: str) -> Fault:
    how = chance.choice(HOWS[victim])
    at, lasts = chance.uniform(0, 4), chance.uniform(0.3, 4)
    return Fault(victim, how, round(at, 2), round(lasts, 2), chance.randrange(3))


@dataclass(frozen=True)
class Expected:
    """What becomes of one item where nothing breaks, and how often it may be executed."""

    outcome: str
    kind: str
    retry: int
    #: Whether its first execution raises: a fault that costs it the retry leaves that.
    flaky: bool = False

    @property
    def may_requeue(self) -> bool:
        """Whether Slurm may start it again by itself."""
        return self.retry > 0 or self.kind == "workflow"


_ENDS = {"value": "value", "flaky": "value", "raise": "ValueError", "exit": "JobFailed"}


def expected(plan: Plan) -> dict[str, Expected]:
    """Every item of a plan by its label."""
    return {label: item for call in plan.calls for label, item in _items(call)}


def _items(call: Call) -> Iterator[tuple[str, Expected]]:
    ends = [_ENDS[end] for end in call.ends]
    if call.kind == "packed":
        ends = ["WorkerDied" if end == "JobFailed" else end for end in ends]
    inner = {"workflow": "array", "batch": "array"}.get(call.kind, call.kind)
    name = f"{call.name}kids" if call.kind == "workflow" else call.name
    for index, end in enumerate(ends):
        flaky = call.ends[index] == "flaky"
        yield f"{name}.{index}", Expected(end, inner, call.retry, flaky)
        if call.cached and end == "value":
            yield f"{name}again{index}.0", Expected("value", "task", 0)
    if call.kind == "workflow":
        failed = next((end for end in ends if end != "value"), None)
        yield f"{call.name}sum.0", Expected("UpstreamFailed" if failed else "value", "task", 0)
        yield f"{call.name}.0", Expected(failed or "value", "workflow", 0)
