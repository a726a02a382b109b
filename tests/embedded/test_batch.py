"""Batches: many calls, few submissions, the same results."""

from __future__ import annotations

import pytest

import slurm
from slurm import Cluster, task

WAIT = 60


@task
def number(x: int) -> int:
    if x == 13:
        raise ValueError("unlucky")
    return x


@task
def plus(a: int, b: int = 0) -> int:
    return a + b


def test_calls_of_one_task_and_layer_are_one_array(cluster: Cluster) -> None:
    with cluster.batch():
        numbers = [number(i) for i in range(4)]
        sums = [plus(n, b=1) for n in numbers]  # type: ignore[arg-type]
        last = plus(sums[0], sums[3])  # type: ignore[arg-type]
        assert all(job.key is None for job in (*numbers, *sums, last))
    assert len({job.run for job in numbers}) == 1
    assert len({job.run for job in sums}) == 1
    assert [job.result(WAIT) for job in sums] == [1, 2, 3, 4]
    assert last.result(WAIT) == 5


def test_an_element_fails_with_its_own_upstream_only(cluster: Cluster) -> None:
    with cluster.batch():
        numbers = [number(i) for i in (12, 13, 14)]
        sums = [plus(n) for n in numbers]  # type: ignore[arg-type]
        after = [plus.after(n)(1) for n in numbers]
    outcomes = [job.exception(WAIT) for job in (*sums, *after)]
    assert [type(e).__name__ for e in outcomes] == ["NoneType", "UpstreamFailed", "NoneType"] * 2


def test_other_options_are_another_array(cluster: Cluster) -> None:
    with cluster.batch():
        one = [plus(1), plus(2)]
        other = [plus.with_options(nice=3)(i) for i in (3, 4)]
    assert one[0].run == one[1].run != other[0].run == other[1].run
    assert [job.result(WAIT) for job in (*one, *other)] == [1, 2, 3, 4]


def test_asking_for_a_result_inside_sends_what_is_there(cluster: Cluster) -> None:
    with cluster.batch():
        first = number(1)
        assert first.result(WAIT) == 1
        second = plus(first, 1)  # type: ignore[arg-type]
    assert second.result(WAIT) == 2


def test_a_block_that_raises_submits_nothing(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError), cluster.batch():
        job = number(1)
        raise RuntimeError
    assert job.cancelled()
    with pytest.raises(slurm.JobCancelled):
        job.result(WAIT)
