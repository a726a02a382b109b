"""The same calls as on this machine, through a real sshd to a real Slurm."""

from __future__ import annotations

import os
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
