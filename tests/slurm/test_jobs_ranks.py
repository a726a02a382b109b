"""Jobs of several ranks, started by srun: whose value, whose failure, and who knows what."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, JobContext, errors, task

SOON = 60


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture
def cluster(base: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=base, nodes=3, ntasks=3, ntasks_per_node=1) as cluster:
        yield cluster


def test_the_value_of_rank_zero_is_the_result(cluster: Cluster) -> None:
    def rank(ctx: JobContext) -> tuple[int, int, int]:
        return ctx.rank, ctx.world_size, ctx.nodes

    assert cluster.submit(task(rank))().result(SOON) == (0, 3, 3)


def test_all_ranks_values_come_on_request(cluster: Cluster) -> None:
    def node(ctx: JobContext) -> tuple[int, str]:
        return ctx.rank, os.environ["SLURMD_NODENAME"]

    values: Any = cluster.submit(task(node), all_ranks=True)().result(SOON)
    assert [rank for rank, _ in values] == [0, 1, 2]
    assert len({name for _, name in values}) == 3


def test_ranks_know_who_they_are_and_where_they_meet(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a client inherited from a job of its own must not reach the ranks.
    monkeypatch.setenv("RANK", "77")
    monkeypatch.setenv("WORLD_SIZE", "99")

    def variables() -> tuple[str, ...]:
        import socket

        address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        socket.getaddrinfo(address, int(port))
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        return (*(os.environ[name] for name in names), address, port)

    values = cluster.submit(task(variables), all_ranks=True)().result(SOON)
    assert [v[:3] for v in values] == [(str(i), "0", "3") for i in range(3)]
    assert len({v[3:] for v in values}) == 1


def test_variables_that_the_user_sets_are_kept(cluster: Cluster) -> None:
    def variables() -> tuple[str, str]:
        return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

    mine = {"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "4711"}
    job = cluster.submit(task(variables), env=mine)()
    assert job.result(SOON) == ("192.0.2.1", "4711")


def test_a_job_of_one_process_is_not_taken_for_a_distributed_one(base: Path) -> None:
    def variables() -> list[str]:
        return sorted({"RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(os.environ))

    assert Cluster(job_base_dir=base).submit(task(variables))().result(SOON) == []


def test_the_exception_of_the_rank_that_failed_is_raised(cluster: Cluster) -> None:
    def fail(ctx: JobContext) -> int:
        if ctx.rank == 1:
            raise ValueError(f"rank {ctx.rank} of {ctx.world_size}")
        time.sleep(120)
        return 1

    with pytest.raises(ValueError, match="rank 1 of 3"):
        cluster.submit(task(fail))().result(SOON)


def test_an_echo_of_the_failure_in_a_lower_rank_does_not_hide_it(cluster: Cluster) -> None:
    def fail(ctx: JobContext) -> int:
        if ctx.rank == 2:
            raise ValueError("the first cause")
        while not ctx.should_stop:
            time.sleep(0.02)
        raise RuntimeError("a peer went away")

    with pytest.raises(ValueError, match="the first cause"):
        cluster.submit(task(fail))().result(SOON)


def test_a_rank_that_dies_fails_the_job_although_rank_zero_has_a_value(cluster: Cluster) -> None:
    def die(ctx: JobContext) -> int:
        if ctx.rank == 1:
            time.sleep(1)
            os._exit(5)
        return ctx.rank

    # Slurm decides, and questions to it are rationed: after many jobs one waits for its turn twice.
    error = cluster.submit(task(die))().exception(2 * SOON)
    assert isinstance(error, errors.JobFailed)


def test_ranks_on_one_node_have_local_ranks(base: Path) -> None:
    def local(ctx: JobContext) -> tuple[str, int, int]:
        return os.environ["LOCAL_RANK"], ctx.node_rank, ctx.cpus

    cluster = Cluster(job_base_dir=base, nodes=1, ntasks=2, cpus_per_task=2)
    values = cluster.submit(task(local), all_ranks=True)().result(SOON)
    assert values == [("0", 0, 2), ("1", 0, 2)]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_for_memory_makes_the_job_out_of_memory(
    cluster: Cluster, victim: int
) -> None:
    """Slurm itself calls such a job FAILED: only its step is OUT_OF_MEMORY."""

    def eat(victim: int, ctx: JobContext) -> int:
        if ctx.rank == victim:
            taken = bytearray(600 << 20)
            taken[::4096] = b"x" * len(taken[::4096])
        time.sleep(0 if ctx.rank < victim else 20)
        return ctx.rank

    job = cluster.submit(task(eat), mem="150M")(victim)  # type: ignore[call-arg]
    assert isinstance(job.exception(SOON), errors.JobOutOfMemory)
    assert job.state == "OUT_OF_MEMORY"
