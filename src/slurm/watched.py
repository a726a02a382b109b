"""What the watcher keeps of an open run: what was read of it, and the calls not settled yet."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.api.backend import Wanted
from slurm.model.ids import expand_array_spec
from slurm.silence import Beats

if TYPE_CHECKING:
    from slurm.api.slurm_commands import JobStatus
    from slurm.evidence import Evidence
    from slurm.job import Job
    from slurm.packed_run import PackedRun


@dataclass(slots=True)
class Notes:
    """What the watcher notes about one job; times are those of its own clock."""

    #: How often the scheduler was asked in vain since files could not explain an end, and when.
    asking: int = 0
    asked_at: float = 0.0
    #: When the scheduler first said that the job is over, and that it does not know it.
    over_since: float | None = None
    unknown_since: float | None = None
    #: When it last wrote, began to run or began to be watched; its node's beats are apart.
    heard_at: float = field(default_factory=time.monotonic)
    #: Since when, in seconds since the epoch, a running job's node writes nothing.
    silent_since: float | None = None
    #: Why what lies in the run directory is not believed.
    untrusted: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the scheduler knows of no more that could come of the job."""
        return self.over_since is not None or self.unknown_since is not None

    def learn(self, seen: Evidence, status: JobStatus | None, now: float) -> None:
        """Take in the scheduler's answer; None means that it does not know the job."""
        if status is None:
            self.unknown_since = self.unknown_since or now
            return
        self.unknown_since = None
        seen.status = status
        if seen.state is not None and seen.state.phase == "finished":
            self.over_since = self.over_since or now
            seen.over_count += 1
        else:
            self.over_since = None
            seen.over_count = 0

    def measure(self, seen: Evidence, now: float) -> None:
        """Say in the evidence how long ago things were noted."""
        seen.over_for = None if self.over_since is None else now - self.over_since
        seen.unknown_for = None if self.unknown_since is None else now - self.unknown_since
        seen.exit_for = None if seen.exit_at is None else now - seen.exit_at


def _part(job: Job[Any]) -> int:
    """The part of its run that a call belongs to."""
    return job.part.number if job.part else 0


class WatchedRun:
    """An open run; whoever calls holds the watcher's lock."""

    def __init__(self) -> None:
        #: How far each file was read.
        self.seen: dict[str, int] = {}
        #: Whether all is to be read once more, and whether a backend that pushes has to be told.
        self.anew = False
        self.again = False
        #: When it was read last.
        self.read_at = 0.0
        self.jobs: dict[int, Job[Any]] = {}
        #: Takes in the outcomes of a packed map's items.
        self.packed: PackedRun | None = None
        #: Calls whose part is not submitted yet, by part.
        self.waiting: dict[int, dict[int, Job[Any]]] = {}
        #: Whether a job of it may be followed by another one.
        self.returning = False
        #: Calls that are over for the scheduler, while their record is awaited.
        self.unclear: set[int] = set()
        #: The signs of life of its nodes.
        self.beats = Beats()
        #: When something last happened to a call.
        self.moved_at = time.monotonic()

    def add(self, job: Job[Any]) -> None:
        """Watch a call of the run, too."""
        # What was read of the run so far was not for this job.
        self.anew = self.anew or bool(self.jobs)
        self.jobs[job.index] = job
        self.packed = job.packed
        self.returning = self.returning or job.again is not None
        if job.key is None:
            self.waiting.setdefault(_part(job), {})[job.index] = job

    def drop(self, job: Job[Any]) -> None:
        """Watch a call no more."""
        if self.jobs.get(job.index) is job:
            del self.jobs[job.index]
        self.unclear.discard(job.index)

    def wait_no_more(self, job: Job[Any]) -> None:
        """A call whose part was not submitted is not going to be."""
        jobs = self.waiting.get(_part(job), {})
        if jobs.get(job.index) is job:
            del jobs[job.index]
            if not jobs:
                del self.waiting[_part(job)]

    @property
    def has_parts(self) -> bool:
        """Whether ids of jobs that are not known yet may appear in it."""
        return bool(self.waiting) or self.returning

    @property
    def eager(self) -> bool:
        """Whether it is read at each look, whether an event names it or not."""
        # The items of a packed map end before its jobs do.
        return not self.seen or self.anew or bool(self.unclear) or self.packed is not None

    @property
    def idle(self) -> bool:
        """Whether all that was submitted of a map is over while parts of it still wait.

        The small job that submits them did not: where nodes may not call sbatch, a client does.
        """
        return bool(self.waiting) and len(self.jobs) == sum(map(len, self.waiting.values()))

    def due(self) -> list[str]:
        """The parts all of whose open calls have failed and are to be retried."""
        parts: dict[str, list[bool]] = {}
        for job in self.jobs.values():
            if job.again is not None:
                parts.setdefault(job.again.token, []).append(job.again.due)
        return [token for token, due in parts.items() if all(due)]

    def read_from(self) -> dict[str, int]:
        """How far it was read; from its beginning where that was asked for, which this answers."""
        if self.anew:
            self.seen, self.anew = {}, False
        return self.seen

    def wanted(self) -> Wanted:
        """What a backend that pushes is told about it."""
        again = self.anew or self.again
        self.again = False
        eager = bool(self.unclear) or self.packed is not None
        return Wanted(self.read_from(), again, self.has_parts, eager)

    # ---- what was read --------------------------------------------------------------------------

    def read_records(self, segments: list[bytes]) -> list[rundir.Record]:
        """The records in what was read, and what they say lies elsewhere; holds no lock."""
        found = [record for data in segments for record in rundir.decode_records(data)[0]]
        return found if self.packed is None else self.packed.whole(found)

    def take_in(self, answer: dict[str, Any], records: list[rundir.Record]) -> set[int]:
        """Give what was read to the calls that it is about; returns which they are."""
        # An empty answer is an answer too: the run has been looked at.
        self.seen = answer["seen"] or {"": 0}
        self._take_ids(answer)
        touched = self._take_events(answer["events"]) | self._take_records(records)
        if answer["untrusted"]:
            for job in self.jobs.values():
                job.notes.untrusted = answer["untrusted"]
            touched |= set(self.jobs)
        self.beats.take(answer["beats"] or (), time.monotonic())
        return touched

    def _take_ids(self, answer: dict[str, Any]) -> None:
        for part, job_id in answer["parts"]:
            for job in self.waiting.pop(part, {}).values():
                job.assign(job_id)
                # It may have begun before its id was known here: all is read once more.
                self.seen = {}
        if not self.returning or answer["again"] is None:
            return
        for job in self.jobs.values():
            if job.again is not None and job.again.follow(job, answer["again"]):
                self.seen = {}
                self.unclear.discard(job.index)
                self.moved_at = time.monotonic()

    def never(self, answer: dict[str, Any]) -> list[tuple[Job[Any], str]]:
        """The calls that were cancelled before their part was submitted, each with the reason."""
        found = []
        for spec, reason in answer["cancelled"] if self.waiting else ():
            every = spec == "*"
            indexes = set() if every else set(expand_array_spec(spec))
            jobs = [job for part in self.waiting.values() for job in part.values()]
            found += [(job, reason) for job in jobs if every or job.index in indexes]
        return found

    def _take_events(self, texts: list[bytes]) -> set[int]:
        touched = set()
        for event in (event for data in texts for event in rundir.decode_events(data)[0]):
            job = self._job_of(event.number("index"), event.job)
            if job is not None:
                job.evidence.add(event)
                job.notes.heard_at = self.moved_at = time.monotonic()
                if event.kind == "exit":
                    job.evidence.exit_at = self.moved_at
                touched.add(job.index)
        return touched

    def _take_records(self, records: list[rundir.Record]) -> set[int]:
        touched = set()
        for record in records:
            # Those about items go to the packed map.
            own = record if self.packed is None else self.packed.take(record)
            job = None if own is None else self._job_of(own.index, own.job)
            if own is not None and job is not None:
                job.evidence.records.append(own)
                touched.add(job.index)
        return touched

    def _job_of(self, index: int, job_id: str) -> Job[Any] | None:
        """The open call that a line is about: an index may have had other jobs before."""
        job = self.jobs.get(index)
        return job if job is not None and job.bare.partition("_")[0] == job_id else None
