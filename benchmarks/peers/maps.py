"""Our side of the measurements of maps and graphs: `maps.py BACKEND BASE`."""

import os
import sys
import time
from typing import Any

from noop_item import join, noop
from protocol import serve

import slurm
from slurm import Cluster, Job

LAYERS = 10
PATIENCE_S = 110


def main() -> None:
    cluster = Cluster(sys.argv[1], job_base_dir=sys.argv[2])

    def play(order: str) -> dict[str, Any]:
        kind, _, count = order.partition(" ")
        with cluster:
            return {"map": _map, "submit": _submit, "single": _dag, "batch": _dag}[kind](
                cluster, int(count), kind
            )

    serve({"version": slurm.__version__}, play)


def _map(cluster: Cluster, count: int, _: str) -> dict[str, Any]:
    began = time.perf_counter()
    array = noop.map(range(count))
    submitted = time.perf_counter() - began
    values = array.results(PATIENCE_S)
    taken = time.perf_counter() - began
    assert values == list(range(count))
    return {"total": taken, "submit": submitted, "files": _files(cluster, array.run)}


def _submit(cluster: Cluster, count: int, _: str) -> dict[str, Any]:
    """A map that stays held: what the client does until `.map` returns."""
    began, cpu = time.perf_counter(), time.process_time()
    array = noop.with_options(hold=True).map(range(count))
    taken, used = time.perf_counter() - began, time.process_time() - cpu
    parts = len({job.bare.partition("_")[0] for job in array if job.key is not None})
    files = _files(cluster, array.run)
    asked = time.perf_counter()
    array.cancel()
    array.wait(PATIENCE_S)  # else the next round would share the interpreter with this one's ends
    ended = time.perf_counter() - asked
    return {"total": taken, "cpu": used, "parts": parts, "files": files, "cancel": ended}


def _dag(cluster: Cluster, count: int, kind: str) -> dict[str, Any]:
    """Each node but those of the first layer waits for two of the layer before."""
    scheduler: Any = cluster.backend.agent.scheduler  # type: ignore[attr-defined]
    submit, calls = scheduler.submit, [0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return submit(*args, **kwargs)

    scheduler.submit = counted
    began = time.perf_counter()
    if kind == "batch":
        with cluster.batch():
            last = _layers(count // LAYERS)
    else:
        last = _layers(count // LAYERS)
    submitted = time.perf_counter() - began
    total = sum(job.result(PATIENCE_S) for job in last)
    taken = time.perf_counter() - began
    scheduler.submit = submit
    assert total == 2 ** (LAYERS - 1) * (count // LAYERS), total
    return {"total": taken, "submit": submitted, "submissions": calls[0]}


def _layers(width: int) -> list[Job[int]]:
    layer: list[Job[int]] = [join(1, 0) for _ in range(width)]
    for _ in range(LAYERS - 1):
        layer = [join(layer[i], layer[(i + 1) % width]) for i in range(width)]  # type: ignore[arg-type]
    return layer


def _files(cluster: Cluster, run: str) -> dict[str, int]:
    """How many files a run has, logs apart: the scheduler makes those."""
    found = {"logs": 0, "other": 0}
    for folder, _, names in os.walk(os.path.join(cluster.base, run)):
        found["logs" if os.path.basename(folder) == "logs" else "other"] += len(names)
    return found


if __name__ == "__main__":
    main()
