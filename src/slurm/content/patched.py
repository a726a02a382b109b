"""What a program has put in the place of what its modules say: the debug backend runs that."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from slurm.content.code import of_code
from slurm.content.origins import Origins
from slurm.content.statements import Statement
from slurm.content.unseen import Unseen
from slurm.task import Task


def patched(loaded: types.ModuleType, data: bytes, one: Statement) -> Iterator[tuple[str, Any]]:
    """The names that a statement binds in a loaded module and that hold something else now."""
    space = vars(loaded)
    for name in one.binds & space.keys():
        value = space[name]
        if one.literal:
            # A table that begins empty is a memo or a register: the program is meant to fill it.
            if not _is_empty(one.literal[0]) and not _is_same(value, one.literal[0]):
                yield name, value
        elif isinstance(value, type):
            yield from _members(name, value, data, one)
        elif name in one.defines and _is_other(name, value, data, one.defines[name]):
            yield name, value


def _members(name: str, value: type, data: bytes, one: Statement) -> Iterator[tuple[str, Any]]:
    start = f"{name}."
    for full, plain in one.defines.items():
        member = vars(value).get(full[len(start) :])
        if full.startswith(start) and _is_other(full[len(start) :], member, data, plain):
            yield full, member


def _is_other(name: str, value: Any, data: bytes, plain: bool) -> bool:
    """Whether a value is not the function of this name, as far as what decorates it shows one."""
    if type(value).__module__ == "unittest.mock":
        return True
    inner = _unwrapped(value)
    if not isinstance(inner, types.FunctionType):
        return plain
    if inner.__code__.co_name != name:
        return plain
    return of_code(inner.__code__) not in _written(data).get(name, ())


def _unwrapped(value: Any) -> Any:
    while True:
        if isinstance(value, Task):
            value = value.unwrapped
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        elif isinstance(getattr(value, "__dict__", None), dict) and "__wrapped__" in vars(value):
            value = value.__wrapped__
        else:
            return value


@functools.lru_cache(maxsize=256)
def _written(data: bytes) -> dict[str, set[str]]:
    """The digests of the functions of a source file by their names."""
    found: dict[str, set[str]] = {}
    waiting = [compile(data, "", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        found.setdefault(code.co_name, set()).add(of_code(code))
        waiting += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return found


def _is_empty(value: Any) -> bool:
    return isinstance(value, (list, dict)) and not value


def _is_same(value: Any, other: Any) -> bool:
    from slurm.content.values import Digest

    try:
        return Digest(Origins()).of(value) == Digest(Origins()).of(other)
    except Unseen:
        return False
