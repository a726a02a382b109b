"""Packaging on a real Slurm: many tasks on several nodes share one environment."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, rundir

sys.path.insert(0, str(Path(__file__).parents[1]))

from projects import make_project

CODE = """
    import os, sys
    from slurm import task, workflow

    @task(time="10min")
    def where(x=0):
        return [x, sys.prefix, os.environ["SLURMD_NODENAME"], os.environ["VIRTUAL_ENV"]]

    @workflow(time="10min")
    def flow():
        return [where(1), where(2)]
"""


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    name = "slurmshapes"
    root = make_project(tmp_path / "project", name, CODE, requires=("slurm-sdk",))
    monkeypatch.syspath_prepend(str(root))
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


def makers(cluster: Cluster, run: str) -> int:
    """How many tasks of an array have made an environment."""
    logs = Path(cluster.base, run, rundir.LOGS).glob("*.err")
    return sum("making the environment" in path.read_text() for path in logs)


def test_an_array_on_four_nodes_and_a_workflow_share_one_environment(
    shapes: Any, tmp_path: Path
) -> None:
    with Cluster(job_base_dir=tmp_path / "jobs", packaging="wheel", mem="50M") as cluster:
        array = shapes.where.map(range(32))
        found = array.results(170)
        assert [value[0] for value in found] == list(range(32))
        assert len({value[1] for value in found}) == 1
        assert len(Counter(value[2] for value in found)) > 1
        assert makers(cluster, array.run) == 1
        below = shapes.flow().result(100)
        assert [value[0] for value in below] == [1, 2]
        assert {value[1] for value in below} == {found[0][1]}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_thousand_tasks_that_start_together_make_it_once(shapes: Any, tmp_path: Path) -> None:
    with Cluster(job_base_dir=tmp_path / "jobs", packaging="wheel", mem="100M") as cluster:
        array = shapes.where.map(range(1000))
        found = array.results(800)
        assert len({value[1] for value in found}) == 1
        assert makers(cluster, array.run) == 1


@pytest.mark.full
def test_a_job_of_two_nodes_is_staged_on_both(shapes: Any, tmp_path: Path) -> None:
    packaging = {"type": "wheel", "stage": str(tmp_path / "scratch")}
    with Cluster(job_base_dir=tmp_path / "jobs", packaging=packaging) as cluster:
        job = cluster.submit(shapes.where, nodes=2, ntasks=2, all_ranks=True)()
        found = job.result(120)
        assert all(value[1].startswith(str(tmp_path / "scratch")) for value in found)
