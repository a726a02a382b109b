"""Counters and histograms that events feed; they only grow while the process lives."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurm.monitor.events import Event, JobEvent, NodeEvent

_HOUR, _DAY = 3600, 86400
#: Upper bounds in seconds: from "at once" to what the longest partitions allow.
BOUNDS = (
    *(1, 5, 15, 60, 300, 900, 1800),
    *(_HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY, 30 * _DAY),
)


@dataclass
class Histogram:
    """How many values fell below each bound, for one set of labels."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(BOUNDS, value)] += times
        self.total += value * times

    @property
    def buckets(self) -> list[tuple[str, int]]:
        """The upper bound of each bucket as text, and how many values are at or below it."""
        below, found = 0, []
        for bound, count in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else f"{float(bound)}", below))
        return found


@dataclass
class Tally:
    """What happened since the collector began, by partition and by how it ended."""

    submitted: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    #: By partition and final state.
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    requeued: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)
    waits: dict[str, Histogram] = field(default_factory=dict)
    run_times: dict[str, Histogram] = field(default_factory=dict)
    #: By the state that nodes came into.
    node_changes: Counter[str] = field(default_factory=Counter)

    def add(self, events: Iterable[Event]) -> None:
        """Count what happened."""
        for event in events:
            if isinstance(event, NodeEvent):
                self.node_changes[event.after.state if event.after else "removed"] += 1
            else:
                self._add_job(event)

    def _add_job(self, event: JobEvent) -> None:
        row = event.row
        part = row.partition
        if event.what == "ended":
            self.ended[part, row.state] += row.tasks
            if event.run_time is not None:
                self.run_times.setdefault(part, Histogram()).add(event.run_time, row.tasks)
            return
        counter = {
            "submitted": self.submitted,
            "started": self.started,
            "requeued": self.requeued,
            "gone": self.gone,
        }[event.what]
        counter[part] += row.tasks
        if event.what == "started" and event.wait is not None:
            self.waits.setdefault(part, Histogram()).add(event.wait, row.tasks)
