"""Cancelling some elements of a long map: the others run, and dependants learn of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm
from slurm import Cluster, task
from waiting import until

WAIT = 90


@task
def gate(x: int, folder: str) -> int:
    """Waits until the file `go` is there."""
    deadline = time.monotonic() + WAIT
    while not (Path(folder) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    (Path(folder) / f"ran-{x}").touch()
    return x


@task
def first_of(values: list[int]) -> int:
    return values[0]


@task
def ran(folder: str) -> int:
    return len(list(Path(folder).glob("ran-*")))


@pytest.fixture
def windowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A scheduler that takes few jobs at a time: long maps go out part by part."""
    monkeypatch.setattr("slurm.target.SMALL_ARRAY", 3)
    with Cluster("embedded", job_base_dir=tmp_path / "jobs") as cluster:
        cluster._limits = {"max_job_count": 5}
        yield cluster


def test_one_element_of_a_part_that_waits_is_cancelled_alone(
    windowed: Cluster, tmp_path: Path
) -> None:
    array = gate.map([(x, str(tmp_path)) for x in range(9)])
    assert array[8].key is None and array[5].key is None
    assert array[8].cancel() and array[5].cancel()
    dependent = first_of.after(array[:5])([3])
    with pytest.raises(slurm.UpstreamFailed):
        first_of.after(array)([4])
    (tmp_path / "go").touch()
    assert [job.result(WAIT) for job in array if not job.cancelled()] == [0, 1, 2, 3, 4, 6, 7]
    assert array[8].cancelled() and array[5].cancelled() and array[8].state.value == "CANCELLED"
    assert dependent.result(WAIT) == 3
    again = Cluster("embedded", job_base_dir=tmp_path / "jobs").attach(array.run)
    assert [job.wait(WAIT) for job in again] == [True] * 5 + [False, True, True, False]
    assert not (tmp_path / "ran-8").exists() and not (tmp_path / "ran-5").exists()


def test_parts_that_are_cancelled_whole_never_go_out_and_all_who_wait_learn_of_it(
    windowed: Cluster, tmp_path: Path
) -> None:
    array = gate.map([(x, str(tmp_path)) for x in range(9)])
    whole = first_of.after(array)([1])
    after_that = first_of.after(whole)([2])
    anyway = ran.after(array, kind="afterany")(str(tmp_path))
    assert whole.key is None and after_that.key is None
    array[4:].cancel()
    (tmp_path / "go").touch()
    assert [job.result(WAIT) for job in array[:4]] == [0, 1, 2, 3]
    for job in (whole, after_that):
        with pytest.raises(slurm.UpstreamFailed):
            job.result(WAIT)
    assert anyway.result(WAIT) == 4
    again = Cluster("embedded", job_base_dir=tmp_path / "jobs").attach(array.run)
    assert [job.wait(WAIT) for job in again] == [True] * 4 + [False] * 5
    assert len(list((Path(windowed.base) / array.run).glob("submit/*.id"))) == 2


def test_what_was_cancelled_before_it_went_out_can_be_retried(
    windowed: Cluster, tmp_path: Path
) -> None:
    array = gate.map([(x, str(tmp_path)) for x in range(7)])
    array[6].cancel()
    (tmp_path / "go").touch()
    assert not array.wait(WAIT)
    assert array.retry_failed().results(WAIT) == list(range(7))


@task(retry=3)
def retried(runs: str) -> None:
    Path(runs).touch()
    time.sleep(WAIT)


def test_a_job_with_retries_whose_run_directory_is_gone_can_be_cancelled(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = retried(str(tmp_path / "runs"))
    until("it runs", (tmp_path / "runs").exists)
    shutil.rmtree(Path(cluster.base) / job.run)
    assert job.cancel()
    deadline = time.monotonic() + WAIT
    while any(row.job_id == job.id for row in cluster.queue()):
        assert time.monotonic() < deadline, "it was not cancelled"
        time.sleep(0.1)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x1c"])
def test_a_base_directory_may_hold_what_unicode_calls_the_end_of_a_line(
    tmp_path: Path, separator: str
) -> None:
    with Cluster("embedded", job_base_dir=tmp_path / f"a{separator}b") as cluster:
        array = gate.map([(x, str(tmp_path)) for x in range(2)])
        (tmp_path / "go").touch()
        assert array.results(WAIT) == [0, 1]
        assert cluster.attach(array.run).results(WAIT) == [0, 1]
