"""Attributes of other people's objects, without asking what answers to any name."""

import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def own(obj: "Any", name: str, default: "Any" = None) -> "Any":
    """An attribute that an object or its class has; `__getattr__` of its class is not asked.

    An object that answers to any name, or raises something else than AttributeError for those that
    it does not know (`__getattr__ = dict.__getitem__`), has only what it really has.
    """
    try:
        return type(obj).__getattribute__(obj, name)  # type: ignore[call-arg]
    except AttributeError:
        return default
    except Exception:  # noqa: BLE001 - a `__getattribute__` can be code of the user's own
        return default


def callable_of(function: "Any") -> "Any":
    """What has the name and the signature of a callable: its `__call__`, if it answers to any."""
    if not hasattr(type(function), "__getattr__"):
        return function
    return types.MethodType(type(function).__call__, function)
