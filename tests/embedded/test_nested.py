"""Jobs that submit jobs and wait for them: a job that only waits lends its CPUs."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, task, workflow
from slurm.api.embedded.client import EmbeddedScheduler

WAIT = 60


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An embedded scheduler of its own, with one CPU."""
    import shutil
    import tempfile

    directory = tempfile.mkdtemp(prefix="sdk-one-", dir="/tmp")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", directory)
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_CPUS", "1")
    with Cluster("embedded", job_base_dir=tmp_path / "jobs") as cluster:
        yield cluster
    EmbeddedScheduler().stop()
    shutil.rmtree(directory, ignore_errors=True)


@task
def double(x: int) -> int:
    return 2 * x


@task
def outer(x: int) -> int:
    with Cluster():
        return double(x).result() + 1


@task
def gathers(how: str) -> int:
    with Cluster():
        jobs = [double(x) for x in range(2)]
        if how == "wait":
            done, _ = concurrent.futures.wait(jobs)
            return sum(job.result() for job in done)
        if how == "as_completed":
            return sum(job.result() for job in concurrent.futures.as_completed(jobs))
        return sum(double.map(range(2)).results())


@workflow
def family(x: int) -> Any:
    return double(double(x).result()).result()


@task
def sleeper(folder: str, name: str) -> float:
    (Path(folder) / name).touch()
    time.sleep(1)
    return time.time()


@task
def goes_on(folder: str) -> tuple[float, float]:
    """Waits for one job, and then works for itself."""
    with Cluster():
        double(1).result()
    begun = time.time()
    Path(folder, "woken").touch()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    return begun, time.time()


@task
def dies(folder: str) -> None:
    Path(folder, "pid").write_text(str(os.getpid()))
    with Cluster():
        sleeper(folder, "child").result()


def test_a_workflow_with_a_child_runs_on_one_cpu(small: Cluster) -> None:
    assert family(3).result(WAIT) == 12


def test_nested_jobs_run_though_the_outer_ones_hold_all_cpus(small: Cluster) -> None:
    assert outer.map(range(2)).results(WAIT) == [1, 3]


@pytest.mark.parametrize("how", ["wait", "as_completed", "results"])
def test_every_way_to_wait_counts(small: Cluster, how: str) -> None:
    assert gathers(how).result(WAIT) == 2


def test_a_job_that_goes_on_has_its_cpu_for_itself(small: Cluster, tmp_path: Path) -> None:
    job = goes_on(str(tmp_path))
    _wait_for(tmp_path / "woken")
    later = sleeper(str(tmp_path), "later")
    _, ended = job.result(WAIT)
    assert later.result(WAIT) - 1 >= ended - 0.5, "it began while the job that was woken worked"


def test_a_job_that_dies_while_it_waits_takes_nothing_with_it(
    small: Cluster, tmp_path: Path
) -> None:
    job = dies(str(tmp_path))
    _wait_for(tmp_path / "child")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert not job.wait(WAIT)
    assert double.map(range(4)).results(WAIT) == [0, 2, 4, 6]
    nodes = small.backend.nodes()
    assert nodes[0]["allocated_cpus"] <= 1


def test_a_scheduler_that_is_started_again_is_told_again(small: Cluster, tmp_path: Path) -> None:
    job = outer(5)
    EmbeddedScheduler().stop()
    assert job.result(WAIT) == 11


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)
