"""What is done with large values: the same for every library, with numpy and nothing else."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy

MIB = 1 << 20


def make(mib: int) -> Any:
    """An array of that size."""
    return numpy.ones(mib * MIB // 8)


def look(item: int, table: Any) -> dict[str, float]:
    """Read all of a table; what it costs the worker: all that it has, and what only it has."""
    assert table[item % len(table)] == 1 and table.sum() == len(table)
    return {"own": _of("/proc/self/smaps_rollup", "Anonymous"), "pid": os.getpid()}


def measured(do: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What came of it, the seconds, and by how many MiB the peak of this process rose."""
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    before = _of("/proc/self/status", "VmHWM")
    began = time.perf_counter()
    found = do()
    taken = time.perf_counter() - began
    return found, {"total": taken, "peak": _of("/proc/self/status", "VmHWM") - before}


def played(share: Callable[[Any, int], list[Any]], give: Callable[[int], Any], order: str) -> Any:
    """Play `share MIB COUNT` (so many calls read one table) or `give MIB` (a value comes back)."""
    word, size, *rest = order.split()
    if word == "give":
        value, cost = measured(lambda: give(int(size)))
        assert value.sum() == len(value)
        return cost
    table = make(int(size))
    found, cost = measured(lambda: share(table, int(rest[0])))
    return {**cost, "own": max(one["own"] for one in found)}


def _of(path: str, name: str) -> float:
    """A line of /proc in MiB."""
    with open(path) as f:
        return next(int(line.split()[1]) for line in f if line.startswith(name)) / 1024
