"""One watcher per cluster: it learns how jobs end, from files first and from the scheduler last."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.api.backend import Backend, Wanted
from slurm.errors import ConnectError, SlurmError
from slurm.outcome import Verdict, judge
from slurm.silence import Beats

if TYPE_CHECKING:
    from slurm.job import Job
    from slurm.packed_run import PackedRun

#: How often the events folder is read: quickly after a submission, then less and less.
FASTEST, SLOWEST, UNATTENDED = 0.02, 1.0, 5.0
#: Every open run is read anew this often, whatever the events folder says.
SWEEP = 30.0
#: A look that takes long, at many files or on a slow file system, is followed by a pause of so
#: many times its length: watching never fills the file system's time.
REST = 4.0
#: The scheduler is asked some seconds after a submission, then this often.
FIRST_POLL, POLL = 5.0, 30.0
#: After an end that files do not explain the scheduler is asked as soon as it can know, then
#: ever more slowly.
ASK_AFTER = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
#: Two polls are never closer than this, whatever happens.
POLL_GAP = 0.4
#: So many questions may follow each other quickly; then one comes in so many seconds, however
#: many jobs end without a word.
BURST, REFILL = 5, 2.0


class _Run:
    """An open run: what was read of it, and the calls that are not settled."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.anew = False
        self.again = False  # a backend that pushes has to read from `seen` again
        self.jobs: dict[int, Job[Any]] = {}
        self.packed: PackedRun | None = None  # takes in the outcomes of a packed map's items
        self.waiting: dict[int, list[Job[Any]]] = {}  # by part: not submitted yet
        self.returning = False  # whether a job of it may be followed by another one
        self.unclear: set[int] = set()  # over for the scheduler, while the record is awaited
        self.beats = Beats()


class Watcher:
    """Watches all open jobs of one cluster with two threads, however many jobs there are.

    One thread reads files, the other asks the scheduler, so that a controller that does not answer
    never delays a result that lies on disk. `polls` counts the questions to the scheduler and
    `looks` those to the file system: tests and `diagnose()` can tell what watching costs.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.polls: int = 0
        self.looks = 0
        self.trouble: str | None = None
        self._trouble_since: float | None = None
        self._lock = threading.RLock()  # guards what follows; never held during a round trip
        self._reading = threading.RLock()  # one reader at a time: a record counts once
        self._files = threading.Event()
        self._scheduler = threading.Event()
        self._runs: dict[str, _Run] = {}
        self._events: dict[str, int] | None = None
        self._started = False
        self._waiting = 0
        self._active_at = 0.0
        self._sweep_at = 0.0
        self._look_took = 0.0
        self._poll_at = float("inf")
        self._last_poll = 0.0
        self._failed = False  # some job ended without a value since dependants were asked about
        self._tokens = self._firsts = float(BURST)
        self._last_first = 0.0

    # ---- what clients of the watcher call -------------------------------------------------------

    def start(self) -> None:
        """Remember where the events stand, before the first submission."""
        if self.backend.pushes:
            return  # it remembers by itself
        with self._reading:
            if self._events is None:
                self._events, _ = self.backend.changes(None)

    def add(self, job: Job[Any]) -> None:
        """Watch a job until it is settled."""
        self.start()
        with self._lock:
            run = self._runs.setdefault(job.run, _Run())
            twin = run.jobs.get(job.index)
            if twin is not None and twin is not job:
                job.follow(twin)  # one call, attached twice: one of them is watched
                return
            # What was read of the run so far was not for this job.
            run.anew = run.anew or bool(run.jobs)
            run.jobs[job.index] = job
            run.packed = job.packed
            run.returning = run.returning or job.again is not None
            if job.key is None:
                run.waiting.setdefault(job.part.number if job.part else 0, []).append(job)
            self._active_at = time.monotonic()
            self._poll_at = min(self._poll_at, self._first_poll(self._active_at))
            if not self._started:
                self._started = True
                for loop in (self._watch_files, self._watch_scheduler):
                    threading.Thread(target=loop, name="slurm-watcher", daemon=True).start()
        self._files.set()
        self._scheduler.set()

    def _first_poll(self, now: float) -> float:
        """When a new job is asked about: soon, but not for each that comes while others are open.

        Those are asked about all the time, and one question is for all.
        """
        if len(self._runs) < 2 or self._poll_at <= now + FIRST_POLL:
            return min(self._poll_at, now + FIRST_POLL)
        self._firsts = min(BURST, self._firsts + (now - self._last_first) / (20 * POLL))
        self._last_first = now
        if self._firsts < 1:
            return now + POLL
        self._firsts -= 1
        return now + FIRST_POLL

    @contextmanager
    def attention(self) -> Iterator[None]:
        """While somebody waits for a result, files are read more often."""
        with self._lock:
            self._waiting += 1
        self._files.set()
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def forget(self, job: Job[Any]) -> None:
        """Watch a job no more."""
        with self._lock:
            run = self._runs.get(job.run)
            if run is not None:
                for part, jobs in list(run.waiting.items()):
                    run.waiting[part] = [other for other in jobs if other is not job]
                    if not run.waiting[part]:
                        del run.waiting[part]
            self._drop(job)

    def ask(self, job: Job[Any]) -> None:
        """Ask the scheduler about this job soon, and again until it is settled."""
        with self._lock:
            job.asking = 1
            job.asked_at = time.monotonic()
            self._ask_soon(job)

    def poll_now(self) -> None:
        """Ask the scheduler about every open job now, in the caller's thread."""
        self._poll()

    def packed_run(self, run: str) -> PackedRun | None:
        """Where the outcomes of a packed run come together, while some of its jobs are open."""
        with self._lock:
            found = self._runs.get(run)
            return None if found is None else found.packed

    def refresh_run(self, run: str) -> None:
        """Read a run now, in the caller's thread."""
        self._read(run)

    @property
    def open_jobs(self) -> int:
        """How many jobs are not settled."""
        with self._lock:
            return sum(len(run.jobs) for run in self._runs.values())

    # ---- files ----------------------------------------------------------------------------------

    def _watch_files(self) -> None:
        while True:
            self._files.wait(self._pause())
            self._files.clear()
            try:
                if self.backend.pushes:
                    self._hear()
                else:
                    self._look()
            except Exception as error:  # noqa: BLE001 - the watcher must outlive any surprise
                self.trouble = f"{type(error).__name__}: {error}"
                time.sleep(SLOWEST)

    def _pause(self) -> float | None:
        with self._lock:
            if not self._runs:
                return None
            if self.backend.pushes:
                unclear = any(run.unclear for run in self._runs.values())
                return SLOWEST if unclear else SWEEP
            quiet = time.monotonic() - self._active_at
            rest = min(REST * self._look_took, SWEEP)
            if not self._waiting and quiet > 60:
                return max(UNATTENDED, rest)
            return max(min(max(quiet / 20, FASTEST), SLOWEST), rest)

    def _hear(self) -> None:
        """Take in what a backend tells by itself, and say what is watched now."""
        with self._reading:
            with self._lock:
                wanted = {}
                for name, run in self._runs.items():
                    eager = bool(run.unclear) or run.packed is not None
                    run.seen = {} if run.anew else run.seen
                    again = run.anew or run.again
                    parts = bool(run.waiting) or run.returning
                    wanted[name] = Wanted(run.seen, again, parts, eager)
                    run.anew = run.again = False
                attended = self._waiting > 0
            news = self.backend.follow(wanted, attended, self._files.set)
            self.looks += 1
            for name, answer in news:
                watched = self._runs.get(name)
                if watched is not None:
                    self._take(watched, answer)
            with self._lock:
                for watched in list(self._runs.values()):
                    self._judge_all(watched, watched.unclear)
                self._ask_dependants()

    def _look(self) -> None:
        now = time.monotonic()
        with self._reading:
            self._events, named = self.backend.changes(self._events)
        self.looks += 1
        swept = now >= self._sweep_at
        with self._lock:
            due = {run for run in named if run in self._runs}
            due |= {
                name
                for name, run in self._runs.items()
                # The items of a packed map end before its jobs do.
                if not run.seen or run.anew or run.unclear or run.packed
            }
            if swept:
                self._sweep_at = now + SWEEP
                due |= set(self._runs)
        for name in due:
            self._read(name, beats=swept)
        self._look_took = time.monotonic() - now

    def _read(self, name: str, beats: bool = True) -> None:
        with self._reading:
            run = self._runs.get(name)
            if run is None:
                return
            with self._lock:
                seen, run.anew = ({} if run.anew else run.seen), False
            parts = bool(run.waiting) or run.returning
            answer = self.backend.read_run(name, seen, parts, beats)
            run.again = True
            self._take(run, answer)

    def _take(self, run: _Run, answer: dict[str, Any]) -> None:
        with self._lock:
            # An empty answer is an answer too: the run has been looked at.
            run.seen = answer["seen"] or {"": 0}
            # Only what is new can change a judgement, and what waits for its record.
            self._judge_all(run, self._take_in(run, answer) | run.unclear)
            self._ask_dependants()
            if not run.seen:
                run.again = True
                self._files.set()

    def _judge_all(self, run: _Run, indexes: set[int]) -> None:
        for index in list(indexes):
            if index in run.jobs:
                self._judge(run.jobs[index])

    def _take_in(self, run: _Run, answer: dict[str, Any]) -> set[int]:
        """Give what was read to the jobs it is about; returns which they are."""
        touched: set[int] = set()
        for part, job_id in answer["parts"]:
            for job in run.waiting.pop(part, ()):
                job.assign(job_id)
                # It may have begun before its id was known here: all is read once more.
                run.seen = {}
        if run.returning and answer["again"] is not None:
            for job in run.jobs.values():
                if job.again is not None and job.again.follow(job, answer["again"]):
                    run.seen = {}
                    run.unclear.discard(job.index)
                    self._active_at = time.monotonic()
        for data in answer["events"]:
            for event in rundir.decode_events(data)[0]:
                found = run.jobs.get(event.number("index"))
                if found is not None and found.bare.partition("_")[0] == event.job:
                    found.evidence.add(event)
                    found.heard_at = time.monotonic()
                    if event.kind == "exit":
                        found.evidence.exit_at = time.monotonic()
                    touched.add(found.index)
                    self._active_at = time.monotonic()
        for data in answer["segments"]:
            for record in _own_records(run, data):
                found = run.jobs.get(record.index)
                if found is not None and found.bare.partition("_")[0] == record.job:
                    found.evidence.records.append(record)
                    touched.add(found.index)
        if answer["untrusted"]:
            for job in run.jobs.values():
                job.untrusted = answer["untrusted"]
                touched.add(job.index)
        run.beats.take(answer["beats"] or (), time.monotonic())
        return touched

    # ---- the scheduler --------------------------------------------------------------------------

    def _watch_scheduler(self) -> None:
        while True:
            with self._lock:
                wait = self._poll_at - time.monotonic()
            if wait > 0:
                self._scheduler.wait(None if wait == float("inf") else wait)
                self._scheduler.clear()
                continue
            try:
                self._poll()
            except Exception as error:  # noqa: BLE001 - the watcher must outlive any surprise
                self._note_trouble(error)

    def _poll(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(BURST, self._tokens + (now - self._last_poll) / REFILL)
            self._tokens = max(0.0, self._tokens - 1)
            self._last_poll = now
            jobs = [job for run in self._runs.values() for job in run.jobs.values()]
            self._poll_at = now + POLL if jobs else float("inf")
        if not jobs:
            return
        self.polls += 1
        answer = self.backend.status([job.key for job in jobs if job.key is not None])
        with self._lock:
            self.trouble = self._trouble_since = None
            for job in jobs:
                if job.key is not None:
                    job.learn(answer.get(job.key.bare), time.monotonic())
                    self._judge(job)
            self._ask_dependants()
            for run in self._runs.values():
                run.beats.notice(run.jobs.values(), time.monotonic())
            stuck = [name for name, run in self._runs.items() if run.waiting and self._idle(run)]
            again = [(name, token) for name, run in self._runs.items() for token in _due(run)]
        for name in stuck:
            self.backend.advance(name)
        for name, token in again:
            # The guard of the part does the same; whoever is first, it happens once.
            if not self.backend.retry(name, token):
                with self._lock:
                    self._poll_at = min(self._poll_at, time.monotonic() + REFILL)
        self._files.set()

    def _idle(self, run: _Run) -> bool:
        """Whether all that was submitted of a map is over while parts of it still wait.

        The small job that submits them did not: where nodes may not call sbatch, a client does.
        """
        waiting = sum(map(len, run.waiting.values()))
        return len(run.jobs) == waiting

    def _note_trouble(self, error: Exception) -> None:
        with self._lock:
            now = time.monotonic()
            self.trouble = str(error) if isinstance(error, SlurmError) else repr(error)
            if not isinstance(error, ConnectError):  # the way to the cluster says nothing of Slurm
                self._trouble_since = self._trouble_since or now
            self._poll_at = now + FIRST_POLL
            for job in [job for run in self._runs.values() for job in run.jobs.values()]:
                self._judge(job)

    def _ask_soon(self, job: Job[Any]) -> None:
        wait = ASK_AFTER[min(job.asking - 1, len(ASK_AFTER) - 1)]
        gap = POLL_GAP if self._tokens >= 1 else REFILL
        at = max(time.monotonic() + wait, self._last_poll + gap)
        if at < self._poll_at:
            self._poll_at = at
            self._scheduler.set()

    # ---- judgement ------------------------------------------------------------------------------

    def _judge(self, job: Job[Any]) -> None:
        now = time.monotonic()
        seen = job.evidence
        seen.over_for = None if job.over_since is None else now - job.over_since
        seen.unknown_for = None if job.unknown_since is None else now - job.unknown_since
        seen.exit_for = None if seen.exit_at is None else now - seen.exit_at
        seen.unreachable_for = None if self._trouble_since is None else now - self._trouble_since
        verdict = judge(seen)
        if job.follower is not None:
            job.follower(job)
        run = self._runs.get(job.run)
        if run is not None and (job.over_since or job.unknown_since):
            run.unclear.add(job.index)
        over = verdict.settled or job.over_since or job.unknown_since
        if job.untrusted and not seen.records and over:
            verdict = Verdict.UNTRUSTED
        if verdict.settled and job.again is not None and job.again.is_due(verdict, seen):
            if run is not None:
                run.unclear.add(job.index)
            if not job.again.asked:
                job.again.asked, job.asking = True, 1
                self._ask_soon(job)
            return
        if verdict.settled:
            self._drop(job)
            job.settle(verdict)
            self._failed = self._failed or verdict is not Verdict.VALUE
            return
        fresh = job.asking == 0 or self._last_poll > job.asked_at
        if fresh and (verdict is Verdict.ASK or job.asking):
            # Each answer that does not settle it makes the next question later.
            job.asking += 1
            job.asked_at = now
            self._ask_soon(job)

    def _ask_dependants(self) -> None:
        """A failure may be the end of jobs that wait for it: only the scheduler can say which."""
        if not self._failed:
            return
        self._failed = False
        for run in self._runs.values():
            for job in run.jobs.values():
                if job.dependent and not job.asking:
                    job.asking = 1
                    self._ask_soon(job)

    def _drop(self, job: Job[Any]) -> None:
        run = self._runs.get(job.run)
        if run is not None:
            if run.jobs.get(job.index) is job:
                del run.jobs[job.index]
            run.unclear.discard(job.index)
            if not run.jobs:
                del self._runs[job.run]
        if not self._runs:
            self._poll_at = float("inf")


def _own_records(run: _Run, data: bytes) -> Iterator[rundir.Record]:
    """The records about the jobs themselves; those about items of a packed map go to its own."""
    for record in rundir.decode_records(data)[0]:
        own = record if run.packed is None else run.packed.take(record)
        if own is not None:
            yield own


def _due(run: _Run) -> list[str]:
    """The parts of a run all of whose open calls have failed and are due again."""
    parts: dict[str, list[bool]] = {}
    for job in run.jobs.values():
        if job.again is not None:
            parts.setdefault(job.again.token, []).append(job.again.due)
    return [token for token, due in parts.items() if all(due)]


# ---- one per target -----------------------------------------------------------------------------

_watchers: dict[str, Watcher] = {}
_watchers_lock = threading.Lock()


def watcher_for(backend: Backend) -> Watcher:
    """The watcher of this backend's target; clusters with the same target share it."""
    with _watchers_lock:
        found = _watchers.get(backend.target)
        if found is None:
            found = _watchers[backend.target] = Watcher(backend)
        return found


def _forget_after_fork() -> None:
    """A child has no watcher thread; it makes its own when it needs one."""
    global _watchers, _watchers_lock
    _watchers = {}
    _watchers_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
