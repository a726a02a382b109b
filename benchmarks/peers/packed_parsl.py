"""The same with Parsl's executor for many tasks on this host, by its own Python."""

import os
import sys
import time

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from protocol import serve


@parsl.python_app
def noop(item: int) -> int:
    """Give the item back."""
    return item


def main() -> None:
    # Parsl starts programs of its own by name.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    executor = HighThroughputExecutor(
        address="127.0.0.1",
        max_workers_per_node=2,
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    with parsl.load(Config(executors=[executor], usage_tracking=0)):
        [noop(i).result() for i in range(4)]

        def play(order: str) -> float:
            count = int(order.partition(" ")[2])
            began = time.perf_counter()
            values = [f.result() for f in [noop(i) for i in range(count)]]
            taken = time.perf_counter() - began
            assert values == list(range(count))
            return taken

        serve({"version": parsl.__version__}, play)


if __name__ == "__main__":
    main()
