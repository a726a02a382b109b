"""executorlib: `with_executorlib.py DIRECTORY`, by its own Python; a job per call, or blocks."""

import sys
import time
from importlib.metadata import version
from typing import Any

import asking
import calls
from executorlib import SlurmClusterExecutor
from protocol import serve_orders

#: The template of its job scripts has a line for the partition, whether one is named or not.
RESOURCES = {"cores": 1, "partition": "main"}


class Executorlib:
    """An executor for each order: its cache would answer what it was asked before."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.block: Any = None

    def executor(self) -> SlurmClusterExecutor:
        """A job for each call."""
        folder = f"{self.folder}/cache-{time.time_ns()}"
        return SlurmClusterExecutor(
            cache_directory=folder, resource_dict={**RESOURCES, "run_time_max": 300}
        )

    def workers(self) -> SlurmClusterExecutor:
        """Two workers, a job each, that stay."""
        return SlurmClusterExecutor(
            max_workers=2,
            block_allocation=True,
            hostname_localhost=True,
            resource_dict={**RESOURCES, "run_time_max": 1800, "cwd": self.folder},
        )

    def one(self, _: str) -> float:
        """A job of its own, to its result."""
        return self.map("1")["total"]

    def map(self, count: str) -> dict[str, float]:
        """A job for each item: it has no arrays."""
        items = range(int(count))
        with self.executor() as executor:
            began = time.perf_counter()
            futures = [executor.submit(calls.noop, item) for item in items]
            assert [future.result() for future in futures] == list(items)
            return {"total": time.perf_counter() - began}

    def graph(self, count: str) -> float:
        """Futures as arguments make the edges."""
        with self.executor() as executor:
            began = time.perf_counter()
            last = asking.layers(
                int(count), lambda left, right: executor.submit(calls.join, left, right)
            )
            assert sum(future.result() for future in last) == asking.total_of(int(count))
            return time.perf_counter() - began

    def cold(self, _: str) -> float:
        """A block of workers from nothing, to the first result."""
        began = time.perf_counter()
        with self.workers() as executor:
            assert executor.submit(calls.noop, 1).result() == 1
            return time.perf_counter() - began

    def pack(self, count: str) -> dict[str, float]:
        """Calls in a block whose two workers are up."""
        if self.block is None:
            self.block = self.workers()
            assert [self.block.submit(calls.noop, i).result() for i in range(4)] == [0, 1, 2, 3]
        items = range(int(count))
        began = time.perf_counter()
        futures = [self.block.submit(calls.noop, item) for item in items]
        assert [future.result() for future in futures] == list(items)
        return {"total": time.perf_counter() - began}

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""
        executor = self.executor()
        return asking.seconds_to_notice(
            order,
            self.folder,
            lambda how, note: executor.submit(calls.die, how, note),
            lambda future: asking.failure_of(future.result),
        )


def main() -> None:
    theirs = Executorlib(sys.argv[1])
    names = ("one", "map", "graph", "cold", "pack", "die")
    serve_orders(version("executorlib"), {name: getattr(theirs, name) for name in names})


if __name__ == "__main__":
    main()
