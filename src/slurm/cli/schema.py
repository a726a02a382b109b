"""The JSON of every verb, read from the types that the verbs return: docs/cli.md is made of it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

from slurm.cli import verbs
from slurm.cli.frame import Answer


def answers() -> dict[str, tuple[type[Answer], ...]]:
    """The answers that each verb may give; groups of verbs are left out."""
    found: dict[str, tuple[type[Answer], ...]] = {}
    for verb in verbs():
        module, _, name = verb.place.partition(":")
        function = getattr(importlib.import_module(f"slurm.cli.{module}"), name)
        if not inspect.isfunction(function):
            continue
        kind = typing.get_type_hints(function).get("return")
        if typing.get_origin(kind) is Iterator:
            kind = typing.get_args(kind)[0]
        found[verb.name] = typing.get_args(kind) or (kind,)
    return found


def rows(kind: type, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Each field of an answer, and those of what it holds: name, type, meaning."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        meaning = next(iter(getattr(hint, "__metadata__", ())), "")
        plain = typing.get_args(hint)[0] if meaning else hint
        yield prefix + field.name, json_type(plain), meaning
        inner = _inner(plain)
        if inner is not None:
            many = "[]" if typing.get_origin(plain) is list else ""
            yield from rows(inner, f"{prefix}{field.name}{many}.")


def json_type(kind: Any) -> str:
    """What JSON calls a type."""
    names = {str: "string", int: "integer", float: "number", bool: "true or false"}
    args = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if kind in names:
        return names[kind]
    if kind is type(None):
        return "null"
    if origin in (list, tuple):
        return f"list of {json_type(args[0])}"
    if origin is dict:
        return f"object of {json_type(args[1])}"
    if args:
        return " or ".join(json_type(one) for one in args)
    return "object" if dataclasses.is_dataclass(kind) else "any"


def _inner(kind: Any) -> type | None:
    """The dataclass that a field holds, itself or in a list."""
    for one in (kind, *typing.get_args(kind)):
        if isinstance(one, type) and dataclasses.is_dataclass(one):
            return one
    return None
