"""The executor on a real Slurm: warm workers in jobs, and what happens when they are lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm import Cluster, WorkerDied
from waiting import until


def square(n: int) -> int:
    return n * n


def slow(n: int) -> str:
    time.sleep(0.5)
    return os.environ["SLURM_JOB_ID"]


def die() -> None:
    os._exit(9)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster("local", job_base_dir=tmp_path / "jobs", time="5min")


def test_many_calls_go_through_few_jobs(cluster: Cluster) -> None:
    with cluster.executor(max_workers=4, workers_per_job=2) as pool:
        assert list(pool.map(square, range(3000), timeout=60)) == [n * n for n in range(3000)]
        assert len(pool.jobs) <= 2


def test_a_lost_job_loses_no_call(cluster: Cluster) -> None:
    with cluster.executor(max_workers=2) as pool:
        pool.submit(square, 1).result(60)
        calls = [pool.submit(slow, n) for n in range(6)]
        until("a call runs", lambda: any(call.running() for call in calls))
        lost = pool.jobs[0]
        lost.cancel()
        ran_in = {call.result(60) for call in calls}
    assert ran_in - {lost.id}


def test_a_deadly_call_is_named_and_the_next_one_runs(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1, retries=1) as pool:
        bad, good = pool.submit(die), pool.submit(square, 4)
        with pytest.raises(WorkerDied, match="exit code 9"):
            bad.result(60)
        assert good.result(60) == 16
