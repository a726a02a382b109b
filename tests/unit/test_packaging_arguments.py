"""Arguments of a call: checked against the signature, pickled, and searched for jobs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm import rundir
from slurm.errors import UnpicklableArgument, UsageError, WrongArguments
from slurm.packaging.arguments import (
    Call,
    ShippedArguments,
    call_of,
    ship_arguments,
)
from slurm.runner.arguments import load_arguments, load_common


class Upstream:
    """Has what the pickler needs of a Job: a run, an index and a reference."""

    def __init__(self, run: str, index: int = 0) -> None:
        self.run, self.index = run, index
        self.lock = threading.Lock()  # a real Job cannot be pickled either

    def __slurm_reference__(self) -> tuple[str, str, int]:
        return ("job", self.run, self.index)


@dataclass
class Config:
    name: str
    parts: list[Any] = field(default_factory=list)


def add(a: int, b: int = 2, *rest: int, scale: int = 1, **more: int) -> int:
    return a + b


def ship(*args: Any, context: Any = None, function: Any = add, **kwargs: Any) -> ShippedArguments:
    return ship_arguments(function, [Call(args, kwargs)], context)


# ---- the signature ------------------------------------------------------------------------------


def strict(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1,), {}, "missing a required argument: 'b'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1, 2), {"c": 3}, "unexpected keyword argument 'c'"),
        ((1,), {"a": 1, "b": 2}, "multiple values for argument 'a'"),
    ],
)
def test_a_call_that_python_would_refuse_is_refused_before_submission(
    args: tuple[int, ...], kwargs: dict[str, int], says: str
) -> None:
    with pytest.raises(WrongArguments, match=r"strict.*cannot be called like this") as caught:
        ship(*args, function=strict, **kwargs)
    assert says in caught.value.message
    assert "call it as strict(a: 'int', b: 'int')" in str(caught.value.hint)


def test_a_wrong_call_is_a_type_error_as_in_python() -> None:
    assert issubclass(WrongArguments, TypeError)
    assert issubclass(WrongArguments, UsageError)


def with_context(a: int, ctx: Any, b: int = 0) -> int:
    return a + b


def test_the_place_of_the_context_is_not_the_callers_to_fill() -> None:
    context = ("ctx", 1)
    ship(1, context=context, function=with_context)
    ship(1, 2, context=context, function=with_context)
    ship(1, b=2, context=context, function=with_context)
    with pytest.raises(WrongArguments, match="too many positional"):
        ship(1, 2, 3, context=context, function=with_context)


def test_a_context_given_by_name_is_the_callers_own() -> None:
    shipped = ship(1, ctx=None, context=("ctx", 1), function=with_context)
    assert load_arguments(shipped.blobs[0], "/run", "/base") == ([1], {"ctx": None})


def test_a_function_that_tells_no_signature_is_not_checked() -> None:
    assert load_arguments(ship(1, 2, function=max).blobs[0], "/", "/") == ([1, 2], {})


# ---- pickling -----------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.integers(), st.text(), st.binary()), min_size=1, max_size=4),
    st.dictionaries(st.from_regex(r"k[a-z]{0,5}", fullmatch=True), st.floats(allow_nan=False)),
)
def test_arguments_arrive_as_they_were_given(args: list[Any], kwargs: dict[str, Any]) -> None:
    shipped = ship(*args, **kwargs)
    assert load_arguments(shipped.blobs[0], "/run", "/base") == (args, kwargs)
    assert shipped.upstream == ()


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("args", "kwargs", "name", "place"),
    [
        ((LOCK,), {}, "a", None),
        ((1, LOCK), {}, "b", None),
        ((1, 2, 3, LOCK), {}, "#4", None),
        ((1,), {"scale": LOCK}, "scale", None),
        ((1,), {"other": LOCK}, "other", None),
        (([1, [LOCK]],), {}, "a", "a[1][0]"),
        ((1,), {"b": {"x": {"lock": LOCK}}}, "b", "b['x']['lock']"),
        ((Config("c", [0, LOCK]),), {}, "a", "a.parts[1]"),
    ],
)
def test_an_argument_that_cannot_be_pickled_is_named(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, place: str | None
) -> None:
    with pytest.raises(UnpicklableArgument) as caught:
        ship(*args, **kwargs)
    assert caught.value.message.startswith(f"argument '{name}' of add cannot be pickled")
    assert "lock" in str(caught.value.hint)
    assert caught.value.message.endswith(f"; it is {place}" if place else ")")
    assert caught.value.__cause__ is not None


def test_names_count_without_the_context() -> None:
    with pytest.raises(UnpicklableArgument, match="argument 'b' of with_context"):
        ship(1, LOCK, context=("ctx", 1), function=with_context)


def test_an_argument_whose_pickling_raises_is_named_with_its_words() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise RuntimeError("not me")

    with pytest.raises(UnpicklableArgument, match="RuntimeError: not me"):
        ship(1, Stubborn())


def test_an_object_that_holds_itself_does_not_hang_the_search() -> None:
    knot: list[Any] = [LOCK]
    knot.insert(0, knot)
    with pytest.raises(UnpicklableArgument, match="argument 'a'"):
        ship(knot)


# ---- jobs among the arguments -------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        lambda job: job,
        lambda job: [job],
        lambda job: (1, (2, job)),
        lambda job: {"x": {"y": [job]}},
        lambda job: {job.run: job},
        lambda job: Config("c", [job]),
        lambda job: {1: Config("c", [{"deep": (job,)}])},
    ],
    ids=["itself", "list", "tuple", "dict", "value", "dataclass", "deep"],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_job_is_found_at_any_depth(wrap: Any, by_name: bool) -> None:
    job = Upstream("up-1")
    shipped = ship(a=wrap(job)) if by_name else ship(wrap(job))
    assert shipped.upstream == (job,)


def test_a_job_that_stands_twice_is_one_dependency() -> None:
    one, other = Upstream("up-1"), Upstream("up-1", 1)
    assert ship([one, one], one).upstream == (one,)
    assert ship([one, other], one).upstream == (one, other)


def test_a_task_among_the_arguments_is_no_job() -> None:
    from slurm import task

    assert ship(task(add), [task(add)]).upstream == ()


# ---- the calls of a map -------------------------------------------------------------------------


def _load(shipped: ShippedArguments, run: Path) -> list[tuple[list[Any], dict[str, Any]]]:
    """Every call as the node would see it."""
    run.chmod(0o700)
    rundir.write_atomically(
        str(run / rundir.ARGUMENTS), rundir.encode_arguments(list(shipped.blobs))
    )
    if shipped.shared:
        shared = rundir.encode_arguments(list(shipped.shared))
        rundir.write_atomically(str(run / rundir.SHARED), shared)
    found = []
    for number in range(len(shipped.blobs)):
        blob = rundir.read_arguments(str(run), number)
        args, kwargs = load_arguments(blob, str(run), str(run.parent))
        found.append((args, {**load_common(str(run), str(run.parent)), **kwargs}))
    return found


@pytest.mark.parametrize(
    ("item", "args", "kwargs"),
    [
        (3, (3,), {}),
        ([1, 2], ([1, 2],), {}),
        ((1, 2), (1, 2), {}),
        ({"a": 1}, (), {"a": 1}),
        ((), (), {}),
    ],
)
def test_an_item_of_a_map_is_a_call(item: Any, args: tuple[Any, ...], kwargs: Any) -> None:
    assert call_of(item) == Call(args, kwargs)
    assert call_of(item, unpack=False) == Call((item,), {})


def test_an_item_that_does_not_fit_is_named_by_its_number() -> None:
    calls = [Call((1, 2), {}), Call((1,), {})]
    with pytest.raises(WrongArguments, match=r"item 1: strict.*missing a required argument: 'b'"):
        ship_arguments(strict, calls, None, label=True)


def test_an_item_that_cannot_be_pickled_is_named_by_its_number() -> None:
    calls = [Call((1, 2), {}), Call((1, LOCK), {})]
    with pytest.raises(UnpicklableArgument, match="item 1: argument 'b' of strict"):
        ship_arguments(strict, calls, None, label=True)


def test_what_all_items_have_in_common_is_stored_once(tmp_path: Path) -> None:
    calls = [Call((n,), {}) for n in range(3)]
    shipped = ship_arguments(strict, calls, None, common={"b": 9}, label=True)
    assert _load(shipped, tmp_path) == [([n], {"b": 9}) for n in range(3)]


def test_a_large_object_of_many_items_is_stored_once(tmp_path: Path) -> None:
    large = b"L" * 500_000
    calls = [Call((n, large), {}) for n in range(20)]
    shipped = ship_arguments(strict, calls, None, label=True)
    assert sum(map(len, shipped.blobs)) + sum(map(len, shipped.shared)) < 2 * len(large)
    assert _load(shipped, tmp_path) == [([n, large], {}) for n in range(20)]
