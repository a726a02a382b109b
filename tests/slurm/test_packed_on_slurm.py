"""The packed map on a real Slurm."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import Cluster, PackedArray, Retry, task

WAIT = 120


@task(mem="100M")
def none(x: int) -> None:
    return None


@task(mem="100M")
def add_up(values: Any) -> int:
    return sum(values)


@task(mem="100M")
def note(item: int, folder: str) -> int:
    """Note that it ran; the items from 5 on wait until they may go on."""
    with open(f"{folder}/ran", "a") as f:
        f.write(f"{item}\n")
    if item == 3 and os.path.exists(f"{folder}/deadly"):
        os.kill(os.getpid(), 9)
    until = time.monotonic() + 60
    while item >= 5 and not os.path.exists(f"{folder}/go") and time.monotonic() < until:
        time.sleep(0.02)
    return item


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(job_base_dir=tmp_path / "jobs")


def test_ten_thousand_items_on_four_nodes_leave_few_files(cluster: Cluster) -> None:
    with cluster:
        array = none.map(range(10_000), pack=2_500)
    assert isinstance(array, PackedArray) and len(array.members) == 4
    assert array.results(WAIT) == [None] * 10_000
    assert all(job.wait(WAIT) for job in array.members)
    run = Path(cluster.base) / array.run
    written = [p for p in run.glob("*/*") if p.is_file() and p.parent.name != "submit"]
    nodes = {job.node for job in array.members}
    assert len(written) <= 10 * len(nodes), written
    assert all(rate > 0 for rate in array.rates) and len(array.rates) == 4


def test_an_item_that_kills_its_worker_is_named_and_a_dependant_never_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "deadly").touch()
    with cluster:
        array = note.map([(i, str(tmp_path)) for i in range(5)], pack=5)
        after = add_up.after(array)([1])
    got = array.results(WAIT, return_exceptions=True)
    assert [v for v in got if isinstance(v, int)] == [0, 1, 2, 4]
    assert isinstance(got[3], slurm.WorkerDied) and "SIGKILL" in str(got[3])
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "2", "3", "3", "3", "4"]
    assert array.members[0].wait(WAIT) is False and array.members[0].exit_code == 1
    with pytest.raises(slurm.UpstreamFailed):
        after.result(WAIT)


def test_an_item_that_takes_too_much_memory_is_out_of_memory_and_the_rest_is_fine(
    cluster: Cluster,
) -> None:
    @task(mem="60M")
    def pick(x: int) -> int:
        return len(b"x" * 300_000_000) if x == 3 else x

    with cluster:
        array = pick.map(range(6), pack=6)
    got = array.results(WAIT, return_exceptions=True)
    assert isinstance(got[3], slurm.JobOutOfMemory) and "item 3" in str(got[3]), got[3]
    assert [v for v in got if isinstance(v, int)] == [0, 1, 2, 4, 5]


def test_items_that_ran_out_of_memory_get_more_and_what_waits_gets_all_values(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(mem="60M", retry=Retry(times=3, oom="mem*3"))
    def pick(x: int, folder: str) -> int:
        with open(f"{folder}/ran", "a") as f:
            f.write(f"{x}\n")
        return len(b"x" * 100_000_000) if x == 3 else x

    with cluster:
        array = pick.map([(i, str(tmp_path)) for i in range(6)], pack=6)
        after, told = add_up(array), add_up.after(array)([1])
    assert array.results(WAIT) == [0, 1, 2, 100_000_000, 4, 5]
    assert after.result(WAIT) == 100_000_012
    assert told.result(WAIT) == 1
    (member,) = array.members
    assert [attempt.kind for attempt in member.history] == ["oom", None]
    assert member.options["mem"] == 180
    ran = (tmp_path / "ran").read_text().split()
    assert [ran.count(str(x)) for x in (0, 1, 2, 4, 5)] == [1] * 5
    again = Cluster(job_base_dir=cluster.base).attach(array.run)
    assert again.results(WAIT) == [0, 1, 2, 100_000_000, 4, 5]


def test_a_dependant_reads_the_values_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with cluster:
        array = note.map([(i, str(tmp_path)) for i in range(12)], pack=4)
        assert add_up(array).result(WAIT) == sum(range(12))


def test_cancelled_half_way_the_finished_items_keep_their_values(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster:
        array = note.map([(i, str(tmp_path)) for i in range(10)], pack=10)
    ended = array.as_completed(WAIT)
    assert sorted(next(ended).result() for _ in range(5)) == [0, 1, 2, 3, 4]
    assert array.cancel() == 5
    got = array.results(WAIT, return_exceptions=True)
    assert got[:5] == [0, 1, 2, 3, 4]
    assert all(isinstance(error, slurm.JobCancelled) for error in got[5:]), got


def test_a_requeued_pack_runs_only_what_has_no_outcome(cluster: Cluster, tmp_path: Path) -> None:
    with cluster:
        one = note.with_options(requeue=True)
        array = one.map([(i, str(tmp_path)) for i in range(8)], pack=8)
    ended = array.as_completed(WAIT)
    for _ in range(5):
        next(ended)
    array.members[0].requeue()
    (tmp_path / "go").touch()
    assert array.results(WAIT) == list(range(8))
    seen = list(map(int, (tmp_path / "ran").read_text().split()))
    assert sorted(i for i in seen if i < 5) == [0, 1, 2, 3, 4] and set(seen) == set(range(8))


def test_a_second_client_attaches_to_a_packed_map(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with cluster:
        array = note.map([(i, str(tmp_path)) for i in range(9)], pack=3)
    assert all(job.wait(WAIT) for job in array.members)
    again = Cluster(job_base_dir=cluster.base).attach(array.members[0].bare.partition("_")[0])
    assert again is not array and again.results(WAIT) == list(range(9))


@task(mem="100M")
def late(x: int) -> int:
    time.sleep(4)
    return x * 10


@slurm.workflow(mem="100M")
def returning(count: int) -> Any:
    return late.map(range(count))


@task(mem="100M")
def plus(x: int, more: int = 0) -> int:
    return x + more


def test_items_wait_for_what_a_workflow_returned_and_for_retries(
    cluster: Cluster, tmp_path: Path
) -> None:
    def sometimes(x: int) -> int:
        with open(f"{tmp_path}/tries", "a") as f:
            f.write(f"{x}\n")
        if x == 1 and Path(f"{tmp_path}/tries").read_text().split().count("1") == 1:
            raise ValueError("the first time")
        return x

    with cluster:
        flow = returning(2)
        above = task(mem="100M", retry=Retry(times=1, backoff=1))(sometimes).map(range(3))
        returned = plus.after(flow).map(range(4), pack=2)
        total = add_up.map([(flow,), ([1],)], pack=2)
        retried = plus.map([(x, job) for x, job in enumerate(above)], pack=3)
        assert returned.results(WAIT) == [0, 1, 2, 3]
        assert total.results(WAIT) == [10, 1]
        assert retried.results(WAIT) == [0, 2, 4]
