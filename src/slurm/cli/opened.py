"""A run that a verb looks at: its jobs, with the scheduler asked once about those that are open."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import Common
from slurm.errors import UntrustedRun, UsageError

if TYPE_CHECKING:
    from slurm.array import ArrayJob
    from slurm.cluster import Cluster
    from slurm.job import Job


@dataclass(frozen=True)
class Opened:
    """A run or one job of it; a single call has no array."""

    cluster: Cluster
    array: ArrayJob[Any] | None
    jobs: list[Job[Any]]

    @property
    def run(self) -> str:
        """The run's name."""
        return self.array.run if self.array is not None else self.jobs[0].run

    @property
    def name(self) -> str:
        """The task's name."""
        return self.jobs[0].name

    @property
    def over(self) -> bool:
        """Whether all is over."""
        return all(job.settled for job in self.jobs)

    @property
    def failed(self) -> list[Job[Any]]:
        """The jobs that are over and have no value."""
        return [job for job in self.jobs if job.settled and not job.succeeded]

    @property
    def ended_badly(self) -> list[Job[Any]]:
        """The failed jobs, and those of which only the scheduler says so: they left nothing."""
        return [job for job in self.jobs if _ended_badly(job)]

    @property
    def states(self) -> dict[str, int]:
        """How many jobs are in which state."""
        return dict(Counter(job.known_state.value for job in self.jobs))

    @property
    def state(self) -> str:
        """The state of the whole."""
        from slurm.runlist import ListedRun

        return ListedRun(self.run, self.name, "", "", len(self.jobs), 0.0, self.states).state

    @property
    def exit_code(self) -> int:
        """0 if nothing has failed so far."""
        return TASK_FAILED if self.failed else DONE

    def one(self, verb: str) -> Job[Any]:
        """The only job; refused for an array of several."""
        if len(self.jobs) == 1:
            return self.jobs[0]
        raise UsageError(
            f"{self.run} is an array of {len(self.jobs)} jobs, each with its own",
            hint=f"name one of them: slurm {verb} {self.jobs[0].bare}, or --task 0",
        )

    def of_task(self, index: int | None) -> Opened:
        """The same with one of its calls only."""
        if index is None:
            return self
        chosen = [job for job in self.jobs if job.index == index]
        if not chosen:
            most = len(self.jobs) - 1
            raise UsageError(f"--task {index} is not in {self.run}", hint=f"it has 0 to {most}")
        return Opened(self.cluster, None, chosen)


def _ended_badly(job: Job[Any]) -> bool:
    if job.settled:
        return not job.succeeded
    state = job.known_state
    return state.phase == "finished" and not state.succeeded


def last_lines(job: Job[Any], count: int, stderr: bool = False) -> list[str]:
    """The last lines of a log, beside what else is told of a job: or why they are not read."""
    try:
        return list(job.log_lines(count, stderr=stderr))
    except UntrustedRun as error:
        return [error.message]


def look_at(common: Common, run: str, ask: bool = True) -> Opened:
    """Find a run again for a verb that only looks: nothing is submitted, written or unpickled."""
    return _opened(common.look(run), run, ask)


def open_run(common: Common, run: str, ask: bool = True) -> Opened:
    """Find a run again; the scheduler is asked at most once, and not about what is over."""
    return _opened(common.connect(run), run, ask)


def _opened(cluster: Cluster, run: str, ask: bool) -> Opened:
    from slurm.array import ArrayJob

    found = cluster.attach(run)
    array = found if isinstance(found, ArrayJob) else None
    opened = Opened(cluster, array, list(array) if array is not None else [found])
    if ask and not opened.over:
        cluster._watcher.poll_now()
    return opened
