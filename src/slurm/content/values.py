"""The digest of a value as it travels: by content, with the code that the job cannot import.

What the job imports by name stands here as a name; `roots` collects these, for `slices` to follow.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import contextvars
import functools
import io
import os
import pathlib
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from slurm.content import memory
from slurm.content.code import (
    LOADERS,
    READERS,
    RUNNERS,
    TEXT_READERS,
    Used,
    of_code,
    of_documented,
    used_by,
)
from slurm.content.origins import OWN, Origins
from slurm.content.plain import SCALARS, combine, holds_text, of_memory, of_scalar, of_series
from slurm.content.slices import Roots
from slurm.content.unseen import Unseen
from slurm.task import Task

#: They hold nothing but whether somebody holds them; each process has its own.
_EMPTY = (
    _thread.LockType, _thread.RLock, _thread._local, contextvars.ContextVar,
)  # fmt: skip
#: They go on: what comes next is nowhere to be seen.
_RUNNING = (
    io.IOBase, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
    types.FrameType, types.TracebackType, weakref.ref, weakref.ProxyType,
)  # fmt: skip
_NAMED = (
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
_LRU = type(functools.lru_cache(lambda: None))
#: What runs or reads code: seen where it is called by its own name, and nowhere else.
_REACHING = RUNNERS | LOADERS | TEXT_READERS | {"reload"}
_SINGLE: Any = functools.singledispatch(lambda _: None)


class Digest:
    """Digests values by content: equal values of the same types have equal digests.

    A pickle would not do: the order of a set and what two parts of a value share differ from one
    process to the next. A job counts by its own key: `jobs` has those that were met, in order.
    """

    def __init__(self, origins: Origins, documented: bool = False, home: str = "") -> None:
        self._origins = origins
        #: Paths below this folder count as if it lay elsewhere; whether there were any.
        self._home = home and home + os.sep
        self.moves = False
        #: Whether docstrings count: somebody reads them.
        self._documented = documented
        self._path: list[int] = []
        #: How far up a value on the path was met again, while what holds it was digested.
        self._lowest = sys.maxsize
        self._known: dict[int, str] = {}
        #: How many functions or classes of a name there are.
        self._met: collections.Counter[str] = collections.Counter()
        self._alive: list[Any] = []
        self.roots = Roots()
        self.jobs: list[Any] = []

    def with_docs(self) -> Digest | None:
        """One that counts docstrings, too, where something that was digested reads them."""
        if self._documented or READERS.isdisjoint(self.roots.names):
            return None
        return Digest(self._origins, documented=True)

    def of(self, value: Any) -> str:
        """The digest of a value."""
        kind = type(value)
        if self._home and kind is str and f"{value}{os.sep}".startswith(self._home):
            self.moves = True
            return combine("below", value[len(self._home) :])
        if kind in SCALARS:
            return of_scalar(value)
        found = self._known.get(id(value))
        if found is not None:
            return found
        if id(value) in self._path:
            # A value that contains itself: how far up it is found is part of its content.
            at = self._path.index(id(value))
            self._lowest = min(self._lowest, at)
            return combine("above", str(len(self._path) - at))
        before, self._lowest = self._lowest, sys.maxsize
        self._path.append(id(value))
        jobs = len(self.jobs)
        try:
            found = self._of_object(value, kind)
        except RecursionError as error:
            raise Unseen(f"a {kind.__name__} that is nested too deeply") from error
        finally:
            self._path.pop()
        if self._lowest >= len(self._path) and len(self.jobs) == jobs:
            self._known[id(value)] = found
            self._alive.append(value)
        self._lowest = min(before, self._lowest)
        return found

    def of_part(self, place: str, value: Any) -> str:
        """The digest of a value that has a name, for the case that it cannot be seen."""
        return self._at(str(place), value)

    def _of_object(self, value: Any, kind: type) -> str:
        if kind in (list, tuple):
            return combine(kind.__name__, *self._of_items(value))
        if kind in (set, frozenset):
            return combine(kind.__name__, *sorted(map(self.of, value)))
        if kind is dict:
            return combine("dict", *self._of_pairs(value))
        if kind is bytearray:
            return of_memory("bytearray", value)
        if self._home and isinstance(value, pathlib.PurePath):
            return combine("path", self.of(kind), self.of(str(value)))
        if hasattr(kind, "__slurm_reference__"):
            return self._of_job(value)
        if kind.__module__ == "slurm.files" and kind.__name__ == "File":
            return self._of_file(value)
        if isinstance(value, Task):
            return combine("task", self.of(value.unwrapped), self.of(value._given))
        for types_, read in _READERS:
            if isinstance(value, types_):
                return read(self, value)
        if isinstance(value, _EMPTY):
            return combine("empty", kind.__qualname__, *self._of_variable(value))
        if isinstance(value, io.IOBase) and value.closed:
            return combine("closed", kind.__qualname__)
        if isinstance(value, _RUNNING):
            raise Unseen(f"a {kind.__qualname__}")
        return self._of_instance(value, kind)

    def _of_variable(self, value: Any) -> list[str]:
        """A context variable by its name and its default, which an empty context shows."""
        if not isinstance(value, contextvars.ContextVar):
            return [""]
        try:
            return [value.name, self.of(contextvars.Context().run(value.get))]
        except LookupError:
            return [value.name]

    def _of_items(self, values: Any) -> list[str]:
        found = None if self._has_paths(values) else of_series(values)
        if found is not None:
            return [found]
        digests = []
        for number, one in enumerate(values):
            try:
                digests.append(self.of(one))
            except Unseen as unseen:
                unseen.within(f"[{number}]")
                raise
        return digests

    def _has_paths(self, values: Any) -> bool:
        """Whether among plain values there may be paths below the folder that does not count."""
        return bool(self._home) and holds_text(values, self._home[:-1])

    def _of_pairs(self, value: Mapping[Any, Any]) -> list[str]:
        """The pairs of a dict in their order, which a function can see."""
        listed = list(value.values())
        found = None if self._has_paths(listed) else of_series(listed)
        values = [found] if found is not None else map(self._of_entry, value, value.values())
        return [*self._of_items(list(value)), "values", *values]

    def _of_entry(self, key: Any, value: Any) -> str:
        return self._at(f"[{_short(key)}]", value)

    def _of_job(self, value: Any) -> str:
        self.jobs.append(value)
        return combine("job", str(len(self.jobs)))

    def _of_file(self, value: Any) -> str:
        """A file that goes with a call: its name and its content."""
        from slurm.files import hash_of

        if value._stored is not None and value._path is None:
            # It lies on the cluster, under the hash of its content.
            content = os.path.basename(os.path.dirname(value._stored))
        else:
            path = str(value._path)
            try:
                self._origins.watch(path)
                content = hash_of(path)
            except Exception as error:  # it may be missing, or be a folder
                raise Unseen(f"{value!r} cannot be read ({error})") from error
        return combine("file", value.name, content)

    # ---- functions ------------------------------------------------------------------------------

    def _of_function(self, function: types.FunctionType) -> str:
        if self._goes_by_name(function):
            return self._of_name(function)
        if function.__code__ is _SINGLE.__code__ and hasattr(function, "registry"):
            return combine("singledispatch", self.of(dict(function.registry)))
        name = f"{function.__module__}:{function.__qualname__}"
        # Functions may call each other in a circle: the name stands for what is under way.
        self._begin("function", name, function)
        try:
            found = self._of_own(function, name)
        except Unseen as unseen:
            del self._known[id(function)]
            if not unseen.where:
                unseen.where = name.replace(":", ".")
            raise
        self._known[id(function)] = found
        return found

    def _begin(self, kind: str, name: str, value: object) -> None:
        """Let a name stand for what is digested now; those of one name are told apart."""
        self._known[id(value)] = combine(kind, name, str(self._met[name]))
        self._met[name] += 1
        self._alive.append(value)

    def _of_own(self, function: types.FunctionType, name: str) -> str:
        code = function.__code__
        used = used_by(code)
        space = function.__globals__
        self.note(used)
        for level, module, names in used.imports:
            self._import(space, level, module, names)
        parts = [self.of(function.__defaults__), self.of(function.__kwdefaults__)]
        for free, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # empty
                parts.append(free + self._at(free, cell.cell_contents))
        module_name = str(space.get("__name__", function.__module__))
        for used_name in sorted(used.globals & space.keys()):
            value = space[used_name]
            if used_name in _PYTHONS_OWN:
                if isinstance(value, str):  # as `__file__` and `__doc__`
                    parts.append(f"{used_name} {value!r}")
                continue
            known = used_name != "reload" and used_name in _REACHING
            if known and getattr(value, "__name__", None) == used_name:
                continue  # what it is given has been looked at
            place = f"{module_name}.{used_name}"
            parts.append(f"{used_name}={self._at(place, value)}")
            self._bring_below(value, used.names)
        if vars(function):
            parts.append(self.of(vars(function)))
        parts.append(self._at("annotations of ", _annotations(function)))
        if self._documented:
            parts.append(f"says {function.__doc__}")
        return combine("function", (of_documented if self._documented else of_code)(code), *parts)

    def note(self, used: Used) -> None:
        """Note what byte code names."""
        self.roots.names |= used.names
        self.roots.texts |= used.texts
        self.roots.dynamic |= used.dynamic

    def _import(
        self, space: Mapping[str, Any], level: int, name: str, names: Iterable[str]
    ) -> None:
        """Note what a function imports when it runs."""
        package = str(space.get("__package__") or "")
        if level:
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - level + 1])
            name = f"{base}.{name}" if name else base
        self.roots.modules.add(name)
        self.roots.names.update(names)
        if self._origins.find(name).kind == OWN:
            for one in names:
                full = f"{name}.{one}"
                if one != "*" and self._origins.find(full).kind == OWN:
                    self.roots.modules.add(full)
                self.roots.dynamic |= one == "*"

    def _bring_below(self, value: Any, names: set[str]) -> None:
        """Submodules that somebody has imported travel with the package that is used."""
        if isinstance(value, types.ModuleType) and hasattr(value, "__path__"):
            start = value.__name__ + "."
            for full in list(sys.modules):
                if full.startswith(start) and names.issuperset(full[len(start) :].split(".")):
                    self.roots.modules.add(full)

    def _at(self, place: str, value: Any) -> str:
        try:
            return self.of(value)
        except Unseen as unseen:
            unseen.within(place)
            raise

    def _of_wrapper(self, value: Any) -> str:
        if self._goes_by_name(value):
            return self._of_name(value)
        return combine("lru_cache", repr(value.cache_parameters()), self.of(value.__wrapped__))

    def _of_method(self, value: types.MethodType) -> str:
        return combine("method", self.of(value.__self__), self.of(value.__func__))

    def _of_builtin(self, value: Any) -> str:
        holder = getattr(value, "__self__", None)
        if holder is None or isinstance(holder, types.ModuleType):
            _refuse_reaching(value)
            self._enter_module(str(value.__module__ or "builtins"))
            return combine("builtin", str(value.__module__), value.__qualname__)
        return combine("bound", value.__name__, self._at("__self__", holder))

    def _of_partial(self, value: functools.partial[Any]) -> str:
        parts = (value.func, value.args, value.keywords, list(value.keywords), vars(value))
        return combine("partial", type(value).__qualname__, *map(self.of, parts))

    def _of_descriptor(self, value: Any) -> str:
        names = ("fget", "fset", "fdel") if isinstance(value, property) else ("__func__",)
        parts = [self.of(getattr(value, name)) for name in names]
        return combine("descriptor", self.of(type(value)), *parts)

    # ---- classes, modules, and what goes by name ------------------------------------------------

    def _goes_by_name(self, value: Any) -> bool:
        """Whether the job imports it: whether its module has it under its name."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not module or not name or not self._is_importable(module):
            return False
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return found is value or getattr(found, "_function", None) is value

    def _is_importable(self, module: str) -> bool:
        loaded = sys.modules.get(module)
        if module in ("__main__", "__mp_main__") or loaded is None:
            return False
        if getattr(loaded, "__spec__", None) is None and module != "builtins":
            return False
        return not _travels(module)

    def _of_name(self, value: Any) -> str:
        _refuse_reaching(value)
        if self._origins.find(value.__module__).kind == OWN:
            self.roots.enter(value.__module__, value.__qualname__)
        else:
            self._enter_module(value.__module__)
        return combine("name", value.__module__, value.__qualname__)

    def _enter_module(self, name: str) -> None:
        if name not in ("builtins", "__main__"):
            self.roots.modules.add(name)

    def _of_module(self, value: types.ModuleType) -> str:
        name = value.__name__
        if self._is_importable(name):
            self._enter_module(name)
            return combine("module", name)
        members = {n: m for n, m in vars(value).items() if n not in _PYTHONS_OWN}
        return combine("module", name, *self._of_members(name, members))

    def _of_class(self, value: type) -> str:
        if self._goes_by_name(value):
            return self._of_name(value)
        name = f"{value.__module__}.{value.__qualname__}"
        if value.__module__ in ("builtins", "types", "typing"):
            return combine("name", name)
        self._begin("class", name, value)
        try:
            members = {n: m for n, m in vars(value).items() if n not in _NOT_CONTENT}
            if self._documented:
                members["__doc__"] = value.__doc__
            above = [self.of(one) for one in (type(value), *value.__bases__)]
            inner = list(self._of_members(name, members))
        except Unseen:
            del self._known[id(value)]
            raise
        self._known[id(value)] = found = combine("class", value.__qualname__, *above, *inner)
        return found

    def _of_members(self, place: str, members: Mapping[str, Any]) -> Iterator[str]:
        for name in sorted(members):
            yield name
            yield self._at(f"{place}.{name}", members[name])

    # ---- objects --------------------------------------------------------------------------------

    def _of_instance(self, value: Any, kind: type) -> str:
        """Any other object, by what pickle would make of it."""
        found = memory.of_array(value)
        if found is not None:
            self._enter_module(kind.__module__)
            return combine("array", self.of(kind), *found[0], *map(self.of, found[1]))
        made = _reduced(value, kind)
        if isinstance(made, str):
            holder = pickle.whichmodule(value, made)  # type: ignore[attr-defined]
            self.roots.enter(holder, made)
            return combine("global", holder, made, self.of(kind))
        # What was made for this question must stay alive: its id stands in the path meanwhile.
        call, args, state, items, pairs, setter = (*made, *[None] * 4)[:6]
        listed, paired = list(items or ()), list(pairs or ())
        if kind is collections.defaultdict or kind is collections.Counter:
            paired = [dict(paired)]  # two of them are equal in any order
        parts = [args, state, listed, paired]
        self._alive.append(parts)
        how = map(self.of, (kind, call, setter))
        return combine("object", *how, *map(self._of_state, parts))

    def _of_state(self, part: Any) -> str:
        """The digest of a state: of a dict the names are those of attributes."""
        if type(part) is not dict or not all(type(name) is str for name in part):
            return self.of(part)
        found = []
        for name in sorted(part):
            found.append(name + self._at(f".{name}", part[name]))
        return combine("state", *found)


def _refuse_reaching(value: Any) -> None:
    """Refuse what runs or reads code where nobody sees what it is given."""
    module = str(value.__module__).partition(".")[0]
    if value.__qualname__ in _REACHING and module in _RUNNING_CODE:
        raise Unseen(f"{value.__qualname__} under another name")


def _reduced(value: Any, kind: type) -> Any:
    """What pickle would make of an object; what it cannot make anything of cannot be seen."""
    import cloudpickle

    reduce = cloudpickle.Pickler.dispatch_table.get(kind)
    try:
        return reduce(value) if reduce else value.__reduce_ex__(5)
    except Unseen:
        raise
    except Exception as error:  # the user's own code
        raise Unseen(f"a {kind.__qualname__} ({error})") from error


def _annotations(function: types.FunctionType) -> Any:
    """A function's annotations; what makes them, where they are made when they are asked for."""
    if sys.version_info >= (3, 14):
        return getattr(function.__annotate__, "__code__", None)
    return list(function.__annotations__.items())


def _travels(module: str) -> bool:
    """Whether what a module defines is pickled by value now."""
    import cloudpickle

    registered = cloudpickle.list_registry_pickle_by_value()
    parts = module.split(".")
    return any(".".join(parts[:end]) in registered for end in range(1, len(parts) + 1))


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) < 40 else text[:36] + "..."


def _read_proxy(digest: Digest, value: Any) -> str:
    return combine("proxy", digest.of(dict(value)))


def _read_view(digest: Digest, value: memoryview) -> str:
    return combine("memoryview", value.format, repr(value.shape), of_memory("", value.tobytes()))


def _read_buffer(digest: Digest, value: Any) -> str:
    return of_memory("buffer", value.raw())


def _read_code(digest: Digest, value: types.CodeType) -> str:
    digest.note(used_by(value))
    return of_code(value)


def _read_cell(digest: Digest, value: types.CellType) -> str:
    try:
        return combine("cell", digest.of(value.cell_contents))
    except ValueError:
        return combine("cell")


def _read_named(digest: Digest, value: Any) -> str:
    return combine("descriptor", value.__objclass__.__qualname__, value.__name__)


def _read_variable(digest: Digest, value: Any) -> str:
    """A type variable: a pickle of it has a number of its own in each process."""
    rules = [value.__bound__, getattr(value, "__constraints__", ())]
    rules += [value.__covariant__, value.__contravariant__]
    return combine("variable", value.__name__, *map(digest.of, rules))


_READERS: tuple[tuple[Any, Callable[[Digest, Any], str]], ...] = (
    (types.FunctionType, Digest._of_function),
    (_LRU, Digest._of_wrapper),
    (types.MethodType, Digest._of_method),
    (_BOUND, Digest._of_builtin),
    (functools.partial, Digest._of_partial),
    ((property, staticmethod, classmethod), Digest._of_descriptor),
    (type, Digest._of_class),
    (types.ModuleType, Digest._of_module),
    (types.MappingProxyType, _read_proxy),
    (memoryview, _read_view),
    (types.CodeType, _read_code),
    (types.CellType, _read_cell),
    (pickle.PickleBuffer, _read_buffer),
    ((TypeVar, ParamSpec), _read_variable),
    (_NAMED, _read_named),
)
#: Where Python keeps what runs or reads code.
_RUNNING_CODE = frozenset(("builtins", "importlib", "inspect", "pkgutil", "runpy", "zipimport"))
#: What globals and modules have besides what was written in them.
_PYTHONS_OWN = frozenset(
    ("__builtins__", "__name__", "__package__", "__file__", "__path__", "__spec__", "__loader__",
     "__cached__", "__doc__")
)  # fmt: skip
#: The same for classes.
_NOT_CONTENT = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__annotations_cache__",
     "__static_attributes__", "__abstractmethods__", "_abc_impl", "__annotate_func__",
     "__slotnames__", "__qualname__", "__subclasshook__")
)  # fmt: skip
