"""What is wrong in a call is told with the argument, the value and what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, OptionError, UsageError, WrongArguments, task
from slurm.packaging.arguments import Call, ship_arguments


@task
def both(a: int, b: int = 1) -> int:
    return a + b


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster("debug", job_base_dir=tmp_path)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("host", "hostname"), ("job_base_directory", "job_base_dir"), ("qoss", "qos")],
)
def test_an_argument_of_cluster_is_found_although_it_is_no_option(given: str, meant: str) -> None:
    wrong: dict[str, Any] = {given: "x"}
    with pytest.raises(OptionError, match=f"did you mean {meant}"):
        Cluster(**wrong)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2", 10**12, float("nan")])
@pytest.mark.parametrize("name", ["max_workers", "workers_per_job"])
def test_a_pool_takes_whole_numbers_that_make_sense(cluster: Cluster, name: str, bad: Any) -> None:
    numbers: dict[str, Any] = {"max_workers": 1, name: bad}
    with pytest.raises(OptionError, match=f"{name}={bad!r} is not a whole number from 1"):
        cluster.executor(**numbers)


def test_the_item_of_a_starmap_that_is_wrong_is_named(cluster: Cluster) -> None:
    items: Any = [(1, 2), 3]
    with cluster, pytest.raises(UsageError, match="item 1, 3, is not a series of arguments"):
        both.starmap(items)


def test_a_common_argument_that_the_items_give_too_is_named() -> None:
    with pytest.raises(WrongArguments) as refused:
        ship_arguments(both.unwrapped, [Call((1,), {})], None, {"a": 3})
    assert "leave 'a' out of common=" in str(refused.value)
