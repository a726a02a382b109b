"""The same with submitit: `maps_submitit.py DIRECTORY`, by its own Python."""

import sys
import time

import submitit
from protocol import serve


def noop(item: int) -> int:
    """Give the item back."""
    return item


def main() -> None:
    executor = submitit.AutoExecutor(folder=sys.argv[1] + "/%j", cluster="slurm")
    executor.update_parameters(timeout_min=5, slurm_array_parallelism=1000)

    def play(order: str) -> float:
        count = int(order.partition(" ")[2])
        began = time.perf_counter()
        jobs = executor.map_array(noop, range(count))
        values = [job.result() for job in jobs]
        taken = time.perf_counter() - began
        assert values == list(range(count))
        return taken

    serve({"version": submitit.__version__}, play)


if __name__ == "__main__":
    main()
