"""The nodes: the sinfo command of the collector, and its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_UNIT = "\x1f"
#: Ends a row where nobody needs to be sure of it; who asks Slurm gives a random one.
_MARK = "\x1f\x1e"
#: The reason is last, for it may hold anything.
COLUMNS = (
    *("NodeList", "StateComplete", "CPUsState", "CPUsLoad", "Memory", "AllocMem", "FreeMem"),
    *("Gres", "GresUsed", "Version", "Partition", "Timestamp", "Reason"),
)
#: Every state that a node is in one of; what comes on top of it is a flag.
STATES = ("allocated", "down", "error", "future", "idle", "mixed", "unknown")
#: Flags that are counted even when no node has them.
FLAGS = (
    *("drain", "fail", "invalid_reg", "maintenance", "not_responding", "planned"),
    *("powered_down", "powering_down", "powering_up", "reboot_issued", "reserved"),
)
# sinfo's older and shorter words.
_WORDS = {
    "alloc": "allocated",
    "allocated": "allocated",
    "comp": "completing",
    "inval": "invalid_reg",
    "maint": "maintenance",
    "mix": "mixed",
    "no_respond": "not_responding",
    "noresp": "not_responding",
    "plnd": "planned",
    "resv": "reserved",
    "drained": "drain",
    "draining": "drain",
    "reboot": "reboot_requested",
    "power_down": "powering_down",
    "power_up": "powering_up",
}
_MARKS = {
    "*": "not_responding", "~": "powered_down", "#": "powering_up", "!": "power_down_pending",
    "%": "powering_down", "$": "maintenance", "@": "reboot_requested", "^": "reboot_issued",
    "-": "planned",
}  # fmt: skip


@dataclass(frozen=True)
class Gres:
    """A kind of generic resource of a node, such as its GPUs of one type."""

    name: str
    #: "" where none is given.
    type: str
    total: int
    used: int


@dataclass(frozen=True)
class NodeRow:
    """One node."""

    name: str
    #: One of `STATES`.
    state: str
    flags: tuple[str, ...]
    cpus: int
    allocated_cpus: int
    #: Free for jobs: not those of a drained or lost node.
    idle_cpus: int
    #: None where the node has not said it.
    load: float | None
    #: Bytes.
    memory: int
    allocated_memory: int
    free_memory: int | None
    gres: tuple[Gres, ...]
    version: str
    #: Why it is drained or down; "" for no reason.
    reason: str
    #: When that was said, epoch seconds.
    since: int | None
    partitions: tuple[str, ...] = field(default=())

    @property
    def usable(self) -> bool:
        """Whether jobs can start on it."""
        lost = {"drain", "fail", "invalid_reg", "maintenance", "not_responding", "powering_down"}
        return self.state in ("allocated", "idle", "mixed") and lost.isdisjoint(self.flags)


def nodes_command(mark: str = "") -> list[str]:
    """Ask for all nodes, a row for each node and partition; the mark ends each row."""
    # Not the mark alone: where it begins with a digit sinfo would read a width.
    columns = [name + ":" + _UNIT for name in COLUMNS[:-1]] + ["Reason:" + _MARK + mark]
    return ["sinfo", "-a", "-N", "-h", "-O", ",".join(columns)]


def parse_nodes(text: str, mark: str = "") -> tuple[list[NodeRow], int]:
    """The rows of `nodes_command`, and how many could not be read."""
    return read_nodes(line for line in text.split(_MARK + mark + "\n") if line.strip("\n"))


def read_nodes(lines: Iterable[str]) -> tuple[list[NodeRow], int]:
    """The nodes, each once with all its partitions, and how many rows could not be read.

    A row is the values of `COLUMNS`, and there is one for each partition of a node.
    """
    found: dict[str, NodeRow] = {}
    bad = 0
    for line in lines:
        row = _row(line)
        if row is None:
            bad += 1
        elif row.name in found:
            both = found[row.name].partitions + row.partitions
            found[row.name] = replace(row, partitions=both)
        else:
            found[row.name] = row
    return list(found.values()), bad


def _row(line: str) -> NodeRow | None:
    fields = line.split(_UNIT, len(COLUMNS) - 1)
    if len(fields) != len(COLUMNS):
        return None
    name, state, cpus, load, memory, taken, free = fields[:7]
    gres, used, version, partition, since, reason = fields[7:]
    base, flags = parse_state(state)
    try:
        allocated, idle, _, total = (int(n) for n in cpus.split("/"))
        return NodeRow(
            name=name,
            state=base,
            flags=flags,
            cpus=total,
            allocated_cpus=allocated,
            idle_cpus=idle,
            load=float(load) if re.match(r"[0-9.]+\Z", load) else None,
            memory=int(memory) << 20,
            allocated_memory=int(taken) << 20 if taken.isdigit() else 0,
            free_memory=int(free) << 20 if free.isdigit() else None,
            gres=_gres(gres, used),
            version=version,
            reason="" if reason in ("none", "(null)") else reason,
            since=int(since) if since.isdigit() else None,
            partitions=tuple(p for p in (partition.rstrip("*"),) if p),
        )
    except (ValueError, OverflowError):
        return None


def parse_state(text: str) -> tuple[str, tuple[str, ...]]:
    """`mixed+drain` or `idle*` as the state and the flags on top of it."""
    words = text.lower()
    flags = {_MARKS[mark] for mark in re.findall(r"[*~#!%$@^-]", words)}
    parts = [_WORDS.get(w, w) for w in re.sub(r"[*~#!%$@^-]", "", words).split("+") if w]
    base = next((part for part in parts if part in STATES), "unknown")
    flags |= {part for part in parts if part not in STATES}
    return base, tuple(sorted(flags))


_GRES = re.compile(r"([A-Za-z0-9_.-]+)(?::([A-Za-z][A-Za-z0-9_.-]*|\(null\)))?:([0-9]+)([KMG]?)")


def _gres(total: str, used: str) -> tuple[Gres, ...]:
    """`gpu:a100:4(S:0-1),fs:2` and what of it is in use."""
    have, taken = _counts(total), _counts(used)
    return tuple(Gres(*key, count, taken.get(key, 0)) for key, count in have.items())


def _counts(text: str) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    # What stands in brackets names sockets and indexes, with commas of their own.
    for part in re.sub(r"\([^()]*:[^()]*\)", "", text).split(","):
        match = _GRES.match(part.strip())
        if match:
            name, kind, count, scale = match.groups()
            key = (name, "" if kind in (None, "(null)") else kind)
            number = int(count) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[scale]
            found[key] = found.get(key, 0) + number
    return found
