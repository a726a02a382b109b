"""BenchmarkCallback: how long packaging, submission, the queue and the run itself took."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from slurm import locks
from slurm.callbacks.base import BaseCallback, flush

if TYPE_CHECKING:
    from slurm.callbacks import contexts


@dataclass(frozen=True)
class JobTiming:
    """The seconds of one job; None where nobody saw it."""

    name: str
    job_id: str
    run: str
    succeeded: bool
    queued: float | None
    ran: float | None


@dataclass(frozen=True)
class TaskTiming:
    """The seconds of all jobs of one task; medians and maxima over its jobs."""

    name: str
    runs: int
    jobs: int
    failed: int
    packaging: float
    submission: float
    queued_median: float | None
    queued_max: float | None
    ran_median: float | None
    ran_max: float | None


class BenchmarkCallback(BaseCallback):
    """Collects times: `print(benchmark)` shows a table, `benchmark.summary()` gives the numbers."""

    travels = False

    def __init__(self) -> None:
        self._lock = locks.lock("benchmark")
        self._packaging: dict[str, float] = {}
        self._submission: dict[str, list[float]] = {}
        self._jobs: list[JobTiming] = []

    def on_packaging_end(self, ctx: contexts.PackagingEndContext) -> None:
        """Add up what packaging took."""
        with self._lock:
            self._packaging[ctx.name] = self._packaging.get(ctx.name, 0.0) + ctx.duration

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """Note what a submission took."""
        if ctx.error is None:
            with self._lock:
                self._submission.setdefault(ctx.name, []).append(ctx.duration)

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """Note the times of a job."""
        if not ctx.cached:
            timing = JobTiming(
                ctx.name, ctx.job_id, ctx.run, ctx.succeeded, ctx.waited, ctx.duration
            )
            with self._lock:
                self._jobs.append(timing)

    @property
    def jobs(self) -> list[JobTiming]:
        """The jobs that are over, in the order in which they ended."""
        flush()
        with self._lock:
            return list(self._jobs)

    def summary(self) -> list[TaskTiming]:
        """One row per task."""
        jobs = self.jobs
        names = dict.fromkeys([*self._submission, *(job.name for job in jobs)])
        return [self._row(name, [job for job in jobs if job.name == name]) for name in names]

    def _row(self, name: str, jobs: list[JobTiming]) -> TaskTiming:
        submissions = self._submission.get(name, [])
        queued = [job.queued for job in jobs if job.queued is not None]
        ran = [job.ran for job in jobs if job.ran is not None]
        return TaskTiming(
            name=name,
            runs=len(submissions),
            jobs=len(jobs),
            failed=sum(not job.succeeded for job in jobs),
            packaging=self._packaging.get(name, 0.0),
            submission=sum(submissions),
            queued_median=median(queued) if queued else None,
            queued_max=max(queued, default=None),
            ran_median=median(ran) if ran else None,
            ran_max=max(ran, default=None),
        )

    def __str__(self) -> str:
        head = ("task", "runs", "jobs", "failed", "packaging", "submission", "queued", "ran")
        rows: list[tuple[str, ...]] = [head]
        for row in self.summary():
            shown = (row.packaging, row.submission, row.queued_median, row.ran_median)
            seconds = tuple("-" if s is None else f"{s:.2f} s" for s in shown)
            rows.append((row.name, str(row.runs), str(row.jobs), str(row.failed), *seconds))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )
