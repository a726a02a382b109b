"""The same calls as on this machine, through a real sshd to a real Slurm."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from slurm import Cluster, task


@task
def double(x: int) -> int:
    return 2 * x


@task
def where() -> str:
    return os.getcwd()


@task
def fail() -> None:
    raise ValueError("no luck")


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


@task
def moved(point: Point) -> Point:
    return Point(point.x + 1)


def test_a_call_brings_its_value(cluster: Cluster) -> None:
    assert double(21).result(timeout=60) == 42


def test_an_exception_comes_as_itself(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="no luck"):
        fail().result(timeout=60)


def test_a_map_is_one_array(cluster: Cluster) -> None:
    assert double.map(range(20)).results(timeout=120) == [2 * i for i in range(20)]


def test_the_working_directory_is_the_run(cluster: Cluster) -> None:
    job = where()
    assert job.result(timeout=60) == f"{cluster.base}/{job.run}"


def test_classes_of_the_users_modules_travel_both_ways(cluster: Cluster) -> None:
    point = moved(Point(1)).result(timeout=60)
    assert isinstance(point, Point) and point.x == 2


def test_a_job_feeds_another(cluster: Cluster) -> None:
    first: Any = double(2)
    assert double(first).result(timeout=60) == 8


def test_a_job_is_attached_by_another_cluster_object(cluster: Cluster) -> None:
    job = double(4)
    assert cluster.attach(job.run).result(timeout=60) == 8
    assert cluster.get_job(job.id).result(timeout=60) == 8


def test_polling_with_short_timeouts_ends_with_the_values(cluster: Cluster) -> None:
    polls = 0

    def poll(ask: Callable[[], Any]) -> Any:
        nonlocal polls
        while True:
            try:
                return ask()
            except TimeoutError:
                polls += 1

    array = double.map(range(12))
    threads = concurrent.futures.ThreadPoolExecutor(4)
    found = [threads.submit(poll, partial(job.result, timeout=0.02)) for job in array]
    values = [2 * n for n in range(12)]
    assert poll(partial(array.results, timeout=0.02, return_exceptions=True)) == values
    assert [one.result(60) for one in found] == values
    assert polls
