"""The difference of two snapshots as events: what happened to jobs and nodes in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurm.monitor.nodes import NodeRow
from slurm.monitor.queue import JobRow
from slurm.monitor.snapshot import Snapshot


@dataclass(frozen=True)
class JobEvent:
    """Something happened to a job: `submitted`, `started`, `ended`, `requeued` or `gone`.

    `gone`: it left the queue, and nobody saw how it ended.
    """

    what: str
    row: JobRow

    @property
    def wait(self) -> int | None:
        """Seconds from when it could start until it did, by the controller's clock alone."""
        begin = self.row.eligible or self.row.submit
        return _between(begin, self.row.start)

    @property
    def run_time(self) -> int | None:
        """Seconds from its start to its end, by the controller's clock alone."""
        return _between(self.row.start, self.row.end)


@dataclass(frozen=True)
class NodeEvent:
    """A node changed its state or flags, came (`before` is None) or went (`after` is None)."""

    node: str
    before: NodeRow | None
    after: NodeRow | None


Event = JobEvent | NodeEvent


def events(before: Snapshot, after: Snapshot) -> list[Event]:
    """What happened between two snapshots; each thing once."""
    return [*_job_events(before, after), *_node_events(before.nodes, after.nodes)]


def _between(begin: int | None, end: int | None) -> int | None:
    # A clock that was set back between the two gives no duration at all.
    return end - begin if begin is not None and end is not None and end >= begin else None


def _job_events(before: Snapshot, after: Snapshot) -> Iterator[JobEvent]:
    # Unchanged rows are the same objects under the same text: only the others are looked at.
    fresh = [row for text, row in after.rows.items() if text not in before.rows]
    old = {row.job_id: row for text, row in before.rows.items() if text not in after.rows}
    if not fresh and not old:
        return
    # Tasks leave the row of their array one by one: what is known is the whole.
    known = {row.base for row in before.rows.values()}
    for row in fresh:
        yield from _one(old.pop(row.job_id, None), row, row.base in known)
    yield from _gone(old, after)


def _one(before: JobRow | None, row: JobRow, known: bool) -> Iterator[JobEvent]:
    was = before.phase if before is not None else "pending" if known else ""
    if not was:
        yield JobEvent("submitted", row)
    attempt = row.restarts if before is None else row.restarts - before.restarts
    if attempt > 0 and was in ("active", "finished"):
        yield JobEvent("requeued", row)
        was = "pending"
    started_before = was in ("active", "finished")
    if row.start is not None and not started_before and row.phase in ("active", "finished"):
        yield JobEvent("started", row)
    if row.phase == "finished" and was != "finished":
        yield JobEvent("ended", row)


def _gone(old: Mapping[str, JobRow], after: Snapshot) -> Iterator[JobEvent]:
    """Jobs that are in no row any more and were not over."""
    if not old:
        return
    ids = {row.job_id for row in after.rows.values()}
    bases = {row.base for row in after.rows.values()}
    for row in old.values():
        # The row of an array's rest changes its text and its id with every task that starts.
        rest = "[" in row.job_id and row.base in bases
        if row.phase != "finished" and row.job_id not in ids and not rest:
            yield JobEvent("gone", row)


def _node_events(before: tuple[NodeRow, ...], after: tuple[NodeRow, ...]) -> Iterator[NodeEvent]:
    old = {node.name: node for node in before}
    for node in after:
        last = old.pop(node.name, None)
        if last is None or (last.state, last.flags) != (node.state, node.flags):
            yield NodeEvent(node.name, last, node)
    for node in old.values():
        yield NodeEvent(node.name, node, None)
