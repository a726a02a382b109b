"""An item of an array is a run and an index: arrays spread over runs keep their items apart."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import ArrayJob, Cluster, Job, task

WAIT = 90


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@task
def value_of(name: str, folder: str) -> str:
    """Fails the first `fail-<name>` times; waits for `go-<name>` where `wait-<name>` is there."""
    place = Path(folder)
    deadline = time.monotonic() + WAIT
    while (place / f"wait-{name}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        (place / f"fail-{name}").unlink()
    except FileNotFoundError:
        return f"value of {name}"
    raise ValueError(f"{name} failed")


@task
def note(x: int, folder: str) -> int:
    (Path(folder) / f"ran-{x}").touch()
    return x


@task
def total(values: list[int]) -> int:
    return sum(values)


@task(cache="1")
def double(x: int, folder: str) -> int:
    if (Path(folder) / f"bad-{x}").exists():
        raise ValueError(f"{x} is bad")
    return 2 * x


def test_retry_failed_twice_runs_the_items_that_failed(cluster: Cluster, tmp_path: Path) -> None:
    names = ("slow", "one", "two")
    for name in names:
        (tmp_path / f"fail-{name}").touch()
    (tmp_path / "wait-slow").touch()
    array = value_of.map([(name, str(tmp_path)) for name in names])
    assert not array[1].wait(WAIT) and not array[2].wait(WAIT)
    array = array.retry_failed()
    assert array[1].result(WAIT) == "value of one" and array[2].result(WAIT) == "value of two"
    (tmp_path / "wait-slow").unlink()
    assert not array[0].wait(WAIT)
    again = array.retry_failed()
    assert again.results(WAIT) == ["value of slow", "value of one", "value of two"]
    assert again[1] is array[1], "what has a value is not run again"
    assert again.done() and again.progress.succeeded == 3


def test_retry_failed_of_an_array_that_is_partly_cached(cluster: Cluster, tmp_path: Path) -> None:
    where = str(tmp_path)
    assert double.map([(1, where), (2, where)]).results(WAIT) == [2, 4]
    for bad in (3, 4):
        (tmp_path / f"bad-{bad}").touch()
    array = double.map([(x, where) for x in (1, 3, 2, 4)])
    assert not array.wait(WAIT)
    for bad in (3, 4):
        (tmp_path / f"bad-{bad}").unlink()
    assert array.retry_failed().results(WAIT) == [2, 6, 4, 8]


def test_aftercorr_behind_a_finished_array_heeds_each_element(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "fail-b").touch()
    first = value_of.map([("a", str(tmp_path)), ("b", str(tmp_path))])
    assert not first.wait(WAIT)
    then = note.after(first, kind="aftercorr").map([(1, str(tmp_path)), (2, str(tmp_path))])
    assert then[0].result(WAIT) == 1
    with pytest.raises(slurm.UpstreamFailed):
        then[1].result(WAIT)
    assert not (tmp_path / "ran-2").exists()


def test_aftercorr_behind_an_array_spread_over_runs(cluster: Cluster, tmp_path: Path) -> None:
    where = str(tmp_path)
    assert double.map([(2, where)]).results(WAIT) == [4]
    (tmp_path / "bad-4").touch()
    first = double.map([(x, where) for x in (1, 2, 3, 4)])
    assert len({job.run for job in first}) == 2
    then = note.after(first, kind="aftercorr").map([(x, where) for x in (1, 2, 3, 4)])
    assert [job.result(WAIT) for job in then[:3]] == [1, 2, 3]
    with pytest.raises(slurm.UpstreamFailed):
        then[3].result(WAIT)
    assert not (tmp_path / "ran-4").exists()


def test_aftercorr_pairs_a_slice_by_position(cluster: Cluster, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"wait-{name}").touch()
    (tmp_path / "fail-b").touch()
    first = value_of.map([(name, str(tmp_path)) for name in "xab"])
    then = note.after(first[1:], kind="aftercorr").map([(1, str(tmp_path)), (2, str(tmp_path))])
    for name in "ab":
        (tmp_path / f"wait-{name}").unlink()
    assert then[0].result(WAIT) == 1
    with pytest.raises(slurm.UpstreamFailed):
        then[1].result(WAIT)


@pytest.mark.parametrize("pack", [None, 2])
def test_a_map_of_nothing_is_an_array_that_is_done(cluster: Cluster, pack: int | None) -> None:
    empty: ArrayJob[Any] = note.map([], pack=pack)
    assert isinstance(empty, ArrayJob) and len(empty) == 0 and empty.results() == []
    assert empty.done() and empty.wait() and not list(empty.as_completed())
    assert empty.cancel() == 0 and empty.retry_failed() is empty and not empty.failed
    assert str(empty.progress) == "0 of 0 done, 0 failed" and not empty.states
    assert empty.partial_results() == {} and "0 items" in empty._repr_html_()
    assert not Path(cluster.base).exists(), "nothing is submitted"
    chained: Job[int] = total(empty)  # type: ignore[arg-type]
    waiting = total.after(empty)([1, 2])
    assert chained.result(WAIT) == 0 and waiting.result(WAIT) == 3
    assert total.after(empty, kind="afternotok")([5]).result(WAIT) == 5
    assert total.map(empty, pack=pack).results() == []


def test_a_run_name_that_is_taken_is_drawn_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([b"\0\0\0"] * 3)
    monkeypatch.setattr(
        "slurm.sending.os.urandom", lambda size: next(drawn, None) or os.getrandom(size)
    )
    monkeypatch.setattr("slurm.sending.time.localtime", lambda: time.gmtime(0))
    jobs = [note(x, str(tmp_path)) for x in range(2)]
    assert [job.result(WAIT) for job in jobs] == [0, 1]
    assert jobs[0].run != jobs[1].run and jobs[0].run.endswith("-000000")
