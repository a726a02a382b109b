"""Slurm SDK: `with_ours.py DIRECTORY [BACKEND]`, by the Python that runs the benchmarks."""

import os
import sys
import time
from typing import Any

import asking
from our_tasks import die, join, noop
from protocol import resident_kib, serve_orders

import slurm
from slurm import Cluster, PackedArray, task

PATIENCE_S = 600


@task
def by_value(item: int) -> int:
    """Give the item back; as a function of the script that runs, it travels by value."""
    return item


class Ours:
    """One cluster, and one executor once it is asked for."""

    def __init__(self, folder: str, backend: str) -> None:
        self.folder = folder
        self.cluster = Cluster(backend, job_base_dir=folder)
        self.pool: Any = None

    def one(self, how: str) -> dict[str, float]:
        """A job of its own, to its result."""
        asked, began = time.time(), time.perf_counter()
        job = self.cluster.submit(by_value if how == "value" else noop)(1)
        submitted = time.perf_counter() - began
        assert job.result(PATIENCE_S) == 1
        taken = time.perf_counter() - began
        # The scheduler opens the log when it starts the script, and nothing is written to it.
        log = os.path.join(self.cluster.base, job.run, "logs", f"{job.id}.out")
        started = os.stat(log).st_mtime - asked
        return {"total": taken, "run": taken - started, "submit": submitted}

    def submit(self, count: str) -> float:
        """Single calls in a row, not waited for."""
        submit = self.cluster.submit(noop, begin="now+1hour")
        began = time.perf_counter()
        for item in range(int(count)):
            submit(item)
        return time.perf_counter() - began

    def map(self, count: str) -> dict[str, Any]:
        """An array with a job for each item."""
        items = range(int(count))
        with self.cluster:
            began = time.perf_counter()
            array = noop.map(items)
            submitted = time.perf_counter() - began
            values = array.results(PATIENCE_S)
            taken = time.perf_counter() - began
        assert values == list(items)
        return {"total": taken, "submit": submitted}

    def pack(self, count: str) -> dict[str, Any]:
        """A packed map, whose one job starts for it."""
        items = range(int(count))
        with self.cluster:
            began = time.perf_counter()
            array = noop.with_options(cpus_per_task=2).map(items, pack=len(items))
            submitted = time.perf_counter()
            array.wait(PATIENCE_S)
            over = time.perf_counter()
            values = array.results()
            ended = time.perf_counter()
        assert values == list(items) and isinstance(array, PackedArray)
        array.members[0].wait(PATIENCE_S)
        folders = ("events", "results", "values", "logs", "beats")
        run = os.path.join(self.cluster.base, array.run)
        return {
            "total": ended - began,
            "submit": submitted - began,
            "read": ended - over,
            "rate": array.rates[0],
            "files": sum(len(os.listdir(os.path.join(run, name))) for name in folders),
        }

    def warm(self, count: str) -> float:
        """Calls in an executor whose two workers are up."""
        if self.pool is None:
            self.pool = self.cluster.executor(
                max_workers=2, min_workers=2, workers_per_job=2, time="30min"
            )
            list(self.pool.map(noop, range(4)))
        items = range(int(count))
        began = time.perf_counter()
        values = list(self.pool.map(noop, items, chunksize=max(1, min(100, len(items) // 20))))
        taken = time.perf_counter() - began
        assert values == list(items)
        return taken

    def cold(self, _: str) -> float:
        """An executor from nothing, to its first result."""
        began = time.perf_counter()
        with self.cluster.executor(max_workers=2, workers_per_job=2, time="30min") as pool:
            assert pool.submit(noop, 1).result(PATIENCE_S) == 1
            return time.perf_counter() - began

    def graph(self, text: str) -> dict[str, Any]:
        """A graph of jobs, submitted together unless `single` is asked for."""
        count, _, single = text.partition(" ")
        scheduler: Any = self.cluster.backend.agent.scheduler  # type: ignore[attr-defined]
        before = getattr(scheduler, "calls", 0)
        with self.cluster:
            began = time.perf_counter()
            if single:
                last = asking.layers(int(count), join)
            else:
                with self.cluster.batch():
                    last = asking.layers(int(count), join)
            submitted = time.perf_counter() - began
            asked = getattr(scheduler, "calls", 0) - before
            total = sum(job.result(PATIENCE_S) for job in last)
            taken = time.perf_counter() - began
        assert total == asking.total_of(int(count)), total
        return {"total": taken, "submit": submitted, "calls": asked}

    def steps(self, count: str) -> float:
        """The same graph as steps of one allocation that is up."""
        with self.cluster.allocate(cpus_per_task=2, time="30min") as allocation:
            noop(0).result(PATIENCE_S)
            began = time.perf_counter()
            last = asking.layers(int(count), join)
            total = sum(job.result(PATIENCE_S) for job in last)
            taken = time.perf_counter() - began
        allocation.cancel_all()
        assert total == asking.total_of(int(count)), total
        return taken

    def hold(self, count: str) -> dict[str, Any]:
        """A map that stays held: the client's time, memory and files until `.map` returns."""
        before = resident_kib()
        with self.cluster:
            began, cpu = time.perf_counter(), time.process_time()
            array = noop.with_options(hold=True).map(range(int(count)))
            taken, used = time.perf_counter() - began, time.process_time() - cpu
            kib = resident_kib() - before
            parts = len({job.bare.partition("_")[0] for job in array if job.key is not None})
            files = files_below(os.path.join(self.cluster.base, array.run))
            asked = time.perf_counter()
            array.cancel()
            # Else the next round would share the interpreter with this one's ends.
            array.wait(PATIENCE_S)
        ended = time.perf_counter() - asked
        return {
            "total": taken, "kib": kib, "cpu": used, "parts": parts, "files": files,
            "cancel": ended,
        }  # fmt: skip

    def die(self, order: str) -> dict[str, Any]:
        """Seconds until a death is told."""
        submit = self.cluster.submit(die, mem="200M")
        return asking.seconds_to_notice(
            order,
            self.folder,
            submit,
            lambda job: asking.failure_of(lambda: job.result(PATIENCE_S)),
        )


def files_below(folder: str) -> int:
    """How many files a run has, without the logs, which the scheduler makes."""
    return sum(len(names) for path, _, names in os.walk(folder) if os.path.basename(path) != "logs")


def main() -> None:
    ours = Ours(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "local")
    names = ["one", "submit", "map", "pack", "warm", "cold", "graph", "steps", "hold", "die"]
    serve_orders(slurm.__version__, {name: getattr(ours, name) for name in names})


if __name__ == "__main__":
    main()
