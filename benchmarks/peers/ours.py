"""Our side of the single-job and submission measurements: `ours.py BACKEND BASE`."""

import os
import sys
import time

from noop import by_reference
from protocol import serve

import slurm
from slurm import Cluster, task


@task
def by_value() -> int:
    """Do nothing; as a function of the script that runs, it travels by value."""
    return 1


def main() -> None:
    cluster = Cluster(sys.argv[1], job_base_dir=sys.argv[2])

    def play(order: str) -> object:
        kind, _, count = order.partition(" ")
        if kind == "submit":
            submit = cluster.submit(by_reference, begin="now+1hour")
            began = time.perf_counter()
            for _ in range(int(count)):
                submit()
            return time.perf_counter() - began
        chosen = by_reference if kind == "reference" else by_value
        asked, began = time.time(), time.perf_counter()
        job = cluster.submit(chosen)()
        submitted = time.perf_counter() - began
        value = job.result(60)
        taken = time.perf_counter() - began
        assert value == 1
        # The scheduler opens the log when it starts the script, and nothing is written to it.
        log = os.path.join(cluster.base, job.run, "logs", f"{job.id}.out")
        started = os.stat(log).st_mtime - asked
        return {"total": taken, "run": taken - started, "submit": submitted}

    serve({"version": slurm.__version__}, play)


if __name__ == "__main__":
    main()
