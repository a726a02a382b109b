"""ArrayJob: the jobs of a map behind one handle."""

from __future__ import annotations

import concurrent.futures
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from slurm import errors
from slurm.job import Job
from slurm.waiters import checked_timeout

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.model.states import JobState

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """How far an array is."""

    total: int
    done: int
    succeeded: int
    failed: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total} done, {self.failed} failed"


class ArrayJob(Sequence[Job[T]]):
    """The jobs of a map, in the order of its items.

    A sequence of `Job`: `array[17].stdout()`, `array[-1]`, `array[:10].cancel()`, `len(array)`.
    It is one Slurm array, or several where the scheduler's limits ask for it.
    """

    def __init__(self, cluster: Cluster, run: str, name: str, jobs: Sequence[Job[T]]) -> None:
        self.cluster = cluster
        self.run = run
        self.name = name
        self._jobs = list(jobs)

    # ---- a sequence -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, index: int) -> Job[T]: ...
    @overload
    def __getitem__(self, index: slice) -> ArrayJob[T]: ...
    def __getitem__(self, index: int | slice) -> Job[T] | ArrayJob[T]:
        if isinstance(index, slice):
            return ArrayJob(self.cluster, self.run, self.name, self._jobs[index])
        return self._jobs[index]

    def __iter__(self) -> Iterator[Job[T]]:
        return iter(self._jobs)

    @property
    def members(self) -> Sequence[Job[Any]]:
        """The jobs as the scheduler knows them; in a packed map many items share one."""
        return self._jobs

    @property
    def awaited(self) -> Sequence[Job[Any]]:
        """The jobs whose ends tell what became of these."""
        return self.members

    def __slurm_reference__(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """How this array stands in another call's arguments: as the list of its values."""
        return ("array", tuple((job.run, job.index) for job in self._jobs))

    # ---- results --------------------------------------------------------------------------------

    def results(
        self,
        timeout: float | None = None,
        *,
        return_exceptions: bool = False,
        order: Literal["items", "completed"] = "items",
    ) -> list[T]:
        """All values; raises the first exception, or puts it in its place."""
        if order not in ("items", "completed"):
            raise errors.OptionError(
                f"order={order!r} is not known", hint="write 'items' or 'completed'"
            )
        timeout = checked_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        values: list[Any] = []
        for job in self._jobs if order == "items" else self.as_completed(timeout):
            # Raises when time is up; what the job itself has raised comes after it.
            job._await(None if deadline is None else max(1e-6, deadline - time.monotonic()))
            try:
                values.append(job.result())
            except Exception as error:  # any, asked for as a value
                if not return_exceptions:
                    raise
                values.append(error)
        return values

    def get_results(self, timeout: float | None = None) -> list[T]:
        """The same as `results()`."""
        return self.results(timeout)

    def as_completed(self, timeout: float | None = None) -> Iterator[Job[T]]:
        """The jobs as they end."""
        seconds = checked_timeout(timeout)
        self.watch()
        with self.cluster._waiting():
            yield from concurrent.futures.as_completed(self._jobs, seconds)  # type: ignore[misc]

    def partial_results(self) -> dict[int, T]:
        """The values that are there now, by position; nothing is waited for."""
        return {i: job.result() for i, job in enumerate(self._jobs) if job.succeeded}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all are over; True if all succeeded."""
        seconds = checked_timeout(timeout)
        self.watch()
        with self.cluster._waiting():
            concurrent.futures.wait(self._jobs, seconds)
        return self.done() and all(job.succeeded for job in self._jobs)

    def __await__(self) -> Generator[Any, None, list[T]]:
        """Await all values. A cancelled waiter never cancels the jobs."""
        values = []
        for job in self._jobs:
            values.append((yield from job.__await__()))
        return values

    # ---- what became of them --------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read each run that holds an open job once."""
        self.watch()
        for run in {job.run for job in self._jobs if not job.settled}:
            self.cluster._watcher.refresh_run(run)
        for job in self._jobs:
            job._hear_out()

    def done(self) -> bool:
        """Whether all are over."""
        self._refresh()
        return all(job.settled for job in self._jobs)

    @property
    def failed(self) -> ArrayJob[T]:
        """Those that are over and have no value."""
        bad = [job for job in self._jobs if job.settled and not job.succeeded]
        return ArrayJob(self.cluster, self.run, self.name, bad)

    @property
    def states(self) -> Counter[JobState]:
        """How many are in each state."""
        return Counter(job.state for job in self._jobs)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        self._refresh()
        done = sum(job.settled for job in self._jobs)
        good = sum(job.succeeded for job in self._jobs)
        return Progress(len(self._jobs), done, good, done - good)

    # ---- requests -------------------------------------------------------------------------------

    def watch(self) -> None:
        """See to it that all are watched; after a fork by a new watcher."""
        for job in self._jobs:
            job.watch()

    def cancel(self) -> int:
        """Ask the scheduler to end all that are not over; how many were asked."""
        return self.cluster.cancel(self._jobs)

    def retry_failed(self, **options: Any) -> ArrayJob[T]:
        """Run those that failed again, with other options: an array of the same length.

        The new array holds the earlier successes in their places.
        """
        from slurm.resubmission import resubmit

        jobs = list(self._jobs)
        # An index means something only within its run, and these jobs may belong to several.
        again: dict[str, list[int]] = {}
        for position, job in enumerate(jobs):
            if job.settled and not job.succeeded:
                again.setdefault(job.run, []).append(position)
        newest = self.run
        for run, positions in again.items():
            fresh = resubmit(self.cluster, run, [jobs[p].index for p in positions], options)
            newest = fresh.run
            for position, job in zip(positions, fresh, strict=True):
                jobs[position] = job
        return ArrayJob(self.cluster, newest, self.name, jobs) if again else self

    def known_states(self) -> Counter[JobState]:
        """How many are in each state as far as this process knows, without looking."""
        return Counter(job.known_state for job in self._jobs)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from slurm.html import array_html

        return array_html(self)

    def __repr__(self) -> str:
        return f"<ArrayJob {self.name} of {len(self)}: {self.run}>"
