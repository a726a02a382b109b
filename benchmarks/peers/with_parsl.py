"""Parsl: `with_parsl.py DIRECTORY`, by its own Python; HighThroughputExecutor in a Slurm job."""

import os
import sys
import time
from typing import Any

import asking
import calls
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider
from protocol import resident_kib, serve_orders

noop = parsl.python_app(calls.noop)
join = parsl.python_app(calls.join)
die = parsl.python_app(calls.die)


class Parsl:
    """One kernel at a time: Parsl keeps it in a global."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.blocks = 0

    def load(self, blocks: int) -> None:
        """Start anew, with so many Slurm jobs of two workers."""
        if self.blocks:
            self.clear()
        provider = SlurmProvider(
            init_blocks=blocks,
            max_blocks=max(1, blocks),
            exclusive=False,
            cores_per_node=2,
            walltime="00:30:00",
            worker_init=f"export PYTHONPATH={os.environ['PYTHONPATH']}",
        )
        executor = HighThroughputExecutor(
            address="127.0.0.1", max_workers_per_node=2, provider=provider
        )
        parsl.load(
            Config(
                executors=[executor],
                usage_tracking=0,
                strategy="none",
                run_dir=self.folder,
                initialize_logging=False,
            )
        )
        self.blocks = blocks

    def clear(self) -> None:
        parsl.dfk().cleanup()
        parsl.clear()
        self.blocks = 0

    def up(self) -> None:
        """Workers that have answered."""
        if not self.blocks:
            self.load(1)
            assert [noop(i).result() for i in range(4)] == [0, 1, 2, 3]

    def cold(self, _: str) -> float:
        """An allocation from nothing, to the first result."""
        if self.blocks:
            self.clear()
        began = time.perf_counter()
        self.load(1)
        assert noop(1).result() == 1
        return time.perf_counter() - began

    def pack(self, count: str) -> dict[str, float]:
        """Calls in workers that are up."""
        self.up()
        items = range(int(count))
        began = time.perf_counter()
        values = [future.result() for future in [noop(item) for item in items]]
        taken = time.perf_counter() - began
        assert values == list(items)
        return {"total": taken}

    def graph(self, count: str) -> float:
        """Futures as arguments make the edges."""
        self.up()
        began = time.perf_counter()
        last = asking.layers(int(count), join)
        assert sum(future.result() for future in last) == asking.total_of(int(count))
        return time.perf_counter() - began

    def hold(self, count: str) -> dict[str, float]:
        """Calls that wait, for there is no worker."""
        self.clear() if self.blocks else None
        self.load(0)
        before, began = resident_kib(), time.perf_counter()
        futures = [noop(item) for item in range(int(count))]
        taken, kib = time.perf_counter() - began, resident_kib() - before
        del futures
        self.clear()
        return {"total": taken, "kib": kib}

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""
        self.load(1)
        return asking.seconds_to_notice(order, self.folder, die, lambda future: future.exception())


def main() -> None:
    # Parsl starts programs of its own by name.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    theirs = Parsl(sys.argv[1])
    names = ("cold", "pack", "graph", "hold", "die")
    orders: Any = {name: getattr(theirs, name) for name in names}
    serve_orders(parsl.__version__, orders)


if __name__ == "__main__":
    main()
