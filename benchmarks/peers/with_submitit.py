"""submitit: `with_submitit.py DIRECTORY [slurm|local]`, by its own Python."""

import sys
import time
from typing import Any

import asking
import calls
import submitit
from protocol import resident_kib, serve_orders


class Submitit:
    """Its executor, with its own settings but for the number of array jobs at once."""

    def __init__(self, folder: str, cluster: str) -> None:
        self.folder, self.cluster = folder, cluster
        self.executor = self.made(slurm_array_parallelism=10_000)

    def made(self, **settings: object) -> submitit.AutoExecutor:
        executor = submitit.AutoExecutor(folder=self.folder + "/%j", cluster=self.cluster)
        executor.update_parameters(timeout_min=5)
        if self.cluster == "slurm":
            executor.update_parameters(**settings)
        return executor

    def one(self, _: str) -> float:
        """A job of its own, to its result."""
        began = time.perf_counter()
        assert self.executor.submit(calls.noop, 1).result() == 1
        return time.perf_counter() - began

    def submit(self, count: str) -> float:
        """Single calls in a row, not waited for."""
        later = self.made(slurm_additional_parameters={"begin": "now+1hour"})
        began = time.perf_counter()
        for item in range(int(count)):
            later.submit(calls.noop, item)
        return time.perf_counter() - began

    def map(self, count: str) -> dict[str, float]:
        """An array with a job for each item."""
        items = range(int(count))
        began = time.perf_counter()
        jobs = self.executor.map_array(calls.noop, items)
        submitted = time.perf_counter() - began
        assert [job.result() for job in jobs] == list(items)
        return {"total": time.perf_counter() - began, "submit": submitted}

    def hold(self, count: str) -> dict[str, float]:
        """An array that waits."""
        later = self.made(
            slurm_array_parallelism=10_000, slurm_additional_parameters={"begin": "now+1hour"}
        )
        before, began = resident_kib(), time.perf_counter()
        jobs = later.map_array(calls.noop, range(int(count)))
        assert len(jobs) == int(count)
        return {"total": time.perf_counter() - began, "kib": resident_kib() - before}

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""
        executor = self.made(slurm_mem="200M")

        def submit(how: str, note: str) -> submitit.Job[None]:
            return executor.submit(calls.die, how, note)

        return asking.seconds_to_notice(order, self.folder, submit, lambda job: job.exception())


def main() -> None:
    theirs = Submitit(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "slurm")
    names = ("one", "submit", "map", "hold", "die")
    serve_orders(submitit.__version__, {name: getattr(theirs, name) for name in names})


if __name__ == "__main__":
    main()
