"""What stands in a module in the place of what its source says."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator, Sized
from typing import Any

from slurm.content.code import of_code
from slurm.content.origins import Origins
from slurm.content.places import INSIDE, Place, unwrapped
from slurm.content.statements import Statement
from slurm.content.unseen import Unseen
from slurm.task import Task

#: What a table or a number is; of other things that Python makes, none is ever put elsewhere.
_PLAIN = (
    bool, int, float, complex, str, bytes, bytearray, type(None), list, tuple, dict, set, frozenset,
)  # fmt: skip


def patched(loaded: types.ModuleType, data: bytes, one: Statement) -> Iterator[Place]:
    """The places that a statement binds in a loaded module and that hold something else now."""
    space = vars(loaded)
    for name in one.binds & space.keys():
        value = space[name]
        place = Place(loaded.__name__, name)
        if one.brings:
            if not _is_imported(loaded, value, one):
                yield place
        elif one.literal:
            if not _is_same(value, one.literal[0]):
                yield place
        elif one.is_class:
            if not isinstance(value, type) or type(value).__module__ == "unittest.mock":
                yield place
            else:
                yield from _members(place, value, data, one)
        elif name in one.defines:
            if _is_other(name, value, data, one.defines[name]):
                yield place
            elif _holds_more(name, value, one):
                yield place._replace(how=INSIDE)
        elif _may_be_filled(value, one):
            yield place


def _may_be_filled(value: Any, one: Statement) -> bool:
    """Whether a value that Python has made, as `set()`, is a table that has something in it now."""
    if isinstance(value, (Sized, types.SimpleNamespace)) and not isinstance(value, _PLAIN):
        return bool(vars(value) if isinstance(value, types.SimpleNamespace) else len(value))
    if not isinstance(value, _PLAIN):
        top = type(value).__module__.partition(".")[0]
        return top not in sys.stdlib_module_names or top == "unittest"
    return bool(value) or bool(one.evaluated.names - one.evaluated.called)


def _is_imported(loaded: types.ModuleType, value: Any, one: Statement) -> bool:
    """Whether a name still has what an import statement gave it."""
    level, target, names = one.imports[0]
    if level:
        parts = str(getattr(loaded, "__package__", None) or "").split(".")
        target = ".".join([*parts[: len(parts) - level + 1], *([target] if target else [])])
    if not names:
        return any(value is sys.modules.get(n) for n in (target, target.partition(".")[0]))
    module = sys.modules.get(target)
    full = sys.modules.get(f"{target}.{names[0]}")
    given = getattr(module, names[0], full) if module is not None else full
    return value is given or value is full


def _members(place: Place, value: type, data: bytes, one: Statement) -> Iterator[Place]:
    """The methods and attributes of a class that are others now."""
    start = f"{place.name}."
    known = {full[len(start) :] for full in one.defines}
    for full, plain in one.defines.items():
        name = full[len(start) :]
        if _is_other(name, vars(value).get(name), data, plain):
            yield place._replace(name=full)
        elif _holds_more(full, vars(value).get(name), one):
            yield place._replace(name=full, how=INSIDE)
    for name, literal in one.fields.items():
        found = vars(value).get(name)
        mocked = type(found).__module__ == "unittest.mock"
        if mocked or (type(found) in _PLAIN and not _is_same(found, literal)):
            yield place._replace(name=start + name)
    for name in vars(value).keys() - known - one.evaluated.fields:
        # Whoever makes classes gives them names of his own, most with underscores around.
        if not name.startswith("_") and type(vars(value)[name]) in (*_PLAIN, types.FunctionType):
            yield place._replace(name=start + name)


def _holds_more(full: str, value: Any, one: Statement) -> bool:
    """Whether a function has other defaults now, or attributes; of a decorated one a task only."""
    inner, plain = unwrapped(value), one.defines[full]
    if not isinstance(inner, types.FunctionType) or not (plain or isinstance(value, Task)):
        return False
    given = (inner.__defaults__, inner.__kwdefaults__)
    return (plain and bool(vars(inner))) or not _is_same(
        given, one.defaults.get(full, (None, None))
    )


def _is_other(name: str, value: Any, data: bytes, plain: bool) -> bool:
    """Whether a value is not the function of this name, as far as what decorates it shows one."""
    if type(value).__module__ == "unittest.mock":
        return True
    inner = unwrapped(value)
    while isinstance(inner, types.FunctionType) and "__wrapped__" in vars(inner):
        inner = unwrapped(vars(inner)["__wrapped__"])
    if not isinstance(inner, types.FunctionType):
        return plain
    if inner.__code__.co_name != name:
        return plain
    return of_code(inner.__code__) not in _written(data).get(name, ())


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


def _is_same(value: Any, other: Any) -> bool:
    from slurm.content.values import Digest

    try:
        return Digest(Origins()).of(value) == Digest(Origins()).of(other)
    except Unseen:
        return False
