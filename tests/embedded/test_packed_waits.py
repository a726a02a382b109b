"""Packed maps whose items need values that a job which goes on will bring: they wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm import ArrayJob, Cluster, Retry, Task, errors, task, workflow

WAIT = 90


@task
def add(x: int, more: Any = 0) -> int:
    return x + (sum(more) if isinstance(more, list) else more)


@task
def late_value(x: int, folder: str) -> int:
    time.sleep(3)
    return x * 10


@workflow
def returning(count: int, folder: str) -> Any:
    return late_value.map([(x, folder) for x in range(count)])


@workflow
def failing_below() -> Any:
    return task(lambda x: 1 // x, job_name="divided").map([1, 0])


def flaky(folder: Path, **retry: Any) -> Task[[int, int], int]:
    """A task whose call `(x, times)` raises `times` times; each run leaves a line in `ran`."""

    def sometimes(x: int, times: int) -> int:
        with open(f"{folder}/ran", "a") as f:
            f.write(f"{x}\n")
        if Path(f"{folder}/ran").read_text().split().count(str(x)) <= times:
            raise ValueError(x)
        return x

    return task(retry=Retry(times=2, **retry))(sometimes)


def noting(folder: Path) -> Task[..., int]:
    """A task that adds what it is given; each run leaves a line in `seen`."""

    def noted(x: int, *values: int) -> int:
        with open(f"{folder}/seen", "a") as f:
            f.write(f"{x}\n")
        return x + sum(values)

    return task(noted)


def seen(folder: Path) -> list[int]:
    return sorted(map(int, (folder / "seen").read_text().split()))


# ---- what a workflow returned -------------------------------------------------------------------

Make = Callable[[Any], ArrayJob[int]]


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda flow: add.map([(i, flow) for i in range(5)], pack=2), [30, 31, 32, 33, 34]),
        (lambda flow: add.map(range(5), pack=2, common={"more": flow}), [30, 31, 32, 33, 34]),
        (lambda flow: add.after(flow).map(range(5), pack=2), [0, 1, 2, 3, 4]),
        (lambda flow: add.after(flow).map(range(5), pack="auto"), [0, 1, 2, 3, 4]),
    ],
    ids=["argument", "common", "after", "auto"],
)
def test_items_wait_for_the_array_that_a_workflow_returned(
    cluster: Cluster, tmp_path: Path, make: Make, values: list[int]
) -> None:
    array = make(returning(3, str(tmp_path)))
    assert array.results(WAIT) == values


def test_items_that_need_nothing_are_done_before_the_others_wait(
    cluster: Cluster, tmp_path: Path
) -> None:
    flow, one = returning(2, str(tmp_path)), noting(tmp_path)
    array = task(lambda x, more: x, job_name="first").map([(i, 0) for i in range(2)])
    mixed = one.map([(0, array[0]), (1, array[1]), (2, add(0, flow)), (3,)], pack=4)
    assert mixed.results(WAIT) == [0, 2, 12, 3]
    assert seen(tmp_path) == [0, 1, 2, 3], "an item ran twice"


def test_items_fail_with_what_the_returned_array_failed_with(cluster: Cluster) -> None:
    array = add.map([(0, failing_below()), (1, 0)], pack=2)
    found = array.results(WAIT, return_exceptions=True)
    assert [type(value) for value in found] == [errors.UpstreamFailed, int]
    assert found[1] == 1


# ---- what is retried ----------------------------------------------------------------------------


def test_items_wait_for_the_retries_of_what_they_need(cluster: Cluster, tmp_path: Path) -> None:
    above = flaky(tmp_path, backoff=1).map([(x, x % 3) for x in range(4)])
    below = noting(tmp_path).map([(x, job) for x, job in enumerate(above)], pack=4)
    assert below.results(WAIT) == [0, 2, 4, 6]
    assert seen(tmp_path) == [0, 1, 2, 3], "an item ran twice"


def test_items_wait_for_the_retry_of_their_counterparts(cluster: Cluster, tmp_path: Path) -> None:
    above = flaky(tmp_path, backoff=1).map([(x, x % 3) for x in range(4)])
    below = add.after(above, kind="aftercorr").map(range(4), pack=2)
    assert below.results(WAIT) == [0, 1, 2, 3]


def test_only_items_whose_need_failed_for_good_fail(cluster: Cluster, tmp_path: Path) -> None:
    above = flaky(tmp_path, backoff=1).map([(0, 0), (1, 9), (2, 1)])
    below = add.map([(job,) for job in above], pack=3)
    found = below.results(WAIT, return_exceptions=True)
    assert [type(value) for value in found] == [int, errors.UpstreamFailed, int]


def test_a_retried_job_in_what_items_have_in_common_is_waited_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    above = flaky(tmp_path, backoff=1)(5, 1)
    assert add.map(range(4), pack=2, common={"more": above}).results(WAIT) == [5, 6, 7, 8]


def test_what_needs_items_that_wait_goes_behind_them(cluster: Cluster, tmp_path: Path) -> None:
    above = flaky(tmp_path, backoff=1).map([(x, x % 2) for x in range(4)])
    middle = add.map([(job, 1) for job in above], pack=2)
    below = add.map([(item, 1) for item in middle], pack=4)
    assert add(0, middle).result(WAIT) == 10
    assert below.results(WAIT) == [2, 3, 4, 5]


def test_a_pack_that_waits_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    above = flaky(tmp_path, backoff="1h")(0, 1)
    array = add.map([(1,), (above,)], pack=2)
    assert array[0].result(WAIT) == 1
    assert array.cancel() == 1
    with pytest.raises(errors.JobCancelled):
        array[1].result(WAIT)


def test_a_call_that_went_behind_a_retry_is_not_retried_itself(
    cluster: Cluster, tmp_path: Path
) -> None:
    above = flaky(tmp_path, backoff=4)(7, 1)

    def both(x: int, value: int) -> int:
        with open(f"{tmp_path}/seen", "a") as f:
            f.write(f"{x}\n")
        if x == 0 and (tmp_path / "seen").read_text().split().count("0") == 1:
            raise ValueError("the first time")
        return x + value

    below = task(retry=Retry(times=1))(both).map([(0, 0), (1, above)])
    assert below.results(WAIT) == [0, 8]
    assert seen(tmp_path) == [0, 0, 1], "a call ran more often than it may"
