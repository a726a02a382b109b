"""One watcher per cluster: it learns how jobs end, from files first and from the scheduler last."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from slurm import locks
from slurm.api.backend import Backend, Looking
from slurm.aside import whole
from slurm.donecalls import done_calls
from slurm.errors import ConnectError, SlurmError
from slurm.outcome import Verdict, judge
from slurm.pace import NEVER, Pace
from slurm.threads import begin
from slurm.watched import WatchedRun

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


class Watcher:
    """Watches all open jobs of one cluster with two threads, however many jobs there are.

    One thread reads files, the other asks the scheduler, so that a controller that does not answer
    never delays a result that lies on disk. `polls` counts the questions to the scheduler and
    `looks` those to the file system: tests and `diagnose()` can tell what watching costs.
    """

    def __init__(self, backend: Looking) -> None:
        self.backend = backend
        self.polls: int = 0
        self.looks = 0
        self.trouble: str | None = None
        self._trouble_since: float | None = None
        #: Whether it belongs to the process that this one was forked from.
        self.gone = False
        #: Guards what follows; never held during a round trip, nor while something is told.
        self._lock = locks.rlock("watcher")
        self._reading = locks.rlock("watcher.reading")  # one reader at a time: a record counts once
        self._files = threading.Event()
        self._scheduler = threading.Event()
        self._runs: dict[str, WatchedRun] = {}
        #: The runs that are read at each look, whether the events name them or not.
        self._eager: set[str] = set()
        self._pace = Pace()
        self._events: dict[str, int] | None = None
        self._threads: dict[str, threading.Thread] = {}
        self._waiting = 0
        self._active_at = 0.0
        self._sweep_at = 0.0
        self._look_at = 0.0  # when files are read next; in the past while they are read
        self._look_took = 0.0
        self._failed = False  # some job ended without a value since dependants were asked about
        # What was decided with the lock held, and is told when it is not: jobs with news for their
        # follower, packed runs with items that ended, jobs that are over.
        self._moved: list[Job[Any]] = []
        self._packs: list[PackedRun] = []
        self._over: list[tuple[Job[Any], Verdict]] = []
        self._never: list[tuple[Job[Any], str]] = []

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
        name, twin = job.run, None
        with self._lock:
            if job.ending or job.settled:
                return
            run = self._runs.setdefault(name, WatchedRun())
            twin = run.jobs.get(job.index)
            if twin is None or twin is job:
                twin = None
                run.add(job)
                self._eager.add(name)
            self._active_at = time.monotonic()
            if self._pace.job_came(self._active_at, alone=len(self._runs) < 2):
                self._scheduler.set()
            for loop in (self._watch_files, self._watch_scheduler):
                self._keep_running(loop)
        if twin is not None:
            job.follow(twin)  # one call, attached twice: one of them is watched
        self._look_soon()

    def _keep_running(self, loop: Callable[[], None]) -> None:
        """See to it that a thread runs this: the one that was begun may never have started."""
        thread = self._threads.get(loop.__name__)
        if thread is None or not thread.is_alive():
            self._threads[loop.__name__] = begin(loop, "slurm-watcher")

    @contextmanager
    def attention(self) -> Iterator[None]:
        """While somebody waits for a result, files are read more often."""
        with self._lock:
            self._waiting += 1
        self._look_soon()
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def _look_soon(self) -> None:
        """See to it that files are read before long: one look serves all who ask meanwhile."""
        if self.backend.pushes or self._look_at - time.monotonic() > FASTEST:
            self._files.set()

    def forget(self, job: Job[Any]) -> None:
        """Watch a job no more."""
        with self._lock:
            run = self._runs.get(job.run)
            if run is not None:
                run.wait_no_more(job)
            self._drop(job)

    def ask(self, job: Job[Any]) -> None:
        """Ask the scheduler about this job soon, and again until it is settled."""
        with self._lock:
            job.notes.asking = 1
            job.notes.asked_at = time.monotonic()
            self._ask_soon(job)

    def poll_now(self) -> None:
        """Ask the scheduler about every open job now, and wait for the answer."""
        whole(self._poll)

    def packed_run(self, run: str) -> PackedRun | None:
        """Where the outcomes of a packed run come together, while some of its jobs are open."""
        with self._lock:
            found = self._runs.get(run)
            return None if found is None else found.packed

    def refresh_run(self, run: str, age: float = 0.0) -> None:
        """Read a run now, and tell what is found; not if it was read within `age` seconds."""
        watched = self._runs.get(run) if age else None
        if watched is None or time.monotonic() - watched.read_at > age:
            whole(partial(self._read, run))

    @property
    def open_jobs(self) -> int:
        """How many jobs are not settled."""
        with self._lock:
            return len(self._open())

    def _open(self) -> list[Job[Any]]:
        return [job for run in self._runs.values() for job in run.jobs.values()]

    def _is_open(self, job: Job[Any]) -> bool:
        run = self._runs.get(job.run)
        return run is not None and run.jobs.get(job.index) is job

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
            pause, now = self._rest(), time.monotonic()
            self._look_at = NEVER if pause is None else now + pause
            return pause

    def _rest(self) -> float | None:
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
        with self._telling(), self._reading:
            with self._lock:
                wanted = {name: run.wanted() for name, run in self._runs.items()}
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
            due = {run for run in named if run in self._runs} | self._eager
            if swept:
                self._sweep_at = now + SWEEP
                due |= set(self._runs)
        for name in due:
            self._read(name, beats=swept)
        self._look_took = time.monotonic() - now

    def _read(self, name: str, beats: bool = True) -> None:
        with self._telling(), self._reading:
            run = self._runs.get(name)
            if run is None:
                return
            with self._lock:
                seen, parts = run.read_from(), run.has_parts
            run.read_at = time.monotonic()
            answer = self.backend.read_run(name, seen, parts, beats)
            run.again = True
            self._take(run, answer)
            with self._lock:
                if run.eager and self._runs.get(name) is run:
                    self._eager.add(name)
                elif self._runs.get(name) is run:
                    self._eager.discard(name)

    def _take(self, run: WatchedRun, answer: dict[str, Any]) -> None:
        records = run.read_records(answer["segments"])  # which may ask for what lies elsewhere
        with self._lock:
            # Only what is new can change a judgement, and what waits for its record.
            self._judge_all(run, run.take_in(answer, records) | run.unclear)
            if run.packed is not None:
                self._packs.append(run.packed)
            self._never += run.never(answer)
            self._active_at = max(self._active_at, run.moved_at)
            self._ask_dependants()
            if not run.seen:
                run.again = True
                self._files.set()

    def _judge_all(self, run: WatchedRun, indexes: set[int]) -> None:
        for index in list(indexes):
            if index in run.jobs:
                self._judge(run.jobs[index])

    # ---- the scheduler --------------------------------------------------------------------------

    def _watch_scheduler(self) -> None:
        while True:
            with self._lock:
                wait = self._pace.next - time.monotonic()
            if wait > 0:
                self._scheduler.wait(None if wait == NEVER else wait)
                self._scheduler.clear()
                continue
            try:
                self._poll()
            except Exception as error:  # noqa: BLE001 - the watcher must outlive any surprise
                self._note_trouble(error)

    def _poll(self) -> None:
        with self._lock:
            jobs = self._open()
            self._pace.asking(time.monotonic(), any_open=bool(jobs))
        if not jobs:
            return
        self.polls += 1
        answer = self.backend.status([job.key for job in jobs if job.key is not None])
        with self._telling(), self._lock:
            self.trouble = self._trouble_since = None
            for job in jobs:
                # One that ended meanwhile may have given its records away: nothing is to judge.
                if job.key is not None and self._is_open(job):
                    job.notes.learn(job.evidence, answer.get(job.key.bare), time.monotonic())
                    self._judge(job)
            self._ask_dependants()
            for run in self._runs.values():
                run.beats.notice(run.jobs.values(), time.monotonic())
            stuck = [name for name, run in self._runs.items() if run.idle]
            again = [(name, token) for name, run in self._runs.items() for token in run.due()]
        self._submit_next(stuck, again)
        self._files.set()

    def _submit_next(self, stuck: list[str], again: list[tuple[str, str]]) -> None:
        """Submit what is due of the runs that this process watches; never for one who only looks.

        The guards of the parts do the same; whoever is first, it happens once.
        """
        if not isinstance(self.backend, Backend):
            return
        for name in stuck:
            self.backend.advance(name)
        for name, token in again:
            if not self.backend.retry(name, token):
                with self._lock:
                    self._pace.not_done(time.monotonic())

    def _note_trouble(self, error: Exception) -> None:
        text = str(error) if isinstance(error, SlurmError) else repr(error)
        with self._telling(), self._lock:
            now = time.monotonic()
            self.trouble = text
            if not isinstance(error, ConnectError):  # the way to the cluster says nothing of Slurm
                self._trouble_since = self._trouble_since or now
            self._pace.no_answer(now)
            for job in self._open():
                self._judge(job)

    def _ask_soon(self, job: Job[Any]) -> None:
        if self._pace.ask_soon(time.monotonic(), job.notes.asking):
            self._scheduler.set()

    # ---- what was decided is told ---------------------------------------------------------------

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell at the end what was decided in the block, when no lock is held any more."""
        try:
            yield
        finally:
            with done_calls.telling():
                self._tell()

    def _tell(self) -> None:
        with self._lock:
            moved, self._moved = self._moved, []
            packs, self._packs = self._packs, []
            over, self._over = self._over, []
            never, self._never = self._never, []
        calls: list[Callable[[], None]] = [partial(_tell_follower, job) for job in moved]
        calls += [packed.tell for packed in packs]
        calls += [partial(job.settle, verdict) for job, verdict in over]
        calls += [partial(job.give_up, reason) for job, reason in never]
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the others have to hear it all the same
                self.trouble = f"{type(error).__name__}: {error}"

    # ---- judgement ------------------------------------------------------------------------------

    def _judge(self, job: Job[Any]) -> None:
        now = time.monotonic()
        seen, notes = job.evidence, job.notes
        notes.measure(seen, now)
        seen.unreachable_for = None if self._trouble_since is None else now - self._trouble_since
        verdict = judge(seen)
        if job.follower is not None:
            self._moved.append(job)
        if notes.is_over:
            self._await_record(job)
        if notes.untrusted and not seen.records and (verdict.settled or notes.is_over):
            verdict = Verdict.UNTRUSTED
        if not verdict.settled:
            self._go_on(job, verdict, now)
        elif job.again is not None and job.again.is_due(verdict, seen):
            self._await_record(job)
            if not job.again.asked:
                job.again.asked, notes.asking = True, 1
                self._ask_soon(job)
        else:
            self._drop(job)
            job.ending = True
            self._over.append((job, verdict))
            self._failed = self._failed or verdict is not Verdict.VALUE

    def _await_record(self, job: Job[Any]) -> None:
        """Read the run of this job all the time: something has to appear there."""
        run = self._runs.get(job.run)
        if run is not None:
            run.unclear.add(job.index)
            self._eager.add(job.run)

    def _go_on(self, job: Job[Any], verdict: Verdict, now: float) -> None:
        notes = job.notes
        fresh = notes.asking == 0 or self._pace.last > notes.asked_at
        if fresh and (verdict is Verdict.ASK or notes.asking):
            # Each answer that does not settle it makes the next question later.
            notes.asking += 1
            notes.asked_at = now
            self._ask_soon(job)

    def _ask_dependants(self) -> None:
        """A failure may be the end of jobs that wait for it: only the scheduler can say which."""
        if not self._failed:
            return
        self._failed = False
        for job in self._open():
            if job.dependent and not job.notes.asking:
                job.notes.asking = 1
                self._ask_soon(job)

    def _drop(self, job: Job[Any]) -> None:
        run = self._runs.get(job.run)
        if run is not None:
            run.drop(job)
            if not run.jobs:
                del self._runs[job.run]
                self._eager.discard(job.run)
        if not self._runs:
            self._pace.nothing_open()


# ---- one per target -----------------------------------------------------------------------------

_watchers: dict[str, Watcher] = {}
_watchers_lock = locks.lock("watchers")


def _tell_follower(job: Job[Any]) -> None:
    follower = job.follower
    if follower is not None:
        follower(job)


def watcher_for(backend: Looking) -> Watcher:
    """The watcher of this backend's target; clusters with the same target share it."""
    with _watchers_lock:
        found = _watchers.get(backend.target)
        if found is None:
            found = _watchers[backend.target] = Watcher(backend)
        return found


def _forget_after_fork() -> None:
    """A child has no watcher thread; it makes its own when it needs one."""
    for watcher in _watchers.values():
        watcher.gone = True
    _watchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
