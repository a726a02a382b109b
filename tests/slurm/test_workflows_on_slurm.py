"""Workflows on a real Slurm: children submitted from the node, requeue, cancel, and their graph."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import Cluster, WorkflowContext, task, workflow
from slurm.graph import read_graph

WAIT = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=tmp_path / "jobs", time="5min", mem="200M") as cluster:
        yield cluster


@task
def square(x: int) -> int:
    return x * x


@task
def total(values: list[int]) -> int:
    return sum(values)


@task
def count(name: str, folder: str, seconds: float = 0) -> str:
    with open(Path(folder) / "runs", "a") as f:
        f.write(f"{name}\n")
    time.sleep(seconds)
    return name.upper()


def die() -> None:
    """Be put back into the queue at once and killed with SIGKILL, here and now."""
    job = os.environ["SLURM_JOB_ID"]
    hurry = f"sleep 1; scontrol update jobid={job} StartTime=now"
    # A requeued job waits until its credential has expired, unless somebody hurries it.
    subprocess.Popen(
        ["setsid", "sh", "-c", f"for i in 1 2 3 4 5 6 7 8 9 10; do {hurry}; done"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    subprocess.run(["scontrol", "requeue", job], check=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_workflow_submits_from_the_node_and_resolves_to_what_it_returned(
    cluster: Cluster,
) -> None:
    @workflow
    def sums(n: int, ctx: WorkflowContext) -> Any:
        squares = square.map(range(n))
        return {"total": total(squares), "squares": squares, "ids": ctx.child_ids}  # type: ignore[arg-type]

    job = sums(3)  # type: ignore[call-arg]
    value = job.result(WAIT)
    assert (value["total"], value["squares"]) == (5, [0, 1, 4])
    assert len(value["ids"]) == 4
    assert all(int(child.partition("_")[0]) > int(job.id) for child in value["ids"])
    (run,) = Path(job.path, "tasks", "total").iterdir()
    assert cluster.attach(run).options["mem"] == 200
    graph = read_graph(cluster, job.id)
    found = [(node.name, node.state) for node in graph.children(graph.root)]
    assert found == [("square", "COMPLETED"), ("total", "COMPLETED")]


def test_a_job_behind_a_workflow_takes_the_values_of_its_children(cluster: Cluster) -> None:
    @workflow
    def hands_over() -> Any:
        return [square.map([1, 2, 3]), total([10, 20])]

    @task
    def flat(values: Any) -> int:
        return sum(values[0]) + int(values[1])

    assert flat(hands_over()).result(WAIT) == 44


@pytest.mark.parametrize("phase", ["before sbatch", "after sbatch", "while it waits"])
def test_a_requeued_workflow_runs_no_child_twice(
    phase: str, cluster: Cluster, tmp_path: Path
) -> None:
    @workflow
    def doomed(ctx: WorkflowContext) -> Any:
        from slurm.api.slurm_scheduler import SlurmScheduler

        original = SlurmScheduler.submit

        def deadly(*args: Any) -> str:
            if phase == "after sbatch":
                original(*args)
            die()
            return ""

        if ctx.attempt == 0 and phase != "while it waits":
            SlurmScheduler.submit = deadly  # type: ignore[method-assign,assignment]
        jobs = [count("a", str(tmp_path), 0.5)]
        if ctx.attempt == 1:
            jobs[0].wait()  # what went out as one group is called in two
        jobs += [count(name, str(tmp_path)) for name in "ab"]
        if ctx.attempt == 0:
            jobs[0].wait()
            die()
        arrays = len({job.run for job in jobs})
        return [*jobs, count("c", str(tmp_path)), arrays, ctx.attempt]

    job = doomed()  # type: ignore[call-arg]
    assert job.result(WAIT) == ["A", "A", "B", "C", 1, 1], job.stderr()
    assert sorted((tmp_path / "runs").read_text().split()) == ["a", "a", "b", "c"]


def test_cancelling_a_workflow_empties_the_queue_of_its_children(
    cluster: Cluster, tmp_path: Path
) -> None:
    @workflow
    def starts() -> Any:
        one, more = count("a", str(tmp_path), 60), count.map([("b", str(tmp_path), 60)] * 2)
        (tmp_path / "ready").touch()
        return [one.result(), more]

    job = starts()
    deadline = time.monotonic() + WAIT
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert job.cancel()
    with pytest.raises(slurm.JobCancelled):
        job.result(WAIT)
    while cluster.queue() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [row for row in cluster.queue() if row.name == "count"] == []
