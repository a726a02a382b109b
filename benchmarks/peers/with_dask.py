"""Dask with dask-jobqueue: `with_dask.py DIRECTORY`, by its own Python; workers in Slurm jobs."""

import os
import sys
import time
from importlib.metadata import version
from typing import Any

import asking
import calls
import distributed
from dask_jobqueue import SLURMCluster
from protocol import resident_kib, serve_orders


class Dask:
    """A scheduler in this process, and one Slurm job with two workers once it is asked for."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.warm: Any = None

    def client(self, jobs: int) -> distributed.Client:
        cluster = SLURMCluster(
            cores=2,
            processes=2,
            memory="1GiB",
            walltime="00:30:00",
            interface="lo",
            local_directory=self.folder,
            log_directory=self.folder,
            scheduler_options={"dashboard_address": None, "interface": "lo"},
            job_script_prologue=[f"export PYTHONPATH={os.environ['PYTHONPATH']}"],
        )
        cluster.scale(jobs=jobs)
        return distributed.Client(cluster)

    def up(self) -> distributed.Client:
        """The client whose workers have answered."""
        if self.warm is None:
            self.warm = self.client(1)
            self.warm.wait_for_workers(2, timeout=100)
            self.warm.gather(self.warm.map(calls.noop, range(10), pure=False))
        return self.warm

    def cold(self, _: str) -> float:
        """An allocation from nothing, to the first result."""
        began = time.perf_counter()
        client = self.client(1)
        assert client.submit(calls.noop, 1, pure=False).result() == 1
        taken = time.perf_counter() - began
        close(client)
        return taken

    def pack(self, count: str) -> dict[str, float]:
        """Calls in workers that are up."""
        client, items = self.up(), range(int(count))
        began = time.perf_counter()
        values = client.gather(client.map(calls.noop, items, pure=False))
        taken = time.perf_counter() - began
        assert values == list(items)
        return {"total": taken}

    def graph(self, count: str) -> float:
        """Futures as arguments make the edges."""
        client = self.up()
        began = time.perf_counter()
        last = asking.layers(
            int(count), lambda left, right: client.submit(calls.join, left, right, pure=False)
        )
        assert sum(client.gather(last)) == asking.total_of(int(count))
        return time.perf_counter() - began

    def hold(self, count: str) -> dict[str, float]:
        """Calls that wait, for there is no worker; its scheduler lives in this process."""
        client = self.client(0)
        before, began = resident_kib(), time.perf_counter()
        futures = client.map(calls.noop, range(int(count)), pure=False)
        # The scheduler has them all when it answers for the last one.
        while len(client.cluster.scheduler.tasks) < int(count):
            time.sleep(0.001)
        taken, kib = time.perf_counter() - began, resident_kib() - before
        del futures
        close(client)
        return {"total": taken, "kib": kib}

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""
        client = self.client(1)
        client.wait_for_workers(2, timeout=100)
        taken = asking.seconds_to_notice(
            order,
            self.folder,
            lambda how, note: client.submit(calls.die, how, note, pure=False),
            lambda future: future.exception(),
        )
        close(client)
        return taken


def close(client: distributed.Client) -> None:
    """End client, scheduler and jobs."""
    cluster = client.cluster
    client.close()
    cluster.close()


def main() -> None:
    theirs = Dask(sys.argv[1])
    names = ("cold", "pack", "graph", "hold", "die")
    told = f"{version('dask-jobqueue')}, distributed {distributed.__version__}"
    serve_orders(told, {name: getattr(theirs, name) for name in names})


if __name__ == "__main__":
    main()
