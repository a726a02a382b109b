"""A client of one Python and a job of another: what goes by name runs, what cannot is refused."""

from __future__ import annotations

import functools
import os
import platform
import sys
from pathlib import Path

import pytest

from pythons import of_another_version
from slurm import Cluster, PythonMismatch

HERE = f"Python 3.{sys.version_info[1]}"


@pytest.fixture(scope="module")
def other() -> str:
    return of_another_version()


def test_a_function_that_goes_by_name_runs_on_another_python(cluster: Cluster, other: str) -> None:
    found = cluster.submit(platform.python_version, python=other)().result(60)
    assert found.split(".")[:2] != list(map(str, sys.version_info[:2]))
    assert found.startswith(Path(other).name.removeprefix("python"))


def test_a_function_by_value_is_refused_before_it_is_submitted(
    cluster: Cluster, other: str
) -> None:
    with pytest.raises(PythonMismatch, match=f"pickled on {HERE}"):
        cluster.submit(lambda: 1, python=other)()
    assert not Path(cluster.base).exists() or not list(Path(cluster.base).glob("[!.]*"))


def test_one_that_only_the_job_can_tell_apart_is_refused_there(
    cluster: Cluster, other: str
) -> None:
    # A name without a folder is looked up on the node.
    path = f"{Path(other).parent}{os.pathsep}{os.environ['PATH']}"
    there = cluster.submit(lambda: 1, python=Path(other).name, env={"PATH": path})
    with pytest.raises(PythonMismatch, match=f"by value on {HERE}, and this job runs Python 3"):
        there().result(60)


def test_a_function_among_the_arguments_is_refused_too(cluster: Cluster, other: str) -> None:
    job = cluster.submit(functools.reduce, python=other)(lambda a, b: a + b, [1, 2])  # type: ignore[call-arg]
    with pytest.raises(PythonMismatch, match=f"by value on {HERE}, and this job runs Python 3"):
        job.result(60)
