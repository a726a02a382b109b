"""What was seen so far: when jobs ran where, how long they waited, and how full the cluster was."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from slurm.api.slurm_rows import Question, sacct
from slurm.model.states import parse_state
from slurm.monitor.events import Event, JobEvent
from slurm.monitor.queue import JobRow
from slurm.monitor.snapshot import Snapshot

#: So much is kept of each kind; the oldest goes first.
MOST = 10_000
#: What accounting is asked for once, so that the first page already shows the last hours.
HOURS = 6
_FIELDS = (
    "JobID",
    "User",
    "Partition",
    "NodeList",
    "State",
    "Eligible",
    "Start",
    "End",
    "AllocCPUS",
    "JobName",
)


class Span(NamedTuple):
    """A time that a job had nodes; `end` is None while it has them."""

    job_id: str
    name: str
    user: str
    partition: str
    nodes: str
    start: int
    end: int | None
    state: str
    cpus: int


class Wait(NamedTuple):
    """How long a job waited that started at a time."""

    at: int
    seconds: int
    partition: str


class Point(NamedTuple):
    """How full the cluster was at one moment."""

    at: float
    cpus: int
    used_cpus: int
    memory: int
    used_memory: int
    gpus: int
    used_gpus: int
    running: int
    pending: int


def past_jobs(now: float, mark: str = "") -> Question[tuple[list[Span], list[Wait]]]:
    """Ask accounting for the jobs of the last hours that have started."""
    since = f"uts{int(now) - HOURS * 3600}"
    # Only what ran: a queue of tens of thousands of waiting jobs is not asked for.
    states = "--state=CA,CD,DL,F,NF,OOM,PR,TO"
    options = ["-a", "-X", states, "--starttime", since, "--endtime", "now"]
    return sacct(_FIELDS, options, _past, mark)


def _past(rows: list[list[str]]) -> tuple[list[Span], list[Wait]]:
    spans, waits = [], []
    for row in rows:
        job, user, partition, nodes, state, eligible, start, end, cpus, name = row
        # What runs is in the queue; a row without an end may be of a job that nobody has any more.
        if not start.isdigit() or not end.isdigit():
            continue
        begun = int(start)
        known = parse_state(state.partition(" ")[0]).value
        count = int(cpus) if cpus.isdigit() else 0
        spans.append(Span(job, name, user, partition, nodes, begun, int(end), known, count))
        if eligible.isdigit() and begun >= int(eligible):
            waits.append(Wait(begun, begun - int(eligible), partition))
    return spans, waits


class History:
    """Listens to a collector; what it keeps is bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[tuple[str, int], Span] = {}
        self._waits: deque[Wait] = deque(maxlen=MOST)
        self._points: deque[Point] = deque(maxlen=MOST)
        self._ended: dict[str, Counter[str]] = {}

    def add_past(self, spans: Sequence[Span], waits: Sequence[Wait]) -> None:
        """What accounting tells of the time before; what was seen since counts more."""
        with self._lock:
            seen = self._spans
            newest = sorted(spans, key=lambda span: span.start)[-MOST:]
            self._spans = {(span.job_id, span.start): span for span in newest} | seen
            both = sorted({*waits, *self._waits})
            self._waits = deque(both, maxlen=MOST)

    def heard(self, snapshot: Snapshot, events: Sequence[Event]) -> None:
        """Take in one more snapshot."""
        now = int(snapshot.controller.now or snapshot.taken)
        with self._lock:
            for row in snapshot.rows.values():
                if row.start is not None:
                    self._spans[row.job_id, row.start] = _span(row)
            for event in events:
                if isinstance(event, JobEvent):
                    self._event(event, now)
            for key in list(islice(self._spans, max(0, len(self._spans) - 2 * MOST))):
                del self._spans[key]
            self._points.append(_point(snapshot, now))
            present = {row.base for row in snapshot.rows.values()}
            self._ended = {base: n for base, n in self._ended.items() if base in present}

    def _event(self, event: JobEvent, now: int) -> None:
        row = event.row
        if event.what == "started" and row.start is not None and event.wait is not None:
            self._waits.append(Wait(row.start, event.wait, row.partition))
        if event.what in ("ended", "gone") and row.job_id != row.base:
            self._ended.setdefault(row.base, Counter())[row.state] += row.tasks
        if event.what == "gone" and row.start is not None:
            self._spans[row.job_id, row.start] = _span(row)._replace(end=now)

    def ended(self, base: str) -> Counter[str]:
        """Of an array that is still there: how many tasks ended how since we look."""
        with self._lock:
            return Counter(self._ended.get(base, {}))

    def spans(self, since: float) -> list[Span]:
        """The times that end after `since`, in the order of their begin."""
        with self._lock:
            found = [span for span in self._spans.values() if span.end is None or span.end >= since]
        return sorted(found, key=lambda span: (span.start, span.job_id))

    def waits(self) -> list[Wait]:
        """What is known of waiting, the oldest first."""
        with self._lock:
            return list(self._waits)

    def points(self) -> list[Point]:
        """How full the cluster was, the oldest first."""
        with self._lock:
            return list(self._points)


def _span(row: JobRow) -> Span:
    assert row.start is not None
    return Span(
        row.job_id,
        row.name,
        row.user,
        row.partition,
        row.node_list,
        row.start,
        row.end,
        row.state,
        row.cpus,
    )


def _point(snapshot: Snapshot, now: float) -> Point:
    nodes = snapshot.nodes
    cards = [gres for node in nodes for gres in node.gres if gres.name == "gpu"]
    tasks = Counter[str]()
    for row in snapshot.rows.values():
        tasks[row.phase] += row.tasks
    return Point(
        now,
        sum(node.cpus for node in nodes),
        sum(node.allocated_cpus for node in nodes),
        sum(node.memory for node in nodes),
        sum(node.allocated_memory for node in nodes),
        sum(card.total for card in cards),
        sum(card.used for card in cards),
        tasks["active"],
        tasks["pending"],
    )
