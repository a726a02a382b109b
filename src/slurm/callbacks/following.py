"""Following: what happens to a run, from its packaging to its last job, becomes events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from slurm import locks
from slurm.callbacks import contexts
from slurm.donecalls import done_calls
from slurm.model.states import JobState

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.job import Job
    from slurm.journal import Journal
    from slurm.plan import Plan
    from slurm.rendering import Environment


class Preparing:
    """What `preparing` gives to its block, to put the environment into."""

    environment: Environment | None = None


@contextmanager
def preparing(cluster: Cluster, name: str, kind: str) -> Iterator[Preparing]:
    """Tell that code is made ready, and how that ended."""
    made = Preparing()
    began = time.time()
    facts: dict[str, Any] = {"name": name, "packaging": kind, "cluster": cluster}
    cluster.callbacks.tell(contexts.PackagingBeginContext(time=began, **facts))
    error: BaseException | None = None
    try:
        yield made
    except BaseException as trouble:  # told to callbacks, and raised again
        error = trouble
        raise
    finally:
        now = time.time()
        facts.update(duration=now - began, environment=made.environment, error=error)
        cluster.callbacks.tell(contexts.PackagingEndContext(time=now, **facts))


@contextmanager
def submitting(cluster: Cluster, plan: Plan) -> Iterator[list[Job[Any]]]:
    """Tell that a run is submitted, and how that ended; the block adds the jobs to the list."""
    jobs: list[Job[Any]] = []
    if not cluster.callbacks:
        yield jobs
        return
    began, pack = time.time(), plan.submission.pack
    facts: dict[str, Any] = {
        "name": plan.name,
        "run": plan.submission.relative,
        "options": plan.options,
        "count": len(plan.arguments.blobs),
        "is_array": plan.cut is not None,
        "is_packed": pack is not None,
        "is_workflow": plan.function.workflow,
        "cluster": cluster,
    }
    cluster.callbacks.tell(contexts.SubmitBeginContext(time=began, **facts))
    error: BaseException | None = None
    try:
        yield jobs
    except BaseException as trouble:  # told to callbacks, and raised again
        error = trouble
        raise
    finally:
        now = time.time()
        facts.update(duration=now - began, jobs=tuple(jobs), error=error)
        cluster.callbacks.tell(contexts.SubmitEndContext(time=now, **facts))


def tell_child(cluster: Cluster, journal: Journal, jobs: Sequence[Job[Any]]) -> None:
    """Tell that a workflow has submitted a run."""
    import os

    first = jobs[0]
    cluster.callbacks.tell(
        contexts.ChildSubmittedContext(
            time=time.time(),
            workflow_run=journal.run,
            workflow_job_id=os.environ.get("SLURM_JOB_ID", ""),
            name=first.name,
            run=first.run,
            job_id=first.id.partition("_")[0] if first.part is not None else first.id,
            jobs=tuple(jobs),
            cluster=cluster,
        )
    )


def tell_submitted(job: Job[Any], is_workflow: bool) -> None:
    """Tell of a call that nobody has to be asked about: one that runs in this process."""
    facts: dict[str, Any] = {
        "name": job.name,
        "run": job.run,
        "options": job.options,
        "count": 1,
        "is_array": False,
        "is_packed": False,
        "is_workflow": is_workflow,
        "cluster": job.cluster,
        "time": job.submitted,
    }
    job.cluster.callbacks.tell(contexts.SubmitBeginContext(**facts))
    job.cluster.callbacks.tell(contexts.SubmitEndContext(duration=0.0, jobs=(job,), **facts))


def follow(cluster: Cluster, jobs: Sequence[Job[Any]]) -> None:
    """From now on, tell what becomes of the jobs of one run that are not over yet."""
    if cluster.callbacks.listen("on_status_change", "on_array_progress", "on_completed"):
        open_jobs = [job for job in jobs if not job.settled]
        if open_jobs:
            _Run(cluster, open_jobs)


def tell_completed(job: Job[Any]) -> None:
    """Tell that a job is over."""
    times = job.timings
    job.cluster.callbacks.tell(
        contexts.CompletedContext(
            time=time.time(),
            job=job,
            job_id=job.id,
            name=job.name,
            run=job.run,
            state=job.known_state,
            succeeded=job.succeeded,
            reason=job.reason,
            node=job.node,
            exit_code=job.exit_code,
            submitted=times.submitted,
            started=times.started,
            ended=times.ended,
            cached=job.cached,
        )
    )


class _Run:
    """One run as callbacks hear of it: the last state that was told of each job, and counts."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job[Any]]) -> None:
        self._cluster = cluster
        self._lock = locks.lock("following")
        self._states = {id(job): JobState.PENDING for job in jobs}
        self._first = jobs[0]
        self._is_array = self._first.part is not None
        self._packed = self._first.packed
        self._running = self._good = self._bad = 0
        self._told = (0, 0, 0, 0)
        if self._packed is not None:
            self._packed.listen(done_calls.ours(self._tell_progress))
        look, over = done_calls.ours(self.look), done_calls.ours(self._over)
        for job in jobs:
            job.follower = look
            job.when_settled(partial(over, job))

    def look(self, job: Job[Any]) -> None:
        """Tell if the job is in another state than before; the watcher calls this."""
        state = job.known_state
        with self._lock:
            before = self._states[id(job)]
            if state is before:
                return
            self._states[id(job)] = state
            self._running += (state.phase == "active") - (before.phase == "active")
        self._cluster.callbacks.tell(
            contexts.StatusChangeContext(
                time=time.time(),
                job=job,
                job_id=job.id,
                name=job.name,
                run=job.run,
                state=state,
                previous_state=before,
                reason=job.reason,
                node=job.node,
            )
        )
        self._tell_progress()

    def _over(self, job: Job[Any]) -> None:
        job.follower = None
        with self._lock:
            self._good += job.succeeded
            self._bad += not job.succeeded
        self.look(job)
        tell_completed(job)

    def _tell_progress(self) -> None:
        if not self._is_array:
            return
        packed = self._packed
        now = (self._running, self._good, self._bad, len(packed.order) if packed else 0)
        if now != self._told:
            self._told = now
            hook = contexts.ArrayProgressContext.hook
            self._cluster.callbacks.tell_latest(hook, self._progress, id(self))

    def _progress(self) -> contexts.ArrayProgressContext:
        with self._lock:
            total, good, done = len(self._states), self._good, self._good + self._bad
            running = self._running
        packed = self._packed
        if packed is not None:
            total, good, done = packed.pack.items, packed.good, len(packed.order)
        return contexts.ArrayProgressContext(
            time=time.time(),
            run=self._first.run,
            name=self._first.name,
            job_id=self._first.id.partition("_")[0],
            total=total,
            done=done,
            succeeded=good,
            failed=done - good,
            running=running,
        )
