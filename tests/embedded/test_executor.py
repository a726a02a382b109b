"""The executor: concurrent.futures over warm workers."""

from __future__ import annotations

import concurrent.futures
import os
import time
from pathlib import Path

import pytest

from slurm import (
    Cluster,
    FunctionExited,
    JobContext,
    OptionError,
    RemoteTraceback,
    SubmitRefused,
    UnpicklableResult,
    UsageError,
    WorkerDied,
    task,
)
from slurm.blocks import wanted_ahead, wanted_blocks
from waiting import holds, until


def square(n: int) -> int:
    return n * n


def pid(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def fail(text: str) -> None:
    raise ValueError(text)


def die_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), 9)
    return "done"


def die() -> None:
    os._exit(3)


def test_it_is_an_executor_of_the_standard_library(cluster: Cluster) -> None:
    with cluster.executor(max_workers=2) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        futures = [pool.submit(square, n) for n in range(20)]
        done = concurrent.futures.wait(futures, timeout=60).done
        assert {future.result() for future in done} == {n * n for n in range(20)}


def test_map_keeps_the_order_with_and_without_chunks(cluster: Cluster) -> None:
    with cluster.executor(max_workers=2) as pool:
        assert list(pool.map(square, range(50), timeout=60)) == [n * n for n in range(50)]
        assert list(pool.map(pow, range(7), [2] * 7, timeout=60, chunksize=3)) == [
            n * n for n in range(7)
        ]
        assert list(pool.map(square, [])) == []


def test_workers_stay_warm(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        assert len({pool.submit(pid, 0.0).result(60) for _ in range(5)}) == 1
        assert len(pool.jobs) == 1


def test_jobs_come_with_the_queue_up_to_the_maximum(cluster: Cluster) -> None:
    with cluster.executor(max_workers=4, workers_per_job=2) as pool:
        pids = set(pool.map(pid, [0.3] * 16, timeout=60))
        assert len(pool.jobs) == 2
    assert 2 < len(pids) <= 4


def test_idle_jobs_go_down_to_the_minimum(cluster: Cluster) -> None:
    with cluster.executor(max_workers=2, min_workers=1, idle="1s") as pool:
        list(pool.map(pid, [0.3] * 8, timeout=60))
        until("one job is left", lambda: len(pool.jobs) == 1)
        holds("one job stays", lambda: len(pool.jobs) == 1, 1.5)
        assert pool.submit(square, 3).result(60) == 9


def test_an_exception_comes_back_with_its_remote_traceback(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        with pytest.raises(ValueError, match="no") as caught:
            pool.submit(fail, "no").result(60)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert pool.submit(square, 2).result(60) == 4


def test_what_a_task_may_not_return_is_named(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        with pytest.raises(UnpicklableResult):
            pool.submit(lambda: (n for n in range(0))).result(60)
        with pytest.raises(FunctionExited):
            pool.submit(exit, 4).result(60)


def test_tasks_contexts_lambdas_and_large_values_pass(cluster: Cluster) -> None:
    @task
    def rank(word: str, ctx: JobContext) -> tuple[str, int]:
        return word, ctx.rank

    with cluster.executor(max_workers=1) as pool:
        assert pool.submit(rank, "x").result(60) == ("x", 0)  # type: ignore[call-arg]
        assert pool.submit(lambda n: n + 1, 1).result(60) == 2
        assert len(pool.submit(bytes, 3 << 20).result(60)) == 3 << 20


def test_a_call_whose_worker_dies_is_finished_by_another(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.executor(max_workers=1) as pool:
        calls = [pool.submit(square, n) for n in range(10)]
        lost = pool.submit(die_once, str(tmp_path / "x"))
        more = [pool.submit(square, n) for n in range(10)]
        assert lost.result(60) == "done"
        assert [c.result(60) for c in calls + more] == [n * n for n in range(10)] * 2


def test_a_call_that_kills_workers_is_named_and_harms_no_other(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1, retries=1) as pool:
        bad, good = pool.submit(die), pool.submit(square, 3)
        with pytest.raises(WorkerDied, match=r"die .*killed 2 worker.* exit code 3"):
            bad.result(60)
        assert good.result(60) == 9


def test_calls_of_a_lost_job_are_finished_by_another(cluster: Cluster) -> None:
    with cluster.executor(max_workers=2) as pool:
        pool.submit(square, 1).result(60)
        calls = [pool.submit(pid, 0.5) for _ in range(6)]
        until("a call runs", lambda: any(call.running() for call in calls))
        pool.jobs[0].cancel()
        assert len([call.result(60) for call in calls]) == 6


def kill_the_job(marker: str) -> None:
    Path(marker).touch()
    os.kill(os.getppid(), 9)
    time.sleep(60)


def test_a_call_longer_than_the_time_limit_ends_after_its_tries(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1, time="3s", retries=1) as pool:
        long, short = pool.submit(pid, 60.0), pool.submit(square, 3)
        error = long.exception(timeout=60)
        assert short.result(timeout=60) == 9
    assert isinstance(error, WorkerDied)
    assert "pid was under way when its worker had to stop, 2 times" in str(error)
    assert "cluster.executor(time=...)" in str(error)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_waits_behind_a_call_that_kills_its_job_loses_nothing(
    cluster: Cluster, tmp_path: Path, workers: int
) -> None:
    with cluster.executor(max_workers=workers, workers_per_job=workers) as pool:
        killer = pool.submit(kill_the_job, str(tmp_path / "begun"))
        others = [pool.submit(pid, 0.5), *(pool.submit(square, n) for n in range(3))]
        assert isinstance(killer.exception(timeout=60), WorkerDied)
        assert [other.exception(timeout=60) for other in others] == [None] * 4
    assert (tmp_path / "begun").exists()


def test_calls_that_have_not_begun_can_be_cancelled(cluster: Cluster) -> None:
    pool = cluster.executor(max_workers=1)
    calls = [pool.submit(pid, 0.2) for _ in range(20)]
    calls[0].result(60)
    assert calls[-1].cancel()
    pool.shutdown(cancel_futures=True)
    assert all(call.done() for call in calls)
    assert any(call.cancelled() for call in calls[:-1])
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(square, 1)


def test_jobs_end_after_shutdown(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        pool.submit(square, 1).result(60)
        job = pool.jobs[0]
    assert job.result(60) == 1


def test_a_worker_that_no_node_can_hold_fails_the_calls(cluster: Cluster) -> None:
    with (
        cluster.executor(max_workers=1, cpus_per_task=640) as pool,
        pytest.raises(SubmitRefused),
    ):
        pool.submit(square, 1).result(60)


def test_files_do_not_grow_with_the_number_of_calls(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        assert sum(pool.map(square, range(2000), timeout=60)) == sum(n * n for n in range(2000))
        run = Path(pool.jobs[0].path)
        assert sum(path.is_file() for path in run.rglob("*")) < 25


def test_workers_can_be_steps_of_an_allocation(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2) as allocation, allocation.executor(max_workers=2) as pool:
        assert list(pool.map(square, range(4), timeout=60)) == [0, 1, 4, 9]
        assert all("." in job.id for job in pool.jobs)


def test_on_the_debug_backend_calls_run_in_this_process(tmp_path: Path) -> None:
    with Cluster("debug", job_base_dir=tmp_path).executor() as pool:
        assert pool.submit(os.getpid).result() == os.getpid()
        assert list(pool.map(square, [1, 2, 3], chunksize=2)) == [1, 4, 9]


def test_wrong_numbers_are_refused(cluster: Cluster) -> None:
    with pytest.raises(OptionError, match="max_workers=0"):
        cluster.executor(max_workers=0)
    with pytest.raises(OptionError, match="min_workers=3 is more"):
        cluster.executor(max_workers=2, min_workers=3)
    with pytest.raises(UsageError, match="chunksize=0"):
        cluster.executor().map(square, [1], chunksize=0)


def test_a_job_as_an_argument_is_refused(cluster: Cluster) -> None:
    job = task(square)(3)
    with (
        cluster.executor(max_workers=1) as pool,
        pytest.raises(UsageError, match=r"job\.result\(\)"),
    ):
        pool.submit(square, job)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("calls", "per_block", "fewest", "most", "wanted"),
    [(0, 1, 0, 4, 0), (0, 2, 3, 4, 2), (1, 2, 0, 4, 1), (5, 2, 0, 4, 2), (9, 1, 0, 4, 4)],
)
def test_the_number_of_jobs_follows_the_queue(
    calls: int, per_block: int, fewest: int, most: int, wanted: int
) -> None:
    assert wanted_blocks(calls, per_block, fewest, most) == wanted


def test_short_calls_are_given_further_ahead_than_long_ones() -> None:
    assert wanted_ahead(0.0, 2) == 3  # nothing is known yet
    assert wanted_ahead(30.0, 2) == 3
    assert wanted_ahead(0.01, 2) == 42
    assert wanted_ahead(1e-6, 2) == 8192


def test_workers_start_inside_of_a_batch_too(cluster: Cluster) -> None:
    with cluster.batch(), cluster.executor(max_workers=1) as pool:
        assert pool.submit(square, 5).result(60) == 25


def test_defaults_of_a_cluster_that_are_about_tasks_do_not_disturb_the_workers(
    tmp_path: Path,
) -> None:
    defaults = Cluster("embedded", job_base_dir=tmp_path, requeue=True, retry=2, cache=True)
    with defaults.executor(max_workers=1) as pool:
        assert pool.submit(square, 6).result(60) == 36
    with defaults.allocate() as allocation:
        assert allocation.job is not None
    assert allocation.job.result(60) == {"steps": 0, "failed": 0}
