"""Pickles what cloudpickle would spoil: what functools makes of functions, slots, new types.

Of `lru_cache`, `singledispatch` and `NewType` it would write only the name, which the job cannot
find: it has no script. Of a class it would forget the slots.
"""

import functools
import sys
import types
import typing
from typing import Any, Dict, List, Tuple

import cloudpickle
from cloudpickle import cloudpickle as inner

_LRU = type(functools.lru_cache(maxsize=1)(len))
_DISPATCHING = functools.singledispatch(len)  # type: Any


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, which sends such objects by value where their module does not travel."""

    def reducer_override(self, obj: Any) -> Any:
        """How an object is made again; NotImplemented: as cloudpickle says."""
        made = _reduce(obj)
        if made is not None:
            return made
        made = super().reducer_override(obj)
        return _with_slots(obj, made) if isinstance(obj, type) else made


def _reduce(obj: Any) -> Any:
    if type(obj) is _LRU and not _goes_by_name(obj):
        told = getattr(obj, "cache_parameters", dict)  # since Python 3.9
        return make_cached, (obj.__wrapped__, dict(told()), _attributes(obj))
    is_function = type(obj) is types.FunctionType
    if is_function and obj.__code__ is _DISPATCHING.__code__ and not _goes_by_name(obj):
        registry = list(obj.registry.items())
        return make_dispatching, (registry, _attributes(obj))
    if type(obj) is typing.NewType and not _goes_by_name(obj):  # a function before Python 3.10
        return make_new_type, (obj.__name__, obj.__supertype__, obj.__module__)
    return None


def _with_slots(cls: type, made: Any) -> Any:
    """The making of a class whose objects keep their attributes in slots there, too."""
    if type(made) is not tuple or made[0] is not inner._make_skeleton_class:
        return made
    if "__slots__" not in vars(cls):
        return made
    metaclass, name, bases, given, *more = made[1]
    given = dict(given, __slots__=cls.__slots__)  # type: ignore[attr-defined]
    return (made[0], (metaclass, name, bases, given, *more), *made[2:])


def _goes_by_name(obj: Any) -> bool:
    """Whether the job can import it."""
    module = getattr(obj, "__module__", None) or "__main__"
    loaded = sys.modules.get(module)
    if module == "__main__" or loaded is None or inner._is_registered_pickle_by_value(loaded):
        return False
    found = loaded  # type: Any
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


#: What `functools` itself gives such a function.
_GIVEN = {"__wrapped__", "cache_parameters", "registry", "register", "dispatch", "_clear_cache"}


def _attributes(obj: Any) -> Dict[str, Any]:
    named = {name: getattr(obj, name) for name in ("__name__", "__qualname__", "__doc__")}
    named["__module__"] = obj.__module__
    return dict(named, **{k: v for k, v in vars(obj).items() if k not in _GIVEN})


def make_cached(function: Any, parameters: Dict[str, Any], attributes: Dict[str, Any]) -> Any:
    """A function with an empty cache of its own."""
    size, typed = parameters.get("maxsize", 128), parameters.get("typed", False)
    return _named(functools.lru_cache(size, typed)(function), attributes)


def make_dispatching(registry: List[Tuple[Any, Any]], attributes: Dict[str, Any]) -> Any:
    """A function that chooses among others by the type of its first argument."""
    functions = dict(registry)
    made = functools.singledispatch(functions[object])
    for kind, function in registry:
        if kind is not object:
            made.register(kind, function)
    return _named(made, attributes)


def make_new_type(name: str, kind: Any, module: str) -> Any:
    """A type that is another one for type checkers only."""
    make = typing.NewType  # type: Any
    made = make(name, kind)
    made.__module__ = module
    return made


def _named(made: Any, attributes: Dict[str, Any]) -> Any:
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def dumps(value: Any) -> bytes:
    """The pickle of a value."""
    import io

    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()
