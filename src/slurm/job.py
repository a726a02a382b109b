"""Job: the future of one call, typed by what the function returns."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from slurm import errors, locks
from slurm.api.backend import JobKey
from slurm.api.retry_rules import Failure
from slurm.api.slurm_commands import JobStatus
from slurm.donecalls import done_calls
from slurm.evidence import Evidence
from slurm.failure import Subject, failure
from slurm.jobview import JobSnapshot, JobView, Timings
from slurm.model.parts import Part
from slurm.model.states import JobState
from slurm.outcome import Verdict
from slurm.results import Results
from slurm.retry import Again, failure_of
from slurm.returned import WAITS, Returned
from slurm.runner.values import loads
from slurm.threads import are_gone, refuse_at_the_end
from slurm.waiters import Waiters, checked_timeout
from slurm.watched import Notes

if TYPE_CHECKING:
    from slurm.batch import Batch
    from slurm.cluster import Cluster
    from slurm.watcher import Watcher

T = TypeVar("T")

__all__ = ["Job", "JobSnapshot", "Timings"]

#: A thread that knows how a job ended has told it long before.
TELLING = 10.0
#: For this many seconds what was read of a run is as good as new: asking each of many jobs whether
#: it is done reads their run once.
RECENT = 0.005


class Job(JobView[T], Generic[T]):
    """The future of one call of a task.

    A `concurrent.futures.Future`, so `wait` and `as_completed` of the standard library work, and
    awaitable. `result()` gives the value, or raises the function's own exception with the job's
    traceback as its cause, or a `JobError` that says what happened to the job.
    """

    #: Where the outcomes of its items come together, for a job of a packed map.
    packed: Any = None
    #: Whether the value was there already: an earlier call with the same code and arguments.
    cached = False
    #: Under which key the value is cached; None where it is not.
    cache_key: str | None = None
    #: Where it waits to be submitted together with other calls.
    kept: Batch | None = None
    #: The name of the call in the journal of the workflow that made it.
    call_name: str | None = None
    #: Where the call stands, if its job may be followed by another one; see `slurm.retry`.
    again: Again | None = None
    #: Who wants to hear of each change of state; it must neither wait nor ask.
    follower: Callable[[Job[Any]], None] | None = None
    #: Whether its outcome is known to a thread that is about to tell it.
    ending = False
    #: Whether somebody ends the future already.
    _claimed = False
    _lock_name = "job"
    #: Held by the thread that makes the value; there from when it is first asked for.
    _turn: threading.RLock | None = None

    def __init__(
        self,
        cluster: Cluster,
        *,
        run: str,
        job_id: str | None,
        name: str,
        options: dict[str, Any],
        submitted: float,
        ranks: int = 1,
        index: int = 0,
        part: Part | None = None,
        dependency: bool = False,
        workflow: bool = False,
    ) -> None:
        super().__init__()
        self._condition = locks.adopt(self._lock_name, self._condition)
        self.cluster = cluster
        self._watcher: Watcher | None = None
        #: Whether it was found again and its scheduler was not asked yet.
        self.found = False
        self._decoded: tuple[Any, BaseException | None] | None = None
        self._verdict: Verdict | None = None
        self._failure: Failure | None = None
        self.dependent = dependency
        self.container: str | None = None
        self.is_workflow = workflow
        self.returned: Returned | None = None
        self._followers: list[Callable[[], None]] = []
        self._twin: Job[Any] | None = None
        self._run = run
        self.name = name
        self.index = index
        self.part = part
        self.options = options
        self.submitted = submitted
        self.key: JobKey | None = None
        if job_id is not None:
            self.assign(job_id)
        self.evidence = Evidence(
            ranks=ranks,
            requeue=bool(options.get("requeue")),
            every_rank=bool(options.get("all_ranks")),
        )
        self.notes = Notes()

    def assign(self, job_id: str) -> None:
        """Take the id that the scheduler gave; of an array the part's, to which ours is added."""
        if self.part is not None:
            bare, _, cluster = job_id.partition(";")
            job_id = f"{bare}_{self.index - self.part.offset}" + (f";{cluster}" if cluster else "")
        self.key = JobKey(job_id, self.run, self.submitted)

    @property
    def carrier(self) -> Job[Any]:
        """The job as the scheduler knows it: that of a packed item works on others, too."""
        return self

    def take_place(self, other: Job[Any]) -> None:
        """Become the job that was submitted for a call which had been kept for later."""
        self._run, self.index, self.part = other.run, other.index, other.part
        self.submitted, self.options, self.key = other.submitted, other.options, other.key
        self.evidence = other.evidence
        self.cached, self.cache_key = other.cached, other.cache_key
        self.again, self.dependent = other.again, other.dependent
        self.kept = None
        self.container = other.container
        if other.cached:
            self.settle(Verdict.VALUE)

    def sent(self) -> None:
        """See to it that the call is submitted, if it was kept to go out together with others."""
        if self.kept is not None:
            self.kept.send()

    def refuse(self, error: Exception) -> None:
        """End a job that could not be submitted: its result raises what was said."""
        if self.kept is None:
            return  # it was, before others of its group were refused
        self.kept = None
        if not self._claim():
            return
        self._verdict, self._decoded = Verdict.FAILED, (None, error)
        self._over()

    @property
    def run(self) -> str:
        """The name of the run, relative to the base directory."""
        self.sent()
        return self._run

    @property
    def watched(self) -> bool:
        """Whether somebody asked for this job in this process."""
        return self._watcher is not None

    @property
    def attended(self) -> bool:
        """Whether it is submitted, and watched in this process; takes no lock."""
        return self.kept is None and self._watcher is not None and not self._watcher.gone

    @property
    def awaited(self) -> bool:
        """Whether `concurrent.futures.wait` or `as_completed` waits for it."""
        return bool(self._installed)

    # What `concurrent.futures` keeps its waiters in: it neither submits a job nor watches it.
    _installed: list[Any]
    if TYPE_CHECKING:
        _waiters: list[Any]  # as `as_completed` wants it of what it takes
    else:

        @property
        def _waiters(self) -> Waiters:
            return Waiters(self, self._installed)

        @_waiters.setter
        def _waiters(self, installed: list[Any]) -> None:
            self._installed = installed

    def __slurm_reference__(self) -> tuple[str, str, int]:
        """How this job stands in another call's arguments: its value is read on the cluster."""
        if not self.run:
            raise errors.UpstreamFailed(f"{self.name} was not submitted") from self._decode()[1]
        return ("job", self.run, self.index)

    # ---- the future -----------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> T:
        """The function's value; raises its exception, or a `JobError`, or `TimeoutError`."""
        self._await(timeout)
        value, error = self._decode()
        if error is not None:
            # A fresh traceback each time: raising the same object again and again would grow it.
            raise error.with_traceback(None)
        return value  # type: ignore[no-any-return]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result()` would raise, or None; of a job that was cancelled it is raised here, too.

        So `concurrent.futures` does it, and `JobCancelled` is one of its `CancelledError`s.
        """
        self._await(timeout)
        if self.cancelled():
            raise self._decode()[1] or errors.JobCancelled(f"{self.name} was cancelled")
        return self._decode()[1]

    def set_result(self, result: T) -> None:
        """Refused: only the cluster says how a job ended."""
        raise self._not_to_be_set("a value")

    def set_exception(self, exception: BaseException | None) -> None:
        """Refused: only the cluster says how a job ended."""
        raise self._not_to_be_set("an exception")

    def _not_to_be_set(self, what: str) -> errors.UsageError:
        return errors.UsageError(
            f"{self!r} cannot be given {what}: only the cluster says how a job ended",
            hint="job.cancel() ends it; a future of your own is concurrent.futures.Future()",
        )

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call this with the job when it is over, in this process; a kept call goes out for it."""
        self.watch()
        super().add_done_callback(fn)

    def cancel(self, *, children: bool = True) -> bool:
        """Ask the scheduler to end the job, also while it runs; True if it was asked.

        The future ends when the scheduler or the job confirms. A result that came first is kept.
        Of a workflow the children are cancelled too, unless `children=False`.
        """
        if self.done():
            return self.cancelled()
        return bool(self.cluster.cancel([self], children=children))

    def done(self) -> bool:
        """Whether the outcome is known; looks at the run directory once."""
        self._look()
        return super().done()

    def running(self) -> bool:
        """Whether the job has begun and not ended."""
        self._look()
        return not super().done() and self.state.phase == "active"

    def wait(self, timeout: float | None = None, poll_interval: float | None = None) -> bool:
        """Wait until the job is over; True if it succeeded.

        The end is noticed without polling: `poll_interval` is for programs that pass one, and has
        no effect.
        """
        try:
            self._await(timeout)
        except TimeoutError:
            return False
        return self._verdict is Verdict.VALUE

    def get_result(self, timeout: float | None = None) -> T:
        """The same as `result()`."""
        return self.result(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        """Await the value. A cancelled or timed-out waiter never cancels the job."""
        import asyncio  # slow to import, and needed only where a loop runs already

        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not over.done():
                over.set_result(None)

        def done() -> None:
            # A closed loop has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        self.watch()
        call = done_calls.ours(done)
        with self.cluster._waiting():
            self.when_settled(call)
            try:
                yield from over.__await__()
            finally:
                self._forget_follower(call)
        return self.result()

    def _await(self, timeout: float | None) -> None:
        seconds = checked_timeout(timeout)
        are_gone()
        if super().done():
            return
        refuse_at_the_end(f"{self.name} was waited for")
        self.watch()
        with self.cluster._waiting():
            if self._is_over_within(seconds):
                return
            # The files may tell more than was read of them so far. Over a network such a question
            # may take minutes, and what there is to tell comes by itself.
            if seconds == 0 or not self.cluster.backend.pushes:
                with contextlib.suppress(errors.SlurmError, OSError):
                    self._look()
        if not super().done():
            locks.refuse_held("a message was composed")
            raise TimeoutError(
                f"{self.name} (job {self.id}) is {self.known_state.value} after {timeout} s; "
                "it goes on, and result() can be called again"
            )

    def _is_over_within(self, timeout: float | None) -> bool:
        with self._condition:
            return self._condition.wait_for(super().done, timeout)

    # ---- how it becomes settled -----------------------------------------------------------------

    def watch(self) -> None:
        """See to it that a watcher of this process knows the job; after a fork it is a new one."""
        if self.attended or super().done():
            return
        self.sent()
        watcher = self.cluster._watcher
        if self._watcher is not None:  # what threads of the parent had begun ends here
            self._watcher = None
            self.returned, self.ending, self._claimed = None, False, False
        if self._twin is None:
            watcher.add(self)
        else:
            self._twin.watch()
        self._watcher = watcher  # last: who is interrupted before it has to do all of it again

    def _look(self) -> None:
        are_gone()
        if not super().done():
            refuse_at_the_end(f"{self.name} was asked about")
            self.watch()
            self.cluster._watcher.refresh_run(self.run, RECENT)
            if self.found and self.evidence.status is None and not super().done():
                self.found = False
                self.cluster._watcher.poll_now()
            self._hear_out()
            if self.returned is not None:
                self.returned.look()

    def _hear_out(self) -> None:
        """Wait for a thread that knows the outcome and is about to tell it; it waits for nobody."""
        if self.ending:
            with self._condition:
                self._condition.wait_for(lambda: not self.ending or self.settled, TELLING)

    def start_over(self, job_id: str) -> None:
        """Become the next attempt: another job of the same call."""
        self.assign(job_id)
        seen = self.evidence
        self.evidence = Evidence(seen.ranks, seen.requeue, seen.every_rank)
        self.notes = Notes(untrusted=self.notes.untrusted)

    def give_up(self, reason: str = "") -> None:
        """End a job that was never submitted, as cancelled."""
        self.kept = None
        if not self.settled:
            self.evidence.status = JobStatus(
                "", "CANCELLED", reason, "", None, None, None, None, None, 0, "", self.name
            )
            self.cluster._watcher.forget(self)
            self.settle(Verdict.FAILED)

    def settle(self, verdict: Verdict) -> None:
        """End the future; the first call counts."""
        waits = self._waits() if verdict is Verdict.VALUE else None
        if waits is not None:
            self.returned = Returned(self, waits)
            with self._condition:
                self.ending = False
                self._condition.notify_all()
            self.returned.follow()
            return
        if not self._claim():
            return
        if verdict is not Verdict.VALUE:
            unread = self.notes.untrusted if verdict is Verdict.UNTRUSTED else None
            self._failure = failure_of(self.evidence, unread)
        self._verdict = verdict
        self._end(verdict)

    def _waits(self) -> dict[str, str] | None:
        """The calls whose values belong into this one's: a workflow may return jobs."""
        record = self.evidence.value()
        return None if record is None else record.header.get(WAITS)

    def finish(self, succeeded: bool) -> None:
        """End the future of a workflow when the jobs that it returned are over."""
        if self._claim():
            self._verdict = Verdict.VALUE if succeeded else Verdict.RAISED
            self._over()

    def follow(self, twin: Job[Any]) -> None:
        """Be settled with another object of the same call, which is watched already."""
        self.evidence, self.again = twin.evidence, twin.again
        self._twin = twin
        twin.when_settled(self._settle_like_twin)

    def _settle_like_twin(self) -> None:
        twin = self._twin
        assert twin is not None and twin._verdict is not None
        if not self._claim():
            return
        self.key, self._verdict, self.returned = twin.key, twin._verdict, twin.returned
        self.evidence, self.options, self._failure = twin.evidence, twin.options, twin._failure
        if self.returned is None:
            self._end(self._verdict)
        else:
            self._over()

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call this when the job is settled, at once if it is; it must neither wait nor ask."""
        with self._condition:
            if not super().done():
                self._followers.append(call)
                return
        call()

    def _forget_follower(self, call: Callable[[], None]) -> None:
        with self._condition, contextlib.suppress(ValueError):
            self._followers.remove(call)

    def _end(self, verdict: Verdict) -> None:
        if verdict is Verdict.FAILED and self.evidence.state is JobState.CANCELLED:
            try:
                error: Exception = failure(verdict, self.evidence, self._subject())
            except (errors.SlurmError, OSError) as trouble:  # the cluster does not say where it is
                error = trouble
            self._decoded = (None, error)
            self._over(cancelled=isinstance(error, errors.JobCancelled))
        else:
            self._over()  # the value is decoded when it is asked for

    def _claim(self) -> bool:
        """Whether it is the caller who ends the future: only the first one does."""
        with self._condition:
            first, self._claimed = not self._claimed, True
        return first

    def _over(self, *, cancelled: bool = False) -> None:
        """End the future: wake who waits, call back, and tell those that follow it."""
        locks.refuse_held("the end of a job was told")
        with done_calls.telling():
            if cancelled:
                with self._condition:
                    self._state = "CANCELLED_AND_NOTIFIED"
                    for waiter in self._waiters:
                        waiter.add_cancelled(self)
                    self._condition.notify_all()
                self._invoke_callbacks()
            else:
                super().set_result(None)  # type: ignore[arg-type]
            with self._condition:
                calls, self._followers = self._followers, []
            for call in calls:
                call()

    def outcome(self) -> tuple[Any, BaseException | None]:
        """The value and the error of a settled job, one of them None; nothing is raised."""
        return self._decode()

    def _decode(self) -> tuple[Any, BaseException | None]:
        """The value or the error, made of the evidence once, in the thread that asks for it."""
        if self._twin is not None and self._decoded is None:
            return self._twin._decode()
        if self._decoded is None:
            refuse_at_the_end(f"the value of {self.name} was asked for")
            with self._turn or self.__dict__.setdefault("_turn", locks.rlock("value.turn")):
                if self._decoded is None:
                    self._decoded = self._made()
                    self.evidence.records.clear()
        return self._decoded

    def _made(self) -> tuple[Any, BaseException | None]:
        """The value or the error; unpickling runs the user's own code."""
        locks.refuse_held("a value was unpickled")
        assert self._verdict is not None
        error = self.returned.error() if self.returned is not None else None
        if error is not None:
            return None, error
        subject = self._subject(log=self._verdict is not Verdict.VALUE)
        decode = loads if self.returned is None else self.returned.loads
        results = Results(self.cluster.backend, self.run, self.evidence, subject, decode)
        return results.outcome(self._verdict, bool(self.options.get("all_ranks")))

    def _subject(self, log: bool = False) -> Subject:
        lines = self._log("err").last_words(3) or self._log("out").last_words(3) if log else []
        path = f"{self.cluster.base}/{self.run}"
        return Subject(
            self.name,
            self.id,
            path,
            self.options,
            lines,
            self.dependent,
            self.notes.untrusted,
            self.container,
        )

    def __repr__(self) -> str:
        state = "?" if self._verdict is None and not self.evidence.status else ""
        told = state or (self.evidence.state.value if self.evidence.state else "")
        if self._verdict is not None:
            told = self.state.value
        job_id = "" if self.key is None else self.key.job_id  # asking for `id` would submit it
        return f"<Job {job_id} {self.name} {told}>".replace(" >", ">").replace(" ?>", ">")

    def _repr_html_(self) -> str:
        """What a notebook shows; as far as this process knows, without looking."""
        from slurm.html import job_html

        return job_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"{self!r} belongs to this process; pass it as a task's argument, or send "
            f"{self.run!r} and use cluster.attach"
        )
