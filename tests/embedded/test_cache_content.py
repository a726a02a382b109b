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
import pandas
import pyarrow
import pytest

from slurm.content import Digest, Slices, Unseen
from slurm.content.origins import Origins
from slurm.content.slices import Roots


def same(one: Any, other: Any) -> bool:
    return Digest(Origins()).of(one) == Digest(Origins()).of(other)


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


class Restored:
    """An object that says how its state is put back."""

    def __init__(self, put_back: Callable[[Any, Any], None]) -> None:
        self.put_back = put_back

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (Restored,), {"x": 1}, None, None, self.put_back


def put_back(value: Any, state: Any) -> None:
    vars(value).update(state)


def put_back_twice(value: Any, state: Any) -> None:
    vars(value).update({name: 2 * one for name, one in state.items()})


def in_units(unit: str) -> Any:
    return numpy.zeros(2, dtype=numpy.dtype("i4", metadata={"unit": unit}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"b": 1, "a": {3, 2, 1}},
        lambda: [[1, 2], [3, 4.5, "x", None], (True, b"")],
        lambda: [float("nan"), 0.5],
        lambda: collections.defaultdict(list, a=[1]),
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
        lambda: in_units("m"),
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
        ([0.0], [-0.0]),
        ([1, 2], [1, True]),
        ([True], [1]),
        ([2**70], [2**70 + 1]),
        (["a", "b\0"], ["a\0", "b"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([[1, [2]], 3], [[1, [2, 3]]]),
        ([(1,)], [[1]]),
        (int, str),
        (Restored(put_back), Restored(put_back_twice)),
        (in_units("m"), in_units("s")),
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


def test_what_goes_on_cannot_be_seen_and_is_named() -> None:
    holder = {"deep": [1, Point(1, (n for n in "a"))]}
    with pytest.raises(Unseen, match="generator") as caught:
        Digest(Origins()).of_part("settings", holder)
    assert caught.value.where == "settings['deep'][1].y"
    with open(__file__) as file, pytest.raises(Unseen, match="TextIOWrapper"):
        Digest(Origins()).of(file)


def test_a_lock_has_no_content() -> None:
    assert same(threading.Lock(), threading.Lock())
    assert same(threading.Condition(), threading.Condition())


# ---- modules ------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes modules; gives the digest of what `f` of the first one reaches."""
    monkeypatch.syspath_prepend(tmp_path)

    def content(value: Any, home: str) -> tuple[str, Roots, bool]:
        return Digest(Origins(), home=home).of(value), Roots(), False

    def digest(source: str, **others: str) -> str:
        for name, text in {"cached_module": source, **others}.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        roots = Roots({"cached_module"}, {"f"})
        return Slices(Origins(), content).of(roots)

    yield digest


PLAIN = "def f(x):\n    return x + 1\n"


def test_an_installed_package_counts_by_its_version(module: Any, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "wide").mkdir(parents=True)
    (site / "wide" / "__init__.py").write_text("n = 1\n")
    sys.path.insert(0, str(site))
    try:
        seen = []
        for version in ("1.0", "1.0", "2.0"):
            info = site / f"Broad-{version}.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: Broad\nVersion: {version}\n"
            )
            (info / "RECORD").write_text("wide/__init__.py,,\n")
            for old in site.glob("Broad-*"):
                if old != info:
                    for file in old.iterdir():
                        file.unlink()
                    old.rmdir()
            seen.append(module("import wide\ndef f(x):\n    return wide.n\n"))
        assert seen[0] == seen[1] != seen[2]
    finally:
        sys.path.remove(str(site))


def test_a_module_that_is_no_python_cannot_be_seen(module: Any) -> None:
    with pytest.raises(Unseen, match="cannot be read as Python"):
        module("import broken_one\n" + PLAIN, broken_one="def (:\n")


def test_a_package_that_is_not_there_counts_once_it_is(module: Any) -> None:
    source = "def f(x):\n    import perhaps_there\n    return perhaps_there.g(x)\n"
    without = module(source)
    assert module(source, perhaps_there="def g(x): return 1\n") != without


def blocks(*names: str) -> Any:
    """A data frame whose columns were added one after the other."""
    found = pandas.DataFrame({names[0]: [1.0, 2.0]})
    for name in names[1:]:
        found[name] = [1.0, 2.0]
    return found


def frame() -> Any:
    return pandas.DataFrame({"a": range(9)})[2:5]


def grid() -> Any:
    return numpy.arange(12).reshape(3, 4)[:, :2]


ROWS = pyarrow.table({"x": [1, 2, None, 4], "s": ["a", "bb", None, "d"], "l": [[1], [], None, [2]]})
PART = ROWS.slice(1, 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (blocks("a", "b"), pandas.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]})),
        (frame(), frame().copy()),
        (PART, pyarrow.Table.from_pylist(PART.to_pylist(), ROWS.schema)),
        (pyarrow.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)]), ROWS),
        (numpy.arange(12)[::2], numpy.arange(12)[::2].copy()),
        (grid(), grid().copy()),
    ],
)
def test_how_memory_is_cut_is_no_content(one: Any, other: Any) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (blocks("a", "b"), blocks("b", "a")),
        (blocks("a"), blocks("a").astype("f4")),
        (blocks("a"), blocks("a").set_index(pandas.Index([1, 2]))),
        (blocks("a"), blocks("a").rename_axis("n")),
        (blocks("a").astype("Int64"), blocks("a").astype("int64")),
        (ROWS, ROWS.replace_schema_metadata({"a": "b"})),
        (ROWS, ROWS.rename_columns(["y", "s", "l"])),
        (ROWS.slice(1), ROWS.slice(0, 3)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (numpy.zeros((2, 3)), numpy.zeros((2, 3), order="F")),
    ],
)
def test_what_a_function_can_see_of_a_table_is_content(one: Any, other: Any) -> None:
    assert not same(one, other)
