"""Allocations on a real Slurm: steps of srun, in turn and side by side, and how they end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm import (
    Allocation,
    Cluster,
    JobCancelled,
    JobContext,
    JobFailed,
    TimeLimitReached,
    task,
)
from slurm.graph import read_graph


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("local", job_base_dir=tmp_path / "jobs", time="5min") as cluster:
        yield cluster


@task
def where(seconds: float, ctx: JobContext) -> tuple[str, float, float, int, str | None]:
    begun = time.time()
    time.sleep(seconds)
    node = os.environ["SLURMD_NODENAME"]
    return node, begun, time.time(), ctx.world_size, ctx.step_id


@task
def refuse() -> None:
    raise KeyError("missing")


@task
def die() -> None:
    os.kill(os.getpid(), 9)


def test_the_graph_of_steps_that_failed_or_run(cluster: Cluster) -> None:
    """Slurm was asked for steps by their ids, which its questions do not take."""
    with cluster.allocate() as allocation:
        with pytest.raises(KeyError):
            refuse().result(60)
        other = where(0.0)  # type: ignore[call-arg]
        held = allocation.job
        assert held is not None
        graph = read_graph(cluster, held.run)
        assert graph.nodes[held.run].state == "RUNNING"
        other.result(60)
    held.result(60)
    states = {node.name: node.state for node in read_graph(cluster, held.run).nodes.values()}
    assert states == {"allocation": "COMPLETED", "refuse": "FAILED", "where": "COMPLETED"}


def test_phases_of_one_four_and_one_nodes_then_two_of_two_at_once(cluster: Cluster) -> None:
    with cluster.allocate(nodes=4, ntasks_per_node=1) as allocation:
        first = where(0.0).result(60)  # type: ignore[call-arg]
        four = allocation.submit(where, nodes=4, all_ranks=True)(0.0).result(60)
        last = where(0.0).result(60)  # type: ignore[call-arg]
        pair = [allocation.submit(where, nodes=2, all_ranks=True)(1.0) for _ in range(2)]
        left, right = (job.result(60) for job in pair)
    assert (first[3], last[3]) == (1, 1)
    assert len({rank[0] for rank in four}) == 4
    nodes = [{rank[0] for rank in ranks} for ranks in (left, right)]
    assert len(nodes[0]) == len(nodes[1]) == 2
    assert not nodes[0] & nodes[1]
    assert max(left[0][1], right[0][1]) < min(left[0][2], right[0][2]), "they ran in turn"


def test_steps_share_a_node_when_each_asks_for_a_part_of_it(cluster: Cluster) -> None:
    with cluster.allocate(nodes=1, ntasks=2) as allocation:
        jobs = [allocation.submit(where, cpus_per_task=1)(1.0) for _ in range(2)]
        one, other = (job.result(60) for job in jobs)
    assert one[0] == other[0]
    assert max(one[1], other[1]) < min(one[2], other[2])


def test_a_map_and_a_dependency_run_as_steps(cluster: Cluster) -> None:
    @task
    def add(a: int, b: int) -> int:
        return a + b

    with cluster.allocate(ntasks=2):
        array = add.map([(n, 1) for n in range(3)])
        total = add(array[0], array[2])  # type: ignore[arg-type]
        assert total.result(60) == 4
        assert array.results(60) == [1, 2, 3]


def test_failures_of_steps_are_told_apart(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=1) as allocation:
        bad, dead = refuse(), die()
        late = allocation.submit(where, time="1s")(60.0)
        with pytest.raises(KeyError):
            bad.result(60)
        with pytest.raises(JobFailed, match="SIGKILL"):
            dead.result(60)
        with pytest.raises(TimeLimitReached):
            late.result(60)
        assert where(0.0).result(60)[3] == 1  # type: ignore[call-arg]


def test_steps_end_with_their_allocation(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=1) as allocation:
        running, waiting = where(60.0), where(60.0)  # type: ignore[call-arg]
        while running.state != "RUNNING":
            time.sleep(0.1)
        allocation.cancel_all()
        for job in (running, waiting):
            with pytest.raises(JobCancelled):
                job.result(60)


@task
def inner() -> tuple[int, set[str]]:
    with Allocation.current() as allocation:
        ranks = allocation.submit(where, nodes=2, all_ranks=True)(0.0).result(60)
    return len(ranks), {rank[0] for rank in ranks}


def test_a_running_task_starts_steps_on_all_nodes_of_its_job(cluster: Cluster) -> None:
    ranks, nodes = cluster.submit(inner, nodes=2, launch="once")().result(60)
    assert (ranks, len(nodes)) == (2, 2)


def test_a_rank_of_a_job_can_start_steps_beside_itself(cluster: Cluster) -> None:
    @task(nodes=2)
    def first_rank(ctx: JobContext) -> object:
        return inner.local() if ctx.rank == 0 else None

    assert first_rank().result(60)[0] == 2  # type: ignore[index]


def test_a_program_that_srun_starts_gets_the_nodes_of_the_job(cluster: Cluster) -> None:
    @task(nodes=2, launch="once")
    def run_program() -> list[str]:
        told = ["srun", "--ntasks-per-node=1", "sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME"]
        done = subprocess.run(told, capture_output=True, text=True, check=True, timeout=60)
        return sorted(done.stdout.split("\n"))

    found = [line.split() for line in run_program().result(60) if line]
    assert [rank for rank, _ in found] == ["0", "1"]
    assert len({node for _, node in found}) == 2


def test_torchrun_gives_each_rank_its_place(cluster: Cluster) -> None:
    @task(nodes=2, ntasks_per_node=2, launch="torchrun", all_ranks=True)
    def place(ctx: JobContext) -> tuple[str, ...]:
        told = ctx.torch_distributed_env()
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")
        return tuple(told[name] for name in names)

    assert place().result(60) == [
        ("0", "0", "4", "2", "0"),
        ("1", "1", "4", "2", "0"),
        ("2", "0", "4", "2", "1"),
        ("3", "1", "4", "2", "1"),
    ]
