"""The ceiling: the standard library's own pool of two processes, warm."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor

from protocol import serve


def noop(item: int) -> int:
    """Give the item back."""
    return item


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(noop, range(10)))

        def play(order: str) -> float:
            count = int(order.partition(" ")[2])
            began = time.perf_counter()
            values = list(pool.map(noop, range(count), chunksize=100))
            taken = time.perf_counter() - began
            assert values == list(range(count))
            return taken

        serve({"version": sys.version.split()[0]}, play)


if __name__ == "__main__":
    main()
