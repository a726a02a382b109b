"""Unpickles objects whose classes travel by value without resetting a class that is there already.

cloudpickle gives a class the state of the sender's copy each time one of its objects arrives. So
reading a result would undo what the script did to its own class, and each call what earlier calls
kept in theirs. Here a class that was made in this process stays as it is; one that came with calls
takes over only what has changed where they come from.
"""

import _pickle
import io
import types
import weakref
from typing import Any, Dict, List, Tuple

import cloudpickle
from cloudpickle import cloudpickle as inner

#: What cloudpickle writes into a pickle for a class that travels by value.
_REPLACED = ("_make_skeleton_class", "_make_skeleton_enum", "_class_setstate")
#: The state in which a class came last.
_arrived = weakref.WeakKeyDictionary()  # type: Any

#: What a function's globals hold besides what it uses.
_PYTHONS_OWN = {"__builtins__", "__name__", "__package__", "__file__", "__path__"}

_ATOMS = (int, float, complex, bool, str, bytes, type(None))


class Unpickler(_pickle.Unpickler):
    """`update`: the pickle is a call, so its classes are right; in a value they may be old."""

    def __init__(self, file: Any, update: bool, find: Any, buffers: Any) -> None:
        super().__init__(file, buffers=buffers)
        self._update = update
        self._find = find
        self._known: List[Any] = []

    def persistent_load(self, pid: Any) -> Any:
        """What a reference stands for."""
        if self._find is None:
            raise _pickle.UnpicklingError(f"an unexpected reference to {pid!r}")
        return self._find(pid)

    def find_class(self, module: str, name: str) -> Any:
        """Everything as usual but the making of classes."""
        if name in _REPLACED and module.partition(".")[0] == "cloudpickle":
            return getattr(self, name)
        return super().find_class(module, name)

    def _make_skeleton_class(self, *args: Any) -> Any:
        return self._known_or(args[4], "_make_skeleton_class", args)

    def _make_skeleton_enum(self, *args: Any) -> Any:
        return self._known_or(args[5], "_make_skeleton_enum", args)

    def _known_or(self, tracker: Any, name: str, args: Tuple[Any, ...]) -> Any:
        known = inner._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker) if tracker else None
        if known is None:
            return getattr(inner, name)(*args)
        self._known.append(known)
        return known

    def _class_setstate(self, cls: Any, state: Any) -> Any:
        known = any(cls is one for one in self._known)
        if known and not (self._update and cls in _arrived):
            return cls
        if self._update:
            state = (_changes(cls, state[0]), *state[1:])
        return inner._class_setstate(cls, state)


def _changes(cls: Any, attributes: Dict[str, Any]) -> Dict[str, Any]:
    """The attributes that differ from those with which the class came last; those gone are gone."""
    before = _arrived.get(cls)
    prints = {name: _print(value) for name, value in attributes.items()}
    _arrived[cls] = prints
    if before is None:
        return attributes
    for name in before:
        if name not in attributes and name in vars(cls):
            delattr(cls, name)
    return {
        name: value
        for name, value in attributes.items()
        if name not in before or before[name] != prints[name]
    }


def _print(value: Any) -> Any:
    """What is the same for two copies of a value, whatever becomes of them later."""
    if type(value) in _ATOMS:
        return type(value), value
    if type(value) is types.FunctionType and value.__closure__ is None and _is_alone(value):
        return value.__code__, repr(vars(value))
    try:
        return _Printer.print(value)
    except Exception:  # noqa: BLE001 - the user's own code; what cannot be compared has changed
        return object()


def _is_alone(function: Any) -> bool:
    """Whether a function that came by value is its code and nothing else."""
    used = set(function.__globals__) - _PYTHONS_OWN
    return not used and not function.__defaults__ and not function.__kwdefaults__


class _Printer(cloudpickle.Pickler):  # type: ignore[misc]
    """Names classes and does not look into them: methods use the class that they are of."""

    @classmethod
    def print(cls, value: Any) -> bytes:
        stream = io.BytesIO()
        cls(stream, protocol=5).dump(value)
        return stream.getvalue()

    def persistent_id(self, obj: Any) -> Any:
        return f"class {id(obj)}" if isinstance(obj, type) else None
