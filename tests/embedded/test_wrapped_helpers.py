"""Helpers of a script that functools has wrapped travel with the task that uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import functools
from slurm import Cluster, task

@functools.lru_cache(maxsize=7)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@functools.cache
def plain(n):
    '''says'''
    return n + 1
plain.scale = 3

@functools.singledispatch
def show(x):
    return "something"

@show.register
def _(x: int):
    return f"int {x}"

@show.register
def _(x: list):
    return [show(one) for one in x]

class Box:
    @functools.lru_cache(maxsize=None)
    def grown(self, n):
        return n * 2

@task
def f(x, helper):
    return [
        fib(x), fib.cache_parameters(), plain(x), plain.__doc__, plain.scale, plain.__name__,
        show([1, "a"]), show.__name__, sorted(k.__name__ for k in show.registry), helper(x),
        Box().grown(x),
    ]

if __name__ == "__main__":
    with Cluster("embedded", job_base_dir={base!r}):
        print(f(10, plain).result(60))
        print(f.map([(10, plain), (11, fib)]).results(60)[1][0])
"""


def test_cached_and_dispatching_helpers_of_a_script_run_in_the_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{base!r}", repr(str(tmp_path / "jobs"))))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().splitlines()
    assert first == str(
        [55, {"maxsize": 7, "typed": False}, 11, "says", 3, "plain", ["int 1", "something"],
         "show", ["int", "list", "object"], 11, 20]
    )  # fmt: skip
    assert second == "89"


SLOTS = """
import dataclasses
from typing import NewType
from slurm import Cluster, task

Number = NewType("Number", int)

@dataclasses.dataclass(slots=True)
class Point:
    x: Number
    y: list = dataclasses.field(default_factory=list)

@dataclasses.dataclass(slots=True, frozen=True, weakref_slot=True)
class Fixed:
    x: int

class Base:
    __slots__ = "a"

class Below(Base):
    __slots__ = {"b": "what it is", "__hidden": ""}
    def __init__(self, a):
        self.a, self.b, self.__hidden = a, a + 1, a + 2
    def all(self):
        return self.a, self.b, self.__hidden

class Open(Base):
    pass

@task
def f(point: Point, below: Below) -> Number:
    try:
        point.z = 1
    except AttributeError:
        point.x += 1
    free = Open()
    free.a, free.other = 1, 2
    return point, Fixed(point.x), Below(below.all()[2]), free, Number.__name__

if __name__ == "__main__":
    with Cluster("embedded", job_base_dir={base!r}):
        point, fixed, below, free, name = f(Point(Number(1)), Below(1)).result(60)
        print(point, fixed, below.all(), free.a, free.other, name)
        print(type(point) is Point, hasattr(point, "__dict__"), isinstance(below, Base))
"""


def test_classes_of_a_script_keep_their_slots_on_both_ways(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    text = SLOTS if sys.version_info >= (3, 11) else SLOTS.replace(", weakref_slot=True", "")
    script.write_text(text.replace("{base!r}", repr(str(tmp_path / "jobs"))))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Point(x=2, y=[]) Fixed(x=2) (3, 4, 5) 1 2 Number",
        "True False True",
    ]
