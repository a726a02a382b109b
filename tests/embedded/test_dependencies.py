"""What a job waits for, and what becomes of it when that fails: one answer at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm import ArrayJob, Cluster, Job, Retry, errors, task, workflow

WAIT = 90


@task
def divide(x: int, seconds: float = 0) -> int:
    time.sleep(seconds)
    return 12 // x


@task
def total(values: Any = ()) -> int:
    return sum(values) if isinstance(values, (list, tuple)) else values


@task
def seven() -> int:
    return 7


def kinds(array: ArrayJob[Any]) -> list[Any]:
    found = array.results(WAIT, return_exceptions=True)
    return [type(one) if isinstance(one, Exception) else one for one in found]


# ---- items that wait for different jobs ---------------------------------------------------------


@pytest.mark.parametrize("pack", [None, 2])
@pytest.mark.parametrize("late", [True, False], ids=["running", "over"])
def test_an_item_fails_only_with_what_it_needs_itself(
    cluster: Cluster, pack: int | None, late: bool
) -> None:
    above = divide.map([(2, late), (0, late), (3, late)])
    if not late:
        above.wait(WAIT)
    below = total.map([[above[0]], [above[1]], [above[2], above[0]]], pack=pack)
    assert kinds(below) == [6, errors.UpstreamFailed, 10]


def test_what_all_items_need_keeps_all_of_them_from_starting(cluster: Cluster) -> None:
    above = divide.map([(0, 1), (3, 1)])
    below = task(lambda x, more: x, job_name="both").map([(1, above[0]), (2, [above[0], above[1]])])
    assert kinds(below) == [errors.UpstreamFailed] * 2
    assert all(job.node is None for job in below), "it took an allocation to say so"


def test_a_large_value_that_items_share_may_hold_a_job(cluster: Cluster) -> None:
    good, bad = divide(3, 1), divide(0, 1)
    shared = [*range(20_000), good]
    below = task(lambda values, x: values[-1] + (x or 0), job_name="last").map(
        [(shared, 1), (shared, bad), (shared, good)]
    )
    assert kinds(below) == [5, errors.UpstreamFailed, 8]


# ---- one item of a packed map -------------------------------------------------------------------


@pytest.mark.parametrize("late", [True, False], ids=["running", "over"])
def test_one_item_of_a_packed_map_is_waited_for_by_itself(cluster: Cluster, late: bool) -> None:
    above = divide.map([(1, 0), (0, 0), (2, 2 * late)], pack=3)
    if not late:
        above.wait(WAIT)
    assert total(above[0]).result(WAIT) == 12
    assert total(above[::2]).result(WAIT) == 18
    assert seven.after(above[0], above[2])().result(WAIT) == 7
    assert seven.after(above[1], kind="afternotok")().result(WAIT) == 7
    for make in (lambda: total(above[1]), lambda: seven.after(above[:2])()):
        with pytest.raises(errors.UpstreamFailed):
            make().result(WAIT)  # type: ignore[no-untyped-call]


# ---- afternotok ---------------------------------------------------------------------------------

Shape = Callable[[list[tuple[int, float]]], ArrayJob[int]]
SHAPES: dict[str, Shape] = {
    "array": divide.map,
    "packed": lambda calls: divide.map(calls, pack=1),
    "slice": lambda calls: divide.map([*calls, (1, 0.0), (0, 0.0)])[: len(calls)],
    "packed-slice": lambda calls: divide.map([*calls, (0, 0.0)], pack=9)[: len(calls)],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ended", ["none", "some", "all"])
def test_afternotok_of_an_array_runs_where_an_element_failed(
    cluster: Cluster, shape: str, ended: str
) -> None:
    slow = 4 * (ended == "some")
    for calls, fails in (([(1, 0), (0, 0), (2, slow)], True), ([(1, 0), (3, 0), (2, slow)], False)):
        array = SHAPES[shape]([(x, float(seconds)) for x, seconds in calls])
        if ended == "all":
            array.wait(WAIT)
        if ended == "some":
            [job.wait(WAIT) for job in array[:2]]
        if fails:
            assert seven.after(array, kind="afternotok")().result(WAIT) == 7
            assert not any(job.running() for job in array), "it began before all were over"
        else:
            with pytest.raises(errors.UpstreamFailed):
                seven.after(array, kind="afternotok")().result(WAIT)


def test_afternotok_waits_for_retries(cluster: Cluster, tmp_path: Path) -> None:
    def sometimes(times: int) -> int:
        with (tmp_path / f"{times}").open("a") as f:
            f.write("x")
        if len((tmp_path / f"{times}").read_text()) <= times:
            raise ValueError
        return times

    tried = task(retry=Retry(times=1, backoff=1))(sometimes)
    good, bad = tried(1), tried(2)
    alarms = [seven.after(job, kind="afternotok")() for job in (good, bad)]
    packed = seven.after(bad, kind="afternotok").map([(), ()], pack=2)
    with pytest.raises(errors.UpstreamFailed):
        alarms[0].result(WAIT)
    assert good.result(WAIT) == 1
    assert alarms[1].result(WAIT) == 7
    assert packed.results(WAIT) == [7, 7]
    assert isinstance(bad.exception(WAIT), ValueError)


@workflow
def returning(*values: int) -> Any:
    return [divide(x, 3) for x in values]


def test_afternotok_of_a_workflow_asks_what_became_of_what_it_returned(cluster: Cluster) -> None:
    good, bad = returning(1, 2), returning(1, 0)
    alarms = [seven.after(job, kind="afternotok")() for job in (good, bad)]
    with pytest.raises(errors.UpstreamFailed):
        alarms[0].result(WAIT)
    assert alarms[1].result(WAIT) == 7
    assert good.result(WAIT) == [12, 6]


# ---- calls that are not submitted yet -----------------------------------------------------------


def test_what_comes_after_a_collected_call_that_is_retried_needs_its_success(
    cluster: Cluster,
) -> None:
    hopeless = task(retry=Retry(times=1))(lambda: 1 // 0)
    with cluster.batch():
        first: Job[Any] = hopeless()
        after = seven.after(first).map([(), ()])
    assert kinds(after) == [errors.UpstreamFailed] * 2
