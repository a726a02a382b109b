"""The content of values and functions as a digest that is the same in every process."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slurm.task import Task

_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray)


class Digest:
    """Digests values by content: equal values of the same types have equal digests.

    A pickle would not do: the order of a set and what two parts of a value share differ from one
    process to the next. Functions count by their code, closure, defaults and the globals that they
    use; jobs by their own cache key, or by their run.
    """

    def __init__(self) -> None:
        self._path: list[int] = []
        self._functions: dict[int, str] = {}
        self._alive: list[Any] = []

    def of(self, value: Any) -> str:
        """The digest of a value."""
        kind = type(value)
        if kind in (bytes, bytearray):
            return hashlib.sha256(kind.__name__.encode() + value).hexdigest()
        if kind in _PLAIN:
            return _hash(kind.__name__, repr(value) if kind is not str else value)
        if id(value) in self._path:
            # A value that contains itself: how far up it is found is part of its content.
            return _hash("above", str(len(self._path) - self._path.index(id(value))))
        self._path.append(id(value))
        try:
            return self._of_object(value, kind)
        finally:
            self._path.pop()

    def _of_object(self, value: Any, kind: type) -> str:
        if kind in (list, tuple):
            return _hash(kind.__name__, *map(self.of, value))
        if kind in (set, frozenset):
            return _hash(kind.__name__, *sorted(map(self.of, value)))
        if kind is dict:
            return _hash("dict", *sorted(self.of(k) + self.of(v) for k, v in value.items()))
        if hasattr(kind, "__slurm_reference__"):
            return self._of_job(value)
        if isinstance(value, Task):
            return self.of_function(value.unwrapped)
        if isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
            return self.of_function(value)
        if isinstance(value, types.CodeType):
            return self._of_code(value)
        if isinstance(value, types.ModuleType):
            return _hash("module", value.__name__, str(getattr(value, "__version__", "")))
        if isinstance(value, (type, types.BuiltinFunctionType)):
            return _hash("name", str(value.__module__), value.__qualname__)
        return self._of_reduced(value, kind)

    def _of_job(self, value: Any) -> str:
        jobs = value if isinstance(value, Iterable) else (value,)
        return _hash(type(value).__name__, *(j.cache_key or f"{j.run}:{j.index}" for j in jobs))

    def _of_reduced(self, value: Any, kind: type) -> str:
        """Any other object, by what pickle would make of it."""
        reduce = copyreg.dispatch_table.get(kind)
        made: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(made, str):
            return _hash("global", kind.__module__, made)
        # What was made for this question must stay alive: its id stands in the path meanwhile.
        call, args, state, items, pairs = (*made, None, None, None)[:5]
        parts = [args, state, list(items or ()), dict(pairs or ())]
        self._alive.append(parts)
        return _hash("object", self.of(kind), self.of(call), *map(self.of, parts))

    # ---- code -----------------------------------------------------------------------------------

    def of_function(self, function: Callable[..., Any]) -> str:
        """The digest of a function: code, defaults, closure, and the globals that it uses."""
        if isinstance(function, functools.partial):
            bound = (function.args, function.keywords)
            return _hash("partial", self.of_function(function.func), self.of(bound))
        if isinstance(function, types.MethodType):
            return _hash("method", self.of(function.__self__), self.of_function(function.__func__))
        if not isinstance(function, types.FunctionType):
            return self.of(function)
        if id(function) not in self._functions:
            name = f"{function.__module__}:{function.__qualname__}"
            # Functions may call each other in a circle: the name stands for what is under way.
            self._functions[id(function)] = _hash("function", name)
            self._functions[id(function)] = self._of_own(function, name)
        return self._functions[id(function)]

    def _of_own(self, function: types.FunctionType, name: str) -> str:
        if _installed(function.__module__):
            return _hash("installed", name, _version(function.__module__))
        cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        names = _names(function.__code__)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return _hash(
            "function",
            self._of_code(function.__code__),
            *(self._of_used(value, names) for value in (*defaults, "closure", *cells)),
            *self._of_names(function.__globals__, names),
        )

    def _of_names(self, space: Mapping[str, Any], names: set[str]) -> list[str]:
        return [f"{n}={self._of_used(space[n], names)}" for n in sorted(names) if n in space]

    def _of_code(self, code: types.CodeType) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_name)
        return _hash("code", code.co_code.hex(), self.of(names), self.of(code.co_consts))

    def _of_used(self, value: Any, names: set[str]) -> str:
        """What a function uses; of a module of your own, those of its names that occur in it."""
        if id(value) in self._path:
            return self.of(value)
        own = isinstance(value, (type, types.ModuleType)) and not _installed(_home(value))
        self._path.append(id(value))
        try:
            if own and isinstance(value, types.ModuleType):
                return _hash("module", value.__name__, *self._of_names(vars(value), names))
            if own:
                return self._of_class(value, names)
        finally:
            self._path.pop()
        try:
            return self.of(value)
        except Exception:  # noqa: BLE001 - a lock or an open file has no content: its type counts
            return _hash("opaque", type(value).__qualname__)

    def _of_class(self, value: type, names: set[str]) -> str:
        members = {n: m for n, m in vars(value).items() if n not in _NOT_CONTENT}
        parts = []
        for name in sorted(members):
            member = members[name]
            inner = (getattr(member, n, None) for n in ("__func__", "fget", "func"))
            parts.append(name)
            parts.append(self._of_used(next((f for f in inner if f), member), names))
        bases = [self._of_used(base, names) for base in value.__bases__]
        return _hash("class", value.__qualname__, *bases, *parts)


#: What a class has besides what was written in it.
_NOT_CONTENT = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__",
    "__abstractmethods__", "_abc_impl", "__annotate_func__", "__annotations_cache__",
}  # fmt: skip


def _home(value: Any) -> str | None:
    """The module of a class, or a module's own name."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    return str(name)


def _names(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


@functools.lru_cache(maxsize=4096)
def _installed(module: str | None) -> bool:
    """Whether a module comes with Python or a package: its version stands for its code then."""
    if module in (None, "__main__"):
        return False
    top = str(module).partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    path = getattr(sys.modules.get(str(module)), "__file__", None)
    return bool(path) and os.path.realpath(str(path)).startswith(_homes())


@functools.lru_cache(maxsize=1)
def _homes() -> tuple[str, ...]:
    paths: Mapping[str, str] = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(os.path.realpath(paths[name]) + os.sep for name in names)


def _version(module: str) -> str:
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))


def _hash(kind: str, *texts: str) -> str:
    digest = hashlib.sha256(kind.encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
