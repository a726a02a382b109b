"""HyperQueue: `with_hyperqueue.py DIRECTORY`, by its own Python.

The package of PyPI has no `hq` program, so server and worker are its own LocalCluster on this host,
without a Slurm job around them. Its tasks are processes and give no values back.
"""

import os
import sys
import time
from importlib.metadata import version
from typing import Any

import asking
import calls
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
from hyperqueue.task.function import PythonEnv
from protocol import resident_kib, serve_orders

NOTHING = {"stdout": None, "stderr": None}


class HyperQueue:
    """One server, with a worker of two cores once it is asked for."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.warm: Any = None

    def up(self) -> Any:
        """A client of a server whose worker has answered."""
        if self.warm is None:
            self.warm = LocalCluster(worker_config=WorkerConfig(cores=2))
            self._client = self.warm.client(python_env=PythonEnv(python_bin=sys.executable))
            self.pack("4")
        return self._client

    def ended(self, job: Job) -> None:
        client = self._client
        client.wait_for_jobs([client.submit(job)])

    def pack(self, count: str) -> dict[str, float]:
        """Processes that do nothing, on a worker that is up."""
        self.up()
        began = time.perf_counter()
        job = Job(self.folder)
        for _ in range(int(count)):
            job.program(["/bin/true"], **NOTHING)
        self.ended(job)
        return {"total": time.perf_counter() - began}

    def graph(self, count: str) -> float:
        """Processes after processes."""
        self.up()
        began = time.perf_counter()
        job = Job(self.folder)

        def submit(*before: Any) -> Any:
            deps = [one for one in before if not isinstance(one, int)]
            return job.program(["/bin/true"], deps=deps, **NOTHING)

        asking.layers(int(count), submit)
        self.ended(job)
        return time.perf_counter() - began

    def hold(self, count: str) -> dict[str, float]:
        """Tasks that wait, for there is no worker; its server lives in this process."""
        with LocalCluster() as cluster:
            client = cluster.client()
            before, began = resident_kib(), time.perf_counter()
            job = Job(self.folder)
            for _ in range(int(count)):
                job.program(["/bin/true"], **NOTHING)
            client.submit(job)
            return {"total": time.perf_counter() - began, "kib": resident_kib() - before}

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""
        client = self.up()

        def submit(how: str, note: str) -> Any:
            job = Job(self.folder)
            env = {"PYTHONPATH": os.environ["PYTHONPATH"], "SLURM_JOB_ID": "none"}
            job.function(calls.die, args=(how, note), env=env)
            return client.submit(job)

        def fails(job: Any) -> bool:
            return not client.wait_for_jobs([job], raise_on_error=False)

        return asking.seconds_to_notice(order, self.folder, submit, fails)


def main() -> None:
    theirs = HyperQueue(sys.argv[1])
    names = ("pack", "graph", "hold", "die")
    serve_orders(version("hyperqueue"), {name: getattr(theirs, name) for name in names})


if __name__ == "__main__":
    main()
