"""What a cache key covers: the code that a function uses, and the content of its arguments."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import pytest

from slurm.content import Digest


def same(one: Any, other: Any) -> bool:
    return Digest().of(one) == Digest().of(other)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: int) -> None:
        self.a = a


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"b": 1, "a": {3, 2, 1}},
        lambda: [Point(1, [2]), Point(1, (2,))],
        lambda: collections.OrderedDict(a=1),
        lambda: collections.deque([1, 2]),
        lambda: Slotted(4),
        lambda: Color.BLUE,
        lambda: Path("/a") / "b",
        lambda: date(2026, 1, 2),
        lambda: functools.partial(int, base=2),
        lambda: (1.5, 2j, b"x", bytearray(b"y"), None, True, range(3), ...),
        lambda: frozenset(map(str, range(50))),
    ],
)
def test_equal_values_have_equal_digests_however_often_they_are_made(
    make: Callable[[], Any],
) -> None:
    assert same(make(), make())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", b"1"),
        (b"1", bytearray(b"1")),
        ([1, 2], (1, 2)),
        ([1, 2], [2, 1]),
        (["ab"], ["a", "b"]),
        ({"a": 1}, {"a": 2}),
        ([[1], 2], [[1, 2]]),
        (Point(1), Point(2)),
        (Slotted(1), Slotted(2)),
        (Color.RED, Color.BLUE),
        (0.0, -0.0),
        (int, str),
    ],
)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert not same(one, other)


def test_what_two_parts_share_does_not_count() -> None:
    part = [1, 2]
    assert same([part, part], [[1, 2], [1, 2]])


def test_a_value_that_contains_itself_has_a_digest() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)
    assert same(one, other)


def test_arrays_count_by_their_content() -> None:
    assert same(numpy.arange(10), numpy.arange(10))
    assert not same(numpy.arange(10), numpy.arange(10)[::-1])
    assert not same(numpy.zeros(4), numpy.zeros((2, 2)))


# ---- code ---------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Writes and imports a module anew; gives the digest of its function `f`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def digest(source: str, helper: str = "") -> str:
        for name, text in (("cached_helper", helper), ("cached_module", source)):
            (tmp_path / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return Digest().of_function(importlib.import_module("cached_module").f)

    yield digest
    for name in ("cached_helper", "cached_module"):
        sys.modules.pop(name, None)


PLAIN = "def f(x):\n    return x + 1\n"


def test_comments_and_places_do_not_count(module: Any) -> None:
    assert module(PLAIN) == module("# a comment\n\n\n" + PLAIN.replace("x + 1", "x + 1  # one"))


def test_code_defaults_and_constants_count(module: Any) -> None:
    texts = [
        PLAIN,
        PLAIN.replace("1", "2"),
        PLAIN.replace("+", "-"),
        PLAIN.replace("(x)", "(x=3)"),
        PLAIN.replace("(x)", "(x, *, y=4)"),
        PLAIN.replace("x + 1", "[x + 1 for _ in range(3)]"),
        PLAIN.replace("x + 1", "[x + 2 for _ in range(3)]"),
    ]
    assert len({module(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "source",
    [
        "from cached_helper import g\ndef f(x):\n    return g(x)\n",
        "import cached_helper\ndef f(x):\n    return cached_helper.g(x)\n",
        "import cached_helper as h\ndef f(x):\n    return [h.g(y) for y in x]\n",
        "from cached_helper import K\ndef f(x):\n    return K().m(x)\n",
        "from cached_helper import K\ndef f(x):\n    return K().p\n",
        "from cached_helper import K\ndef f(x):\n    return K.s(x)\n",
        "from cached_helper import Sub\ndef f(x):\n    return Sub().m(x)\n",
        "from cached_helper import CONSTANT\ndef f(x):\n    return CONSTANT\n",
        "from cached_helper import through\ndef f(x):\n    return through(x)\n",
        "from cached_helper import wrapped\ndef f(x):\n    return wrapped(x)\n",
        "from cached_helper import g\nimport functools\nf = functools.partial(g)\n",
    ],
)
def test_a_change_in_what_the_function_uses_counts(module: Any, source: str) -> None:
    helper = """
import functools
def g(x): return x + 1
class K:
    def m(self, x): return x + 1
    @property
    def p(self): return 0 + 1
    @staticmethod
    def s(x): return x + 1
class Sub(K): pass
CONSTANT = {"a": [0 + 1]}
def through(x): return g(x)
def around(function):
    @functools.wraps(function)
    def call(*args): return function(*args)
    return call
wrapped = around(g)
def unused(x): return x + 7
"""
    before = module(source, helper)
    assert module(source, helper) == before
    assert module(source, helper.replace("+ 7", "+ 8")) == before
    assert module(source, helper.replace("+ 1", "+ 2")) != before


def test_functions_that_call_each_other_have_a_digest(module: Any) -> None:
    circle = "def f(x):\n    return g(x)\ndef g(x):\n    return f(x) if x else 1\n"
    assert module(circle) == module(circle)
    assert module(circle) != module(circle.replace("else 1", "else 2"))


def test_what_has_no_content_counts_by_its_type() -> None:
    lock = threading.Lock()

    def f() -> bool:
        return lock.locked()

    assert len(Digest().of_function(f)) == 64
