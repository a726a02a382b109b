"""PyPI's slurm-sdk 0.4: `with_slurm_sdk.py DIRECTORY [SSH]`, by its own Python.

With the second argument, a JSON object of the ssh backend's own arguments, it goes over ssh.
"""

import json
import sys
import time
from typing import Any

import asking
from other_tasks import die, join, later, noop
from protocol import resident_kib, serve_orders

import slurm  # the other project of this name, in its own environment
from slurm.cluster import Cluster

#: `get_result` alone looks every 5 s; its users can ask for more, so we do.
POLL_S = 0.05
PATIENCE_S = 600


class SlurmSdk:
    """One cluster on this machine's Slurm."""

    def __init__(self, folder: str, ssh: str) -> None:
        self.folder = folder
        where = {"backend_type": "ssh", **json.loads(ssh)} if ssh else {"backend_type": "local"}
        self.cluster = Cluster(job_base_dir=folder, default_packaging="none", **where)
        # Its context manager closes the connection; jobs of before are then out of reach.
        self.cluster.__enter__()

    def one(self, _: str) -> float:
        """A job of its own, to its result."""
        began = time.perf_counter()
        job = noop(1)
        assert self.value(job) == 1
        return time.perf_counter() - began

    def value(self, job: Any) -> Any:
        """Wait often, then read."""
        if not job.wait(timeout=PATIENCE_S, poll_interval=POLL_S):
            raise RuntimeError(f"job {job.id}: {job.get_status()}")
        return job.get_result()

    def submit(self, count: str) -> float:
        """Single calls in a row, not waited for."""
        began = time.perf_counter()
        for item in range(int(count)):
            later(item)
        return time.perf_counter() - began

    def map(self, count: str) -> dict[str, float]:
        """An array with a job for each item."""
        items = list(range(int(count)))
        began = time.perf_counter()
        array = noop.map(items)
        submitted = time.perf_counter() - began
        assert [self.value(job) for job in array] == items
        return {"total": time.perf_counter() - began, "submit": submitted}

    def results(self, count: str) -> float:
        """Read the values of an array that is over."""
        array = noop.map(list(range(int(count))))
        for job in array:
            job.wait(timeout=PATIENCE_S, poll_interval=1)
        began = time.perf_counter()
        assert array.get_results() == list(range(int(count)))
        return time.perf_counter() - began

    def graph(self, count: str) -> float:
        """A graph of jobs."""
        began = time.perf_counter()
        last = asking.layers(int(count), join)
        assert sum(self.value(job) for job in last) == asking.total_of(int(count))
        return time.perf_counter() - began

    def hold(self, count: str) -> dict[str, float]:
        """An array that waits."""
        before, began = resident_kib(), time.perf_counter()
        array = later.map(list(range(int(count))))
        assert len(array) == int(count)
        return {"total": time.perf_counter() - began, "kib": resident_kib() - before}

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""

        def submit(how: str, note: str) -> Any:
            return die.with_options(mem="200M")(how, note)

        def fails(job: Any) -> bool:
            job.wait(timeout=PATIENCE_S, poll_interval=POLL_S)
            return bool(asking.failure_of(job.get_result))

        return asking.seconds_to_notice(order, self.folder, submit, fails)


def main() -> None:
    theirs = SlurmSdk(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    names = ("one", "submit", "map", "results", "graph", "hold", "die")
    serve_orders(slurm.__version__, {name: getattr(theirs, name) for name in names})


if __name__ == "__main__":
    main()
