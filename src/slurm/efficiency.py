"""How well a run used what it asked for: CPU, memory, time and GPUs, and what to ask for next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm import rundir
from slurm.api.slurm_commands import accounted_path
from slurm.model.units import format_duration, format_memory

MIB = 1 << 20
#: What is asked for next time is so much more than what was used at most.
MEMORY_ROOM, TIME_ROOM = 1.2, 1.5
#: An array is measured by this part of its calls; the few above it are named.
MOST = 95


@dataclass(frozen=True)
class GpuUse:
    """One GPU of one job: how busy it was on average, and its memory in bytes."""

    index: str
    busy: float
    memory: int
    total: int


@dataclass(frozen=True)
class CallUse:
    """What one call used; None where nobody knows. Memory is per node, in bytes."""

    index: int
    wall: float | None = None
    cpu: float | None = None
    cpus: int | None = None
    memory: int | None = None
    memory_asked: int | None = None
    gpus: tuple[GpuUse, ...] = ()

    @property
    def cpu_efficiency(self) -> float | None:
        """The part of its CPUs' time that it computed, 0 to 1."""
        if not self.wall or self.cpu is None or not self.cpus:
            return None
        return min(1.0, self.cpu / (self.wall * self.cpus))

    @property
    def memory_efficiency(self) -> float | None:
        """The part of its memory that it used at most."""
        if self.memory is None or not self.memory_asked:
            return None
        return self.memory / self.memory_asked


# ---- out of what was recorded -------------------------------------------------------------------


def calls_of(found: Mapping[str, Any], options: Mapping[str, Any], path: str) -> list[CallUse]:
    """The use of each call, of its newest attempt: what it said itself, else what others saw.

    `found` is the answer of the agent's verb `usage`; `path` the run's directory.
    """
    records: dict[int, dict[int, list[tuple[int, Mapping[str, Any]]]]] = {}
    for _, index, rank, attempt, usage in found["records"]:
        records.setdefault(index, {}).setdefault(attempt, []).append((rank, usage))
    ends: dict[int, rundir.Event] = {}
    for data in found["events"]:
        for event in rundir.decode_events(data)[0]:
            if event.kind == "exit":
                before = ends.get(event.number("index"))
                if before is None or event.number("time") >= before.number("time"):
                    ends[event.number("index")] = event
    accounted = {
        _index(row["job_id"]): row
        for row in found["accounting"]
        if row["work_dir"] == accounted_path(path)
    }
    calls = []
    for index in sorted({*records, *ends}):
        attempts = records.get(index, {})
        said = [usage for _, usage in attempts[max(attempts)]] if attempts else []
        calls.append(_call(index, said, ends.get(index), accounted.get(index), options))
    return calls


def _index(job_id: str) -> int:
    tail = job_id.partition("_")[2]
    return int(tail) if tail.isdigit() else 0


def _call(
    index: int,
    said: Sequence[Mapping[str, Any]],
    end: rundir.Event | None,
    row: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> CallUse:
    """One call: its own word first, then the script's end, then accounting."""
    row = row or {}
    wall = (
        max((u["wall"] for u in said), default=None) or _end(end, "elapsed") or row.get("elapsed")
    )
    cpu = sum(u["cpu"] for u in said) if said else row.get("cpu")
    cpus = row.get("cpus") or sum(u["cpus"] for u in said) or _asked_cpus(options)
    memory = _memory(said) or _end(end, "peak") or row.get("peak") or None
    return CallUse(
        index=index,
        wall=wall,
        cpu=cpu,
        cpus=cpus,
        memory=memory,
        memory_asked=_asked_memory(options, cpus) or _accounted_memory(row),
        gpus=tuple(GpuUse(**gpu) for usage in said for gpu in usage.get("gpus", ())),
    )


def _end(end: rundir.Event | None, name: str) -> int | None:
    return (end.number(name) or None) if end is not None else None


def _memory(said: Sequence[Mapping[str, Any]]) -> int | None:
    """The most on one node: of the control group where there is one, else of all its ranks."""
    by_host: dict[str, list[Mapping[str, Any]]] = {}
    for usage in said:
        by_host.setdefault(usage["host"], []).append(usage)
    found = [
        max((u["group_memory"] for u in all_there if "group_memory" in u), default=0)
        or sum(u["memory"] for u in all_there)
        for all_there in by_host.values()
    ]
    return max(found, default=None)


def _asked_cpus(options: Mapping[str, Any]) -> int | None:
    each, ranks = options.get("cpus_per_task") or 1, options.get("ntasks") or 1
    return int(each) * int(ranks)


def _asked_memory(options: Mapping[str, Any], cpus: int | None) -> int | None:
    """What was asked for per node, in bytes."""
    if isinstance(options.get("mem"), int) and options["mem"]:
        return int(options["mem"]) * MIB
    if isinstance(options.get("mem_per_cpu"), int) and cpus:
        return int(options["mem_per_cpu"]) * MIB * cpus // int(options.get("nodes") or 1)
    return None


def _accounted_memory(row: Mapping[str, Any]) -> int | None:
    asked = row.get("asked") or 0
    return (asked * row["cpus"] if row.get("per_cpu") else asked) or None


# ---- over all calls -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A number over many calls."""

    low: float
    middle: float
    most: float
    high: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """The lowest, the median, the 95th percentile and the highest of what is known."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(known[0], percentile(known, 50), percentile(known, MOST), known[-1])


def percentile(known: Sequence[float], part: float) -> float:
    """The value that `part` per cent of the sorted values do not exceed, between two of them."""
    place = (len(known) - 1) * part / 100
    low = math.floor(place)
    high = min(low + 1, len(known) - 1)
    return known[low] + (known[high] - known[low]) * (place - low)


@dataclass(frozen=True)
class Advice:
    """What to ask for next time, and what that saves."""

    option: str
    asked: str
    suggested: str
    saves: str
    why: str


@dataclass(frozen=True)
class RunUse:
    """How well a run used what it asked for."""

    calls: tuple[CallUse, ...]
    wall: Spread | None
    cpu: Spread | None
    memory: Spread | None
    memory_efficiency: Spread | None
    gpu: Spread | None
    core_hours: float
    advice: tuple[Advice, ...] = field(default=())


def run_use(calls: Sequence[CallUse], options: Mapping[str, Any]) -> RunUse:
    """The use of a run, out of that of its calls."""
    memory = spread(call.memory for call in calls)
    wall = spread(call.wall for call in calls)
    cpu = spread(call.cpu_efficiency for call in calls)
    advice = (_memory_advice(calls, memory), _cpu_advice(calls), _time_advice(wall, options))
    return RunUse(
        calls=tuple(calls),
        wall=wall,
        cpu=cpu,
        memory=memory,
        memory_efficiency=spread(call.memory_efficiency for call in calls),
        gpu=spread(gpu.busy / 100 for call in calls for gpu in call.gpus),
        core_hours=sum((call.wall or 0) * (call.cpus or 0) for call in calls) / 3600,
        advice=tuple(one for one in advice if one is not None),
    )


def _memory_advice(calls: Sequence[CallUse], memory: Spread | None) -> Advice | None:
    asked = next((call.memory_asked for call in calls if call.memory_asked), None)
    if memory is None or asked is None:
        return None
    wanted = rounded_memory(memory.high * MEMORY_ROOM / MIB)
    used = f"at most {format_memory(round(memory.high / MIB))} was used"
    if wanted * MIB > asked:
        if memory.high < asked * 0.9:
            return None
        return Advice("mem", format_memory(asked // MIB), format_memory(wanted), "",
                      f"{used}: it came near to its limit")  # fmt: skip
    if wanted * MIB > asked * 0.8:
        return None
    spared = (asked // MIB - wanted) * len(calls)
    return Advice("mem", format_memory(asked // MIB), format_memory(wanted),
                  f"{format_memory(spared)} for others", used)  # fmt: skip


def rounded_memory(mib: float) -> int:
    """Up to a number that a person would write: in steps of about a tenth."""
    step = max(16, 1 << max(0, math.floor(math.log2(max(1.0, mib))) - 3))
    return math.ceil(mib / step) * step


def _cpu_advice(calls: Sequence[CallUse]) -> Advice | None:
    """Fewer CPUs, where even the busiest call would have had enough with fewer."""
    busy = [(call.cpu / call.wall, call) for call in calls if call.cpu is not None and call.wall]
    asked = next((call.cpus for call in calls if call.cpus), None)
    long_enough = [pair for pair in busy if (pair[1].wall or 0) >= 5]
    if not long_enough or asked is None or asked < 2:
        return None
    most = max(used for used, _ in long_enough)
    wanted = max(1, math.ceil(most * 1.1 - 0.05))
    if wanted >= asked:
        return None
    hours = sum((call.wall or 0) for call in calls) * (asked - wanted) / 3600
    return Advice("cpus", str(asked), str(wanted), f"{hours:.2f} core-hours",
                  f"at most {most:.1f} CPUs were busy")  # fmt: skip


def _time_advice(wall: Spread | None, options: Mapping[str, Any]) -> Advice | None:
    asked = options.get("time")
    if wall is None or not isinstance(asked, int):
        return None
    wanted = max(60, math.ceil(wall.high * TIME_ROOM / 60) * 60)
    if wanted > asked * 0.5:
        return None
    return Advice("time", format_duration(asked), format_duration(wanted),
                  "waiting: short jobs are fitted in earlier",
                  f"the longest took {format_duration(round(wall.high))}")  # fmt: skip
