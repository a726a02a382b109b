"""The same with submitit: `with_submitit.py slurm|local DIRECTORY`, by its own Python."""

import sys
import time

import submitit
from protocol import serve


def noop() -> int:
    """Do nothing."""
    return 1


def main() -> None:
    executor = submitit.AutoExecutor(folder=sys.argv[2] + "/%j", cluster=sys.argv[1])
    executor.update_parameters(timeout_min=5)
    later = submitit.AutoExecutor(folder=sys.argv[2] + "/%j", cluster=sys.argv[1])
    if sys.argv[1] == "slurm":
        later.update_parameters(timeout_min=5, slurm_additional_parameters={"begin": "now+1hour"})

    def play(order: str) -> float:
        kind, _, count = order.partition(" ")
        began = time.perf_counter()
        if kind == "submit":
            for _ in range(int(count)):
                later.submit(noop)
            return time.perf_counter() - began
        value = executor.submit(noop).result()
        taken = time.perf_counter() - began
        assert value == 1
        return taken

    serve({"version": submitit.__version__}, play)


if __name__ == "__main__":
    main()
