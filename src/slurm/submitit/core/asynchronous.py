"""AsyncJobProxy: a job's waiting methods for programs with an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from slurm.submitit.core.jobs import Job

R = TypeVar("R", covariant=True)

#: The first pauses are short, whatever the interval.
FASTEST = 0.02


class AsyncJobProxy(Generic[R]):
    """A job whose methods can be awaited; `poll_interval` is the longest pause between looks."""

    def __init__(self, job: Job[R]) -> None:
        self.job = job

    async def wait(self, poll_interval: float = 1) -> None:
        """Wait until the job is over."""
        import asyncio  # slow to import, and needed only where a loop runs already

        pause = min(FASTEST, poll_interval)
        while not self.job.done():
            await asyncio.sleep(pause)
            pause = min(poll_interval, 1.5 * pause)

    async def result(self, poll_interval: float = 1) -> R:
        """The function's value."""
        await self.wait(poll_interval)
        return self.job.result()

    async def results(self, poll_interval: float = 1) -> list[R]:
        """The values of all tasks."""
        await self.wait(poll_interval)
        return self.job.results()

    def results_as_completed(self, poll_interval: float = 1) -> Iterator[Awaitable[R]]:
        """One awaitable for each task; they give the values in the order of their ends."""
        import asyncio

        tasks = [AsyncJobProxy(self.job.task(n)) for n in range(self.job.num_tasks)]
        waits: list[Any] = [task.result(poll_interval) for task in tasks]
        yield from asyncio.as_completed(waits)
