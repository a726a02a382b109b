"""How functions travel: by reference where the node can import them, else by value."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import subprocess
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Optional, Union

import pytest

import slurm
from slurm import Cluster, JobContext, task
from slurm import JobContext as Ctx
from slurm.errors import PackagingError, PythonMismatch, UnpicklableFunction
from slurm.packaging import Request, check_packaging, prepare
from slurm.packaging.function import (
    by_value_reason,
    client_path,
    context_parameter,
    ship_function,
)
from slurm.packaging.none import choose_python, python_version
from slurm.rendering import Environment

# ---- by reference or by value -------------------------------------------------------------------


def plain(x: int) -> int:
    return x + 1


@task
def decorated(x: int) -> int:
    return x + 1


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs), function(*args, **kwargs)

    return wrapper


@twice
def wrapped(x: int) -> int:
    return x + 1


def replaced() -> int:
    return 1


first_replaced = replaced


def replaced() -> int:  # type: ignore[no-redef]
    return 2


class Model:
    def fit(self, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x

    @classmethod
    def made(cls, x: int) -> int:
        return x

    def __call__(self, x: int, ctx: JobContext) -> int:
        return x


def nested() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


@pytest.mark.parametrize(
    "function", [plain, decorated.unwrapped, wrapped, Model.static, Model.fit, math.sqrt, len]
)
def test_what_a_node_can_import_by_name_travels_by_reference(function: Callable[..., Any]) -> None:
    assert by_value_reason(function) is None
    shipped = ship_function(function, ())
    assert shipped.by == "reference"
    assert shipped.target == f"{function.__module__}:{function.__qualname__}"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (nested(), "nested function"),
        (lambda x: x, "lambda"),
        (wrapped.__wrapped__, "another object"),  # type: ignore[attr-defined]
        (first_replaced, "another object"),
        (Model().fit, "another object"),
        (Model.made, "another object"),
        (Model(), "an object that can be called"),
        (functools.partial(plain, 1), "an object that can be called"),
        (str.upper, "an object that can be called"),
    ],
)
def test_what_has_no_name_of_its_own_travels_by_value(
    function: Callable[..., Any], why: str
) -> None:
    reason = by_value_reason(function)
    assert reason is not None
    assert why in reason
    assert ship_function(function, ()).by == "value"


def test_a_module_that_was_not_imported_from_a_file_travels_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = types.ModuleType("made_up")
    exec("def f(): return 1", made.__dict__)
    assert "was not imported from a file" in str(by_value_reason(made.f))
    monkeypatch.setitem(sys.modules, "made_up", made)
    assert "was not imported from a file" in str(by_value_reason(made.f))


@pytest.fixture
def passing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that was found once and is not on the import path any more."""
    (tmp_path / "passing_module.py").write_text("def f():\n    return 1\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        module = importlib.import_module("passing_module")
        assert by_value_reason(module.f) is None
    yield module
    del sys.modules["passing_module"]


def test_a_module_that_left_the_import_path_travels_by_value(passing_module: Any) -> None:
    assert "is not on the import path" in str(by_value_reason(passing_module.f))


def test_a_module_that_is_hidden_by_another_of_its_name_travels_by_value(
    passing_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "passing_module.py").write_text("def f():\n    return 2\n")
    monkeypatch.syspath_prepend(other)
    assert "is not on the import path" in str(by_value_reason(passing_module.f))


MAIN = """
import json
from slurm import task
from slurm.packaging.function import by_value_reason, ship_function

@task
def f(x):
    return x

print(json.dumps([by_value_reason(f.unwrapped), ship_function(f.unwrapped, ()).by]))
"""


def test_a_function_of_the_script_that_runs_travels_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, timeout=60, check=True
    )
    why, by = json.loads(done.stdout)
    assert "script or notebook" in why
    assert by == "value"


LOCK = threading.Lock()


def test_a_module_level_lock_does_not_hinder_a_function_that_travels_by_reference() -> None:
    def uses_lock() -> None:
        with LOCK:
            pass

    with pytest.raises(UnpicklableFunction, match="its global 'LOCK' cannot be pickled") as caught:
        ship_function(uses_lock, ())
    assert "inside the function" in str(caught.value.hint)
    assert by_value_reason(plain) is None


def test_an_unpicklable_value_of_an_enclosing_function_is_named() -> None:
    handle = threading.Lock()

    def uses_handle() -> object:
        return handle

    with pytest.raises(UnpicklableFunction, match="'handle'"):
        ship_function(uses_handle, ())


# ---- the context --------------------------------------------------------------------------------

PLACES: list[tuple[Callable[..., Any], tuple[str, int | None] | None]] = []


def expect(
    name: str | None, position: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        PLACES.append((function, None if name is None else (name, position)))
        return function

    return note


@expect("ctx", 0)
def _first(ctx: JobContext, a: int) -> None: ...


@expect("job", 1)
def _second(a: int, job: JobContext, b: int = 0) -> None: ...


@expect("ctx", None)
def _keyword(a: int, *, ctx: JobContext) -> None: ...


@expect("ctx", 0)
def _only_positional(ctx: JobContext, /, a: int) -> None: ...


@expect("ctx", 1)
def _union(a: int, ctx: JobContext | None = None) -> None: ...


@expect("ctx", 0)
def _none_first(ctx: None | JobContext) -> None: ...  # noqa: RUF036


@expect("ctx", 0)
def _optional(ctx: Optional[JobContext] = None) -> None: ...  # noqa: UP045


@expect("ctx", 0)
def _written_union(ctx: Union[JobContext, None] = None) -> None: ...  # noqa: UP007


@expect("ctx", 0)
def _by_module(ctx: slurm.JobContext) -> None: ...


@expect("ctx", 0)
def _other_name(ctx: Ctx) -> None: ...


@expect("ctx", 0)
def _annotated(ctx: Annotated[JobContext, "the job"]) -> None: ...


@expect("ctx", 0)
def _unknown_name_beside(ctx: JobContext, other: OnlyForCheckers) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@expect("ctx", 1)
def _after_star_less(a: int, ctx: JobContext, *rest: int, **more: int) -> None: ...


@expect(None)
def _only_the_name(ctx: Any, context: object, job_context: dict[str, int]) -> None: ...


@expect(None)
def _no_annotation(ctx) -> None: ...


@expect(None)
def _many(*ctx: JobContext) -> None: ...


@expect(None)
def _a_list(ctx: list[JobContext]) -> None: ...


@expect(None)
def _one_of_two(ctx: JobContext | int) -> None: ...


@expect(None)
def _only_the_return() -> JobContext: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(("function", "place"), PLACES, ids=[f.__name__ for f, _ in PLACES])
def test_the_context_is_found_by_its_annotation_as_text(
    function: Callable[..., Any], place: tuple[str, int | None] | None
) -> None:
    assert isinstance(function.__annotations__.get("ctx", ""), str)
    assert context_parameter(function) == place


@pytest.mark.parametrize(
    "annotation",
    [JobContext, JobContext | None, Optional[JobContext]],  # noqa: UP045
)
def test_the_context_is_found_by_its_annotation_as_an_object(annotation: object) -> None:
    def function(a, given):
        return a

    function.__annotations__ = {"given": annotation}
    assert context_parameter(function) == ("given", 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("JobContext", True),
        ("'JobContext'", True),
        ("missing.JobContext", True),
        ("missing.JobContext | None", True),
        ("missing.Optional[JobContext]", True),
        ("missing.Union[None, slurm.JobContext]", True),
        ("missing.Optional['JobContext']", True),
        ("missing.MyJobContext", False),
        ("missing.JobContext | missing.Other", False),
        ("missing.list[JobContext]", False),
        ("missing.ctx", False),
    ],
)
def test_a_name_imported_for_type_checkers_only_is_known_by_its_text(
    text: str, found: bool
) -> None:
    function = types.FunctionType((lambda a, given: a).__code__, {})
    function.__annotations__ = {"given": text}
    assert context_parameter(function) == (("given", 1) if found else None)


def test_a_forward_reference_inside_optional_is_found() -> None:
    def function(given):
        return given

    function.__annotations__ = {"given": typing.Optional["JobContext"]}
    assert context_parameter(function) == ("given", 0)


def test_a_class_of_the_same_name_from_elsewhere_is_not_the_context() -> None:
    other = type("JobContext", (), {"__module__": "another.library"})

    def function(given):
        return given

    function.__annotations__ = {"given": other}
    assert context_parameter(function) is None


def test_the_context_is_found_in_what_wraps_a_function() -> None:
    assert context_parameter(twice(_second)) == ("job", 1)
    assert context_parameter(functools.partial(_second, 1)) == ("job", 0)
    assert context_parameter(Model()) == ("ctx", 1)
    assert context_parameter(Model().fit) is None


def test_a_function_without_a_signature_takes_no_context() -> None:
    assert context_parameter(dict) is None
    assert context_parameter(max) is None


# ---- the environment ----------------------------------------------------------------------------


def test_the_file_of_a_function_says_how_it_travels(tmp_path: Path) -> None:
    from slurm import rundir

    os.chmod(tmp_path, 0o700)
    shipped = ship_function(_second, ("/a", "/b"))
    rundir.write_atomically(str(tmp_path / rundir.FUNCTION), shipped.data)
    header, pickled = rundir.read_function(str(tmp_path))
    assert header["by"] == "reference"
    assert header["target"].endswith(":_second")
    assert header["path"] == ["/a", "/b"]
    assert header["context"] == ("job", 1)
    assert header["python"] == list(sys.version_info[:3])
    assert pickled == b""


def test_the_clients_own_entries_of_the_import_path_are_sent_and_pythons_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "not there"))
    monkeypatch.chdir(tmp_path)
    sent = client_path()
    assert str(tmp_path) in sent
    assert str(tmp_path / "not there") not in sent
    assert os.path.dirname(os.__file__) not in sent
    assert len(set(sent)) == len(sent)
    assert all(os.path.isabs(entry) for entry in sent)


@pytest.fixture
def other_python(tmp_path: Path) -> Iterator[str]:
    """A program that answers as a Python 3.9 would."""
    path = tmp_path / "python3.9"
    path.write_text("#!/bin/sh\necho '[3, 9]'\n")
    path.chmod(0o700)
    yield str(path)
    python_version.cache_clear()


def prepared(function: Callable[..., Any], options: dict[str, object]) -> Environment:
    cluster = Cluster("embedded")
    return prepare(Request(cluster, cluster.packaging, function, options)).environment


def test_a_function_by_value_needs_the_same_minor_version(other_python: str) -> None:
    with pytest.raises(PythonMismatch, match=r"is Python 3\.9") as caught:
        prepared(nested(), {"python": other_python})
    assert "move the function into a module" in str(caught.value.hint)


def test_a_function_by_reference_may_run_on_another_version(other_python: str) -> None:
    assert prepared(plain, {"python": other_python}).python == other_python


def test_a_python_that_cannot_be_asked_from_here_is_left_to_the_runner() -> None:
    assert python_version("/no/such/python") is None
    assert prepared(nested(), {"python": "/no/such/python"}).python == "/no/such/python"


@pytest.mark.parametrize(
    ("options", "python"),
    [
        ({}, sys.executable),
        ({"python": "/opt/py"}, "/opt/py"),
        ({"venv": "/v"}, "/v/bin/python"),
        ({"venv": "/v", "python": "/opt/py"}, "/opt/py"),
        ({"conda": "torch"}, "python"),
    ],
)
def test_the_python_of_a_job_is_what_was_asked_for(options: dict[str, str], python: str) -> None:
    assert choose_python(options) == python


def test_an_unknown_packaging_is_refused_with_the_nearest() -> None:
    with pytest.raises(PackagingError, match="packaging='atuo' is not known") as caught:
        check_packaging("atuo")
    assert caught.value.hint == "did you mean 'auto'?"
