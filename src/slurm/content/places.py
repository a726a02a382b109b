"""Places in imported modules whose content depends on more than source: in client and job alike.

The client digests them when it makes a key, and the job again before its value is stored.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from slurm.content.plain import combine
from slurm.content.unseen import Unseen
from slurm.task import Task

#: How a place is looked at: the value; a function's defaults, closure and attributes; the same with
#: its code; a class's attributes and methods.
VALUE, INSIDE, CODED, CLASS = "value", "inside", "coded", "class"
_MISSING = object()
#: What Python gives each class besides what is in it.
_OF_CLASSES = frozenset(
    ("__abstractmethods__", "__dict__", "__doc__", "__firstlineno__", "__module__", "__slotnames__",
     "__static_attributes__", "__weakref__", "_abc_impl")
)  # fmt: skip


class Place(NamedTuple):
    """A name of a module, perhaps of a class in it, and what of it counts."""

    module: str
    name: str
    how: str = VALUE
    #: Of a class: the names that count; None stands for all of its own.
    fields: tuple[str, ...] | None = ()

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def content_at(loaded: types.ModuleType, place: Place) -> Any:
    """What lies at a place, made of parts that have content."""
    top, _, member = place.name.partition(".")
    value = vars(loaded).get(top, _MISSING)
    if member and value is not _MISSING:
        value = vars(value).get(member, _MISSING)
    if value is _MISSING:
        raise Unseen("a name that is gone", str(place))
    if isinstance(value, type):
        if place.how == CLASS:
            return _class(value, place.fields)
        return _made(value) if _is_of(value, loaded) else value
    if place.how == VALUE:
        return value
    inner = unwrapped(value)
    if not isinstance(inner, types.FunctionType):
        return value
    if place.how == CODED and not _is_of(inner, loaded):
        return value  # imported from elsewhere: its name tells it from others
    return _inside(inner, set(), coded=place.how == CODED)


def home_folder(loaded: types.ModuleType) -> str:
    """The entry of the import path that a module comes from; "" where it has no file."""
    file = getattr(loaded, "__file__", None)
    if not isinstance(file, str):
        return ""
    levels = loaded.__name__.count(".") + 1 + hasattr(loaded, "__path__")
    folder = os.path.abspath(file)
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder if len(folder) > 1 else ""


def unwrapped(value: Any) -> Any:
    """The function that stands behind a task, a method, a property or `functools.wraps`."""
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
            if isinstance(value, types.FunctionType):
                return value  # a decorator's function: what it holds counts, too
            value = value.__wrapped__
        else:
            return value


def _is_of(value: Any, loaded: types.ModuleType) -> bool:
    return getattr(value, "__module__", None) == loaded.__name__


def _inside(function: types.FunctionType, seen: set[int], coded: bool) -> tuple[Any, ...]:
    """What a function holds, and each function that it holds in turn."""
    seen.add(id(function))
    held: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # empty
            held.append(None)
    names = sorted(vars(function))
    parts = [function.__defaults__, function.__kwdefaults__, *held, *map(vars(function).get, names)]
    code = function.__code__ if coded else None
    name = f"{function.__module__}:{function.__qualname__}"
    return (name, code, names, [_part(one, seen) for one in parts])


def _part(value: Any, seen: set[int]) -> Any:
    inner = value.unwrapped if isinstance(value, Task) else value
    if not isinstance(inner, types.FunctionType):
        return value
    return "above" if id(inner) in seen else _inside(inner, seen, coded=False)


def _made(value: type) -> list[Any]:
    """A class that a call or a branch has made: no statement of its own says what is in it."""
    own = {name: unwrapped(one) for name, one in vars(value).items() if name not in _OF_CLASSES}
    held = [(name, _coded(own[name])) for name in sorted(own)]
    return [value.__qualname__, type(value), list(value.__bases__), held]


def _coded(value: Any) -> Any:
    return _inside(value, set(), coded=True) if isinstance(value, types.FunctionType) else value


def _class(value: type, fields: Iterable[str] | None) -> list[Any]:
    """What a class has of attributes, and what its methods hold."""
    if fields is None:
        fields = [n for n in vars(value) if not (n.startswith("__") or n in _OF_CLASSES)]
    found: list[Any] = [value.__qualname__, list(value.__bases__)]
    for name in sorted(fields):
        member = unwrapped(_attribute(value, name))
        if isinstance(member, types.FunctionType):
            held = (member.__defaults__, member.__kwdefaults__, member.__closure__, vars(member))
            found.append((name, _inside(member, set(), coded=False) if any(held) else None))
        else:
            found.append((name, member))
    for rule in vars(value).get("__dataclass_fields__", {}).values():
        found.append((rule.name, rule.default_factory, dict(rule.metadata)))
    if "_field_defaults" in vars(value):  # of a named tuple
        found.append(vars(value)["_field_defaults"])
    return found


def _attribute(value: type, name: str) -> Any:
    """An attribute of a class; for a field that has become a slot or a rule, its default."""
    found = vars(value).get(name, _MISSING)
    if found is not _MISSING and not isinstance(found, types.MemberDescriptorType):
        return found
    for table in ("__dataclass_fields__", "__pydantic_fields__", "model_fields"):
        rules = vars(value).get(table)
        if isinstance(rules, dict) and name in rules:
            return getattr(rules[name], "default", None)
    members = vars(value).get("_member_map_")  # of an enumeration
    if isinstance(members, dict) and name in members:
        return members[name].value
    if found is not _MISSING:
        return None
    # A base may have it, or nobody: a name that the body of the class has deleted.
    return getattr(value, name, None)


def joined(place: Place, digest: str) -> str:
    """A place and what is there, as one text."""
    return combine("place", str(place), place.how, repr(place.fields), digest)
