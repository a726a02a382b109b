"""The scheduler's decisions, without any effect: what may start next, and what a job waits for."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurm.api.embedded.request import Need
from slurm.api.sbatch_values import Dependency, Edge

# A job that waited this long at the head of the queue for resources is not overtaken any more.
RESERVE_AFTER_S = 60.0


class Verdict(enum.Enum):
    """What a dependency says at this moment."""

    READY = "ready"
    WAIT = "wait"
    NEVER = "never"


@dataclass(frozen=True)
class Facts:
    """What is known about a job, or about all elements of an array, that another job waits for."""

    total: int
    started: int
    ended: int
    failed: int
    last_start: int = 0


@dataclass(frozen=True)
class Decision:
    """A verdict, and when to look again where only time is missing."""

    verdict: Verdict
    look_again: int | None = None


_READY = Decision(Verdict.READY)
_WAIT = Decision(Verdict.WAIT)
_NEVER = Decision(Verdict.NEVER)

# kind -> (verdict when all ended well, verdict when all ended and some badly)
_AT_THE_END = {
    "afterany": (_READY, _READY),
    "afterburstbuffer": (_READY, _READY),
    "afterok": (_READY, _NEVER),
    "aftercorr": (_READY, _NEVER),
    "afternotok": (_NEVER, _READY),
}


def judge_edge(edge: Edge, facts: Facts | None, now: float) -> Decision:
    """What one edge says; facts None means that the job it names does not exist."""
    if facts is None:
        return _NEVER
    if edge.kind == "after":
        if facts.started < facts.total:
            return _WAIT
        due = facts.last_start + edge.delay
        return _READY if due <= now else Decision(Verdict.WAIT, due)
    well, badly = _AT_THE_END[edge.kind]
    if facts.ended < facts.total:
        # One failed element decides for `afterok`, however many still run.
        return _NEVER if facts.failed and badly is _NEVER else _WAIT
    return badly if facts.failed else well


def judge(
    dependency: Dependency, look: Callable[[Edge], Facts | None], first_of_name: bool, now: float
) -> Decision:
    """What a whole dependency says: all of its edges, or any one of them."""
    decisions = [
        (_READY if first_of_name else _WAIT)
        if edge.kind == "singleton"
        else judge_edge(edge, look(edge), now)
        for edge in dependency.edges
    ]
    verdicts = {decision.verdict for decision in decisions}
    decisive, other = Verdict.NEVER, Verdict.READY
    if dependency.any_one:
        decisive, other = other, decisive
    if decisive in verdicts:
        return Decision(decisive)
    if verdicts == {other}:
        return Decision(other)
    times = [decision.look_again for decision in decisions if decision.look_again is not None]
    return Decision(Verdict.WAIT, min(times) if times else None)


@dataclass(frozen=True)
class Place:
    """A job's place in the queue: the lane it waits in and its order there."""

    need: Need
    group: int  # the array it is throttled with, or 0
    order: tuple[int, int]  # lower goes first: (-priority, job id)


class Lanes:
    """The jobs that wait for nothing but resources, grouped by what they need.

    All jobs of a lane are alike, so that one look at each lane's first job is enough: the cost of
    a decision grows with the number of different needs, not with the number of jobs.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[Need, int], list[tuple[tuple[int, int], int]]] = {}
        self._places: dict[int, Place] = {}
        self._blocked: tuple[int, float] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._places

    def add(self, job_id: int, place: Place) -> None:
        """Let a job wait in its lane."""
        self._places[job_id] = place
        lane = self._lanes.setdefault((place.need, place.group), [])
        heapq.heappush(lane, (place.order, job_id))

    def remove(self, job_id: int) -> None:
        """Take a job out, if it waits here."""
        # Its heap entry stays behind and is dropped when it comes to the top.
        self._places.pop(job_id, None)

    def head(self) -> int | None:
        """The job that is first in order, whatever it needs."""
        heads = self._heads(frozenset())
        return min(heads)[1] if heads else None

    def pick(self, free: Need, full: Iterable[int], now: float) -> int | None:
        """The next job to start, or None: the first in order that fits.

        Smaller jobs may pass one that does not fit, for RESERVE_AFTER_S; then nothing passes it.
        `full` names the arrays that have reached their throttle.
        """
        if not self._places or free.cpus <= 0:
            return None
        heads = self._heads(frozenset(full))
        if not heads:
            return None
        _, first = min(heads)
        if self._places[first].need.fits(free):
            self._blocked = None
            return first
        if self._blocked is None or self._blocked[0] != first:
            self._blocked = (first, now)
        if now - self._blocked[1] >= RESERVE_AFTER_S:
            return None
        fitting = [head for head in heads if self._places[head[1]].need.fits(free)]
        return min(fitting)[1] if fitting else None

    def _heads(self, full: frozenset[int]) -> list[tuple[tuple[int, int], int]]:
        heads = []
        for key, lane in list(self._lanes.items()):
            while lane and not self._is_current(lane[0]):
                heapq.heappop(lane)
            if not lane:
                del self._lanes[key]
            elif key[1] not in full:
                heads.append(lane[0])
        return heads

    def _is_current(self, entry: tuple[tuple[int, int], int]) -> bool:
        place = self._places.get(entry[1])
        return place is not None and place.order == entry[0]


def outcome(ending: str, exit_code: int, exit_signal: int, lost: bool, requeue: bool) -> str:
    """The state of a job whose attempt is over; PENDING means that it starts again.

    `ending` is what it was being brought to, "" if it ended by itself; `lost` that it vanished
    without leaving an exit code.
    """
    if ending:
        return "PENDING" if ending == "REQUEUED" else ending
    if lost:
        return "PENDING" if requeue else "NODE_FAIL"
    return "FAILED" if exit_code or exit_signal else "COMPLETED"


# What Slurm gives as the reason of a job in this state.
REASONS = {"FAILED": "NonZeroExitCode", "TIMEOUT": "TimeLimit", "NODE_FAIL": "NodeDown"}
