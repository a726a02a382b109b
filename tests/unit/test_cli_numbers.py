"""Every option of the command line that takes a number refuses one that makes no sense."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from cyclopts import App, Parameter

from slurm.cli import build_app
from terminal import slurm

NUMBERS = (int, float)


def _commands(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in app:
        if not name.startswith("-"):
            inner = app[name]
            yield (*words, name), inner
            yield from _commands(inner, (*words, name))


def _options() -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Command, name, and the annotation's parts of each parameter that is a number."""
    for words, app in _commands(build_app()):
        function: Callable[..., Any] | None = app.default_command
        if function is None:
            continue
        hints = get_type_hints(function, include_extras=True)
        for name in inspect.signature(function).parameters:
            hint = hints.get(name)
            parts = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
            kinds = (
                get_args(parts[0]) if get_origin(parts[0]) in (Union, types.UnionType) else parts
            )
            if any(kind in NUMBERS for kind in kinds if isinstance(kind, type)):
                yield words, name, parts


OPTIONS = list(_options())


def test_the_search_finds_the_options() -> None:
    found = {(" ".join(words), name) for words, name, _ in OPTIONS}
    assert {("logs", "lines"), ("gc", "keep"), ("ls", "number"), ("cluster up", "nodes")} <= found


@pytest.mark.parametrize(
    ("words", "name", "parts"), OPTIONS, ids=lambda part: str(part) if type(part) is str else ""
)
def test_a_number_has_limits(words: tuple[str, ...], name: str, parts: Any) -> None:
    checks = [p.validator for p in parts[1:] if isinstance(p, Parameter) and p.validator]
    assert checks, f"slurm {' '.join(words)}: {name} takes any number"
    for bad in (-1, 10**12, float("nan")):
        with pytest.raises(ValueError, match="write a number from"):
            for check in checks[0] if isinstance(checks[0], tuple) else (checks[0],):
                check(None, bad)


def test_it_is_refused_with_name_value_and_what_to_write(tmp_path: Path) -> None:
    for words, named in (
        (["logs", "last", "-n", "-4"], "-n"),
        (["gc", "--keep", "-1"], "--keep"),
        (["ls", "--number", "0"], "--number"),
        (["why", "last", "--task", "-2"], "--task"),
        (["dashboard", "--port", "70000"], "--port"),
        (["wait", "last", "--timeout", "-5"], "timeout"),
        (["gc", "--older-than=-5d"], "older-than"),
    ):
        said = slurm(*words, cwd=tmp_path)
        assert said.code == 2 and "SLURM-E1" in said.text, (words, said.text)
        assert named in said.text and words[-1].rpartition("=")[2] in said.text, said.text
