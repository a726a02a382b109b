"""The same with executorlib's block allocation on this host, by its own Python."""

import time
from importlib.metadata import version

from executorlib import SingleNodeExecutor
from protocol import serve


def noop(item: int) -> int:
    """Give the item back."""
    return item


def main() -> None:
    with SingleNodeExecutor(max_workers=2, block_allocation=True) as executor:
        [executor.submit(noop, i).result() for i in range(4)]

        def play(order: str) -> float:
            count = int(order.partition(" ")[2])
            began = time.perf_counter()
            values = [f.result() for f in [executor.submit(noop, i) for i in range(count)]]
            taken = time.perf_counter() - began
            assert values == list(range(count))
            return taken

        serve({"version": version("executorlib")}, play)


if __name__ == "__main__":
    main()
