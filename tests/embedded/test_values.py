"""Values on their way: each call gets what it was given, and nobody's classes are reset."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, File, UsageError, task

LENGTH = 8192


class Attributes(dict):
    """A dictionary whose keys are attributes, as several libraries have one."""

    __getattr__ = dict.__getitem__


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task
def grow(item: int, table: list[int]) -> int:
    table.append(item)
    return len(table)


@task
def same(value: Any) -> Any:
    return value


@task
def written(n: int, folder: str) -> File:
    path = Path(folder) / "one-name"
    path.write_text(f"{n:06d}")
    return File(path)


def reused() -> Iterator[list[int]]:
    buffer = [0] * LENGTH
    for n in range(4):
        buffer[0] = n
        yield buffer


@pytest.mark.parametrize("options", [{}, {"pack": 2}], ids=["array", "packed"])
def test_each_item_of_a_map_is_what_the_generator_held_at_its_turn(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    assert total.map(reused(), unpack=False, **options).results(60) == [0, 1, 2, 3]


def test_a_cached_map_takes_the_items_as_they_come(cluster: Cluster) -> None:
    cached = total.with_options(cache=True)
    assert cached.map(reused(), unpack=False).results(60) == [0, 1, 2, 3]


def test_the_debug_backend_takes_the_items_as_they_come(tmp_path: Path) -> None:
    with Cluster("debug", job_base_dir=tmp_path):
        assert total.map(reused(), unpack=False).results(60) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [1, LENGTH], ids=["small", "large"])
def test_an_item_never_sees_what_another_did_to_a_common_value(cluster: Cluster, size: int) -> None:
    jobs = grow.map(range(6), common={"table": [0] * size}, pack=6, unpack=False)
    assert jobs.results(60) == [size + 1] * 6


def test_an_item_never_sees_what_another_did_to_a_value_that_they_share(cluster: Cluster) -> None:
    table = [0] * LENGTH
    jobs = grow.map([(n, table) for n in range(6)], pack=6)
    assert jobs.results(60) == [LENGTH + 1] * 6


def test_files_of_one_name_size_and_time_are_told_apart(cluster: Cluster, tmp_path: Path) -> None:
    jobs = written.map(range(40), common={"folder": str(tmp_path)}, pack=40, unpack=False)
    assert [int(file.path.read_text()) for file in jobs.results(60)] == list(range(40))


@pytest.mark.parametrize("options", [None, {"pack": 1}], ids=["single", "packed"])
def test_a_value_may_answer_to_any_name(cluster: Cluster, options: dict[str, Any] | None) -> None:
    value = Attributes(a=1)
    if options is None:
        assert same(value).result(60) == value
    else:
        assert same.map([value], unpack=False, **options).results(60) == [value]


SCRIPT = """
from slurm import Cluster, task


class Model:
    scale = 1
    made = 0

    def value(self):
        return self.scale


def patched(self):
    return 100 * self.scale


@task
def make(model):
    Model.made += 7
    model.x = model.scale
    return model


if __name__ == "__main__":
    with Cluster("embedded", job_base_dir={base!r}) as cluster:
        Model.scale = 2
        job = make(Model())
        job.wait()
        Model.scale, Model.made, Model.value = 3, 5, patched
        model = job.result()
        print(type(model) is Model, model.x, Model.scale, Model.made, model.value())
        with cluster.executor(max_workers=1) as pool:
            pool.submit(make, Model()).result(60)
            Model.scale = 4
            later = pool.submit(make, Model()).result(60)
            print(later.x, Model.scale, Model.made, pool.submit(count, Model()).result(60))
"""


def test_reading_a_value_leaves_the_classes_of_the_script_alone(tmp_path: Path) -> None:
    text = SCRIPT.replace("{base!r}", repr(str(tmp_path / "jobs")))
    text = text.replace(
        "\n@task\ndef make", "\ndef count(model):\n    return Model.made\n\n\n@task\ndef make"
    )
    script = tmp_path / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    # What the script did to its class stays; the worker's own count goes on from call to call,
    # and it takes over what the script has changed.
    assert done.stdout.split() == ["True", "2", "3", "5", "300", "4", "4", "5", "19"], done.stderr


class Called(Attributes):
    """The same, to be called."""

    def __call__(self, x: int) -> int:
        return x + len(self)


def test_a_callable_that_answers_to_any_name_is_a_task_and_a_call_of_an_executor(
    cluster: Cluster,
) -> None:
    function = Called(a=1)
    assert task(function)(1).result(60) == 2
    with cluster.executor(1) as pool:
        assert pool.submit(function, 2).result(60) == 3


@pytest.mark.parametrize("kind", ["embedded", "debug"])
def test_a_function_that_yields_is_refused_when_it_is_called(kind: str, tmp_path: Path) -> None:
    def numbers(n: int) -> Iterator[int]:
        yield n

    class Counter:
        async def numbers(self, n: int) -> Any:
            yield n

    with Cluster(kind, job_base_dir=tmp_path / "jobs") as cluster:
        for function in (numbers, functools.partial(numbers, 1), Counter().numbers):
            with pytest.raises(UsageError, match="is a generator function"):
                task(function)(1)
            with pytest.raises(UsageError, match="is a generator function"):
                task(function).map([1])
        with cluster.executor(1) as pool, pytest.raises(UsageError, match="numbers is a gen"):
            pool.submit(numbers, 1)
    assert not (tmp_path / "jobs").exists()
