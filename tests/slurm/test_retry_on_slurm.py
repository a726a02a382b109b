"""Retries and cached values on a real Slurm: memory that grows, guards, and what waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, Job, Retry, Task, errors, task
from waiting import until

LIMIT = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=tmp_path / "jobs") as cluster:
        yield cluster


def hungry(**options: Any) -> Task[[int], int]:
    def eat(mib: int) -> int:
        data = bytearray(mib << 20)
        data[::4096] = b"x" * len(data[::4096])  # touched, so that it counts
        return len(data) >> 20

    return task(mem="120M", time="5min", **options)(eat)


def kinds(job: Job[Any]) -> list[str | None]:
    return [attempt.kind for attempt in job.history]


def test_memory_grows_until_it_is_enough_and_what_waits_gets_the_value(cluster: Cluster) -> None:
    job = hungry(retry=Retry(times=2, oom="mem*3"))(200)
    after = task(lambda mib: mib + 1, job_name="after")(job)
    assert job.result(LIMIT) == 200
    assert kinds(job) == ["oom", None]
    assert [attempt.options["mem"] for attempt in job.history] == [120, 360]
    assert after.result(LIMIT) == 201


def test_growth_beyond_what_the_cluster_has_ends_with_the_failure_itself(
    cluster: Cluster,
) -> None:
    # 100 times 100 times 120M: no node has that.
    job = hungry(retry=Retry(times=2, oom="mem+90000G"))(200)
    with pytest.raises(errors.JobOutOfMemory):
        job.result(LIMIT)
    assert kinds(job) == ["oom"]
    (refused,) = Path(job.path, "submit").glob("*.refused")
    assert refused.read_text()


def test_of_a_map_each_element_is_retried_for_its_own_reason(
    cluster: Cluster, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"

    @task(mem="120M", time="5min", retry=Retry(times=2, on=(ValueError,), oom="mem*3"))
    def element(index: int) -> int:
        if index == 1 and not mark.exists():
            mark.touch()
            raise ValueError("the first time")
        if index == 2:
            data = bytearray(200 << 20)
            data[::4096] = b"x" * len(data[::4096])
        if index == 3:
            raise OSError("not worth another try")
        return index

    array = element.map(range(4))
    assert array[:3].results(LIMIT) == [0, 1, 2]
    assert isinstance(array[3].exception(LIMIT), OSError)
    assert [kinds(job) for job in array] == [[None], ["raised", None], ["oom", None], ["raised"]]


GONE = """
import os, sys
from slurm import Cluster, Retry, task

def f(log):
    with open(log, "a") as out:
        out.write("x")
    if len(open(log).read()) < 3:
        raise ValueError(len(open(log).read()))
    return "third time"

with Cluster(job_base_dir=sys.argv[1]):
    job = task(retry=Retry(times=3), cache=True)(f)(sys.argv[2])
    after = task(lambda text: text.upper())(job)
    print(job.run, after.run, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_killed_client_is_not_missed_by_guards_dependants_and_cache(
    cluster: Cluster, tmp_path: Path
) -> None:
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(GONE)
    done = subprocess.run(
        [sys.executable, script, str(tmp_path / "jobs"), log],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == -9
    first, after = done.stdout.split()
    assert cluster.attach(after).result(LIMIT) == "THIRD TIME"
    job = cluster.attach(first)
    assert job.result(LIMIT) == "third time"
    assert [attempt.error for attempt in job.history] == ["ValueError: 1", "ValueError: 2", ""]
    assert len(list((tmp_path / "jobs" / ".cache").iterdir())) == 1


def test_what_waits_for_a_job_that_fails_for_good_fails_with_it(cluster: Cluster) -> None:
    @task(retry=Retry(times=1))
    def never() -> None:
        raise ValueError("every time")

    job = never()
    after = task(lambda value: value, job_name="after")(job)
    with pytest.raises(errors.UpstreamFailed):
        after.result(LIMIT)
    assert kinds(job) == ["raised", "raised"]


def test_the_guard_of_a_job_that_succeeds_is_gone_with_it(cluster: Cluster) -> None:
    job = task(retry=1)(lambda: 1)()
    assert job.result(LIMIT) == 1
    assert "#SBATCH --requeue" in job.script
    until(
        "no job of the run is left in the queue",
        lambda: not [row for row in cluster.queue() if row.work_dir == job.path],
    )
