"""The bridge on a real Kubernetes control plane and a real Slurm, beside plain kube-scheduler."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "bridge"
#: What the issue asks for.
BOUND_MS, BOUND_P99_MS, CORES, MEGABYTES = 1000.0, 3000.0, 1.0, 200.0


def placed_by_slurm(ground: Ground) -> Section:
    """One pod at a time, many at once, and a Slurm that remembers many finished jobs."""
    sys.path.insert(0, str(_TESTS))
    from bridge_bed import bed
    from bridge_kubernetes import ControlPlane
    from bridge_slurm import SlurmRest

    from conftest import _rights

    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
        for part in ("slurm", "kubernetes"):
            (Path(folder) / part).mkdir()
        slurm = SlurmRest(Path(folder) / "slurm", min_job_age=3600)
        plane = ControlPlane(Path(folder) / "kubernetes", slurm.root / "usr" / "bin" / "etcd")

        async def measure() -> list[Row]:
            await _rights(plane)
            async with bed(plane, slurm, nodes=20 if ground.quick else 100) as made:
                return await _rows(ground, made, Path(folder))

        try:
            slurm.start()
            plane.start()
            rows = asyncio.run(measure())
        finally:
            plane.stop()
            slurm.stop()
    notes = (
        "The API server, etcd, kube-scheduler, slurmctld, slurmrestd and the bridge share two "
        "cores here, so the many pods at once are mostly a measure of the host.",
        "Plain kube-scheduler binds to the same nodes; its pods pass no webhook and no Slurm.",
    )
    return Section("pods placed by Slurm", tuple(rows), notes)


async def _rows(ground: Ground, made: Any, folder: Path) -> list[Row]:
    from bridge_bed import Program

    program = Program(made, folder, poll=0.5, idlePoll=2.0)
    await program.start()
    try:
        await made.registered()
        alone = [1000 * await _one(made, f"one{n}") for n in range(ground.times(30, 10))]
        worst = statistics.quantiles(alone, n=100, method="inclusive")[98]
        count = 200 if ground.quick else 1000
        before, asked = _cpu(program.daemon.process.pid), _requests(program)
        took = await _many(made, "many", count, managed=True)
        used = (_cpu(program.daemon.process.pid) - before) / took
        requests = (_requests(program) - asked) / count
        plain = await _many(made, "plain", count, managed=False)
        memory = _memory(program.daemon.process.pid)
        empty = await _cycles(made)
        await asyncio.to_thread(_finished, made, 500 if ground.quick else 5000)
        full = await _cycles(made)
        after = [1000 * await _one(made, f"late{n}") for n in range(ground.times(10, 5))]
    finally:
        program.daemon.stop()
    kind = f"{count} pods on {len(made.nodes)} nodes"
    return [
        Row("pod seen to bound, idle cluster", tuple(alone), limit=BOUND_MS),
        Row("the same, 99th percentile", (worst,), limit=BOUND_P99_MS),
        Row(f"{kind}: all bound", (took,), "s", ratio=took / plain),
        Row(f"{kind}: plain kube-scheduler", (plain,), "s", ratio=1.0),
        Row(f"{kind}: the bridge's cores", (used,), "cores", limit=CORES),
        Row(f"{kind}: the bridge's memory", (memory,), "MB", limit=MEGABYTES),
        Row(f"{kind}: requests to Slurm for each pod", (requests,), "requests"),
        Row("a poll, few jobs in Slurm's memory", tuple(empty)),
        Row("a poll, thousands of finished jobs there", tuple(full)),
        Row("pod seen to bound, then", tuple(after), limit=BOUND_MS),
    ]


async def _one(made: Any, name: str) -> float:
    """Seconds from the pod's creation to its node."""
    await made.create(name, annotations={"test/exit": "0"})
    start = time.perf_counter()
    while True:
        pod = await made.get(name)
        if pod is not None and pod.spec.nodeName:
            return time.perf_counter() - start
        await asyncio.sleep(0.01)


async def _many(made: Any, prefix: str, count: int, *, managed: bool) -> float:
    """Seconds until all of them had a node; each ends at once and makes room."""
    names = {f"{prefix}{n}" for n in range(count)}
    begun = time.perf_counter()
    place = made.namespace if managed else "default"
    path = f"/api/v1/namespaces/{place}/pods"
    gate = asyncio.Semaphore(16)

    async def create(name: str) -> None:
        pod = made.pod(name, annotations={"test/exit": "0"})
        pod["metadata"]["namespace"] = place
        if not managed:
            pod["spec"]["tolerations"] = [{"key": "slurm-sdk/managed", "operator": "Exists"}]
        async with gate:
            await made.kube.ask("POST", path, body=pod)

    await asyncio.gather(*(create(name) for name in names))
    done = 0
    while done < count:
        await asyncio.sleep(0.5)
        found = made.kubelet._watched.items.values()
        done = sum(1 for p in found if p.metadata.name in names and p.spec.nodeName)
    return time.perf_counter() - begun


async def _cycles(made: Any) -> list[float]:
    """Milliseconds of the request that each poll of the bridge makes."""
    client, times = made.slurm.client, []
    client.call("GET", "jobs/state/", query=[("job_id", "1")])
    for _ in range(20):
        start = time.perf_counter()
        client.call("GET", "jobs/state/", query=[("job_id", "1")])
        times.append(1000 * (time.perf_counter() - start))
        await asyncio.sleep(0)
    return times


def _finished(made: Any, count: int) -> None:
    """Fill Slurm's memory with jobs that are over."""
    job = {"name": "old", "flags": ["EXTERNAL_JOB"], "current_working_directory": "/tmp"}
    body = {"job": {**job, "environment": ["A=B"], "hold": True}}
    client = made.slurm.client

    def one(_: int) -> None:
        number = client.call("POST", "job/submit", body=body)["job_id"]
        client.call("DELETE", f"job/{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(count)))


def _requests(program: Any) -> float:
    counted = program.metrics()
    return sum(v for k, v in counted.items() if k.startswith("slurm_bridge_rest_seconds_count"))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000
