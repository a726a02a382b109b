"""Pickles the arguments of calls and finds the Jobs among them, at any depth, as dependencies."""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm import rundir
from slurm.attributes import callable_of, own
from slurm.errors import UnpicklableArgument, UpstreamFailed, UsageError, WrongArguments
from slurm.runner.values import dump, loads

#: Objects of a map that are at least this large and occur again are stored once.
SHARE_FROM = 64 << 10


@dataclass(frozen=True)
class Call:
    """One call: positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    #: Jobs that must have a value before the call may run, besides those among the arguments.
    requires: tuple[Any, ...] = ()
    #: The same, where the scheduler does not have to be told: `aftercorr` has its own dependency.
    paired: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ShippedArguments:
    """The arguments of calls as bytes, one blob each, and the jobs whose values they need.

    `shared` is empty, or holds the common keyword arguments and then each object that several
    calls share.
    """

    blobs: tuple[rundir.Content, ...]
    upstream: tuple[Any, ...]
    shared: tuple[rundir.Content, ...] = ()
    #: Those of the jobs whose values not all calls need.
    of_some: tuple[Any, ...] = ()


def items_of(items: Any, where: str, number: int | None = None) -> Iterator[Any]:
    """The items of a map, or of its item with this number, one by one; what has none is refused."""
    try:
        return iter(items)
    except TypeError:
        if number is not None:
            raise UsageError(
                f"{where}: item {number}, {items!r}, is not a series of arguments",
                hint=f"give a tuple for each call: {where}([(1, 2), (3, 4)]); map takes one "
                "argument each",
            ) from None
        raise UsageError(
            f"{where}: {items!r} is not a series of items",
            hint=f"give a list or another iterable: {where}([...])",
        ) from None


def call_of(item: object, unpack: bool = True) -> Call:
    """The call that an item of a map stands for: dict, tuple, or one argument."""
    if unpack and isinstance(item, dict):
        return Call((), item)
    if unpack and isinstance(item, tuple):
        return Call(item, {})
    return Call((item,), {})


def all_of(calls: Iterable[Call]) -> list[Call]:
    """All calls at once; those that come one by one as they are when they come."""
    return calls if isinstance(calls, list) else [_copy(call) for call in calls]


def _copy(call: Call) -> Call:
    if _is_plain(call):
        return call
    found: list[Any] = []

    def refer(obj: Any) -> tuple[str, int]:
        found.append(obj)
        return ("kept", len(found) - 1)

    try:
        data = _Pickled(refer, steady=False).dump((call.args, dict(call.kwargs)), sharing=False)
        args, kwargs = loads(rundir.joined(data), find=lambda pid: found[pid[1]])
    except Exception:  # noqa: BLE001 - the user's own code; it is refused by name when it is sent
        return call
    return Call(args, kwargs, call.requires)


def binder(
    function: Callable[..., Any],
    context: tuple[str, int | None] | None,
    common: Mapping[str, Any],
) -> Callable[[Call], Any]:
    """What gives the arguments of a call by name, defaults included: `f(1)` is `f(x=1)`."""
    return _Shape(function, context, common).bound


def ship_arguments(
    function: Callable[..., Any],
    calls: Iterable[Call],
    context: tuple[str, int | None] | None,
    common: Mapping[str, Any] | None = None,
    label: bool = False,
    refer: Callable[[Any], Any] | None = None,
    conditions: Sequence[Any] = (),
) -> ShippedArguments:
    """Pickle calls; what does not fit or cannot be sent is refused by name.

    `label` is for the calls of a map: errors name the item, and what items share is stored once.
    `refer` says what stands for a Job, for calls that are not sent yet; what is large is apart.
    Where all calls are there at once, what is large is not copied: it is to be sent before it
    changes. Where they come one by one, their maker may change it for the next one.
    `conditions` are references that the runner looks at once, before the first call.
    """
    shape = _Shape(function, context, common or {})
    steady = refer is None and type(calls) in (list, tuple)
    pickled = _Pickled(refer, steady)
    sharing = label or refer is not None
    shared_kwargs: list[rundir.Content] = []
    if common or conditions:
        call, given = Call((), common or {}), [dict(common or {}), *conditions]
        shared_kwargs = [_refusable(shape, pickled, call, "common: ", given, label)]
    of_common = pickled.needed()
    of_all: set[str] | None = None
    blobs: list[rundir.Content] = []
    for number, call in enumerate(calls):
        where = f"item {number}: " if label else ""
        shape.check(call, where)
        required = [Required(job) for job in call.requires]
        required += [Required(job, paired=True) for job in call.paired]
        value = (list(call.args), dict(call.kwargs), required)
        if _is_plain(call):
            blobs.append(pickle.dumps(value, protocol=5))
            of_all = set()
            continue
        blobs.append(_refusable(shape, pickled, call, where, value, sharing))
        needed = pickled.needed()
        of_all = needed if of_all is None else of_all & needed
    shared = pickled.shared()
    if shared and not shared_kwargs:
        shared_kwargs = [pickled.dump([{}])]
    sure = {id(pickled.upstream[key]) for key in of_common | (of_all or set())}
    some = tuple(job for job in pickled.upstream.values() if id(job) not in sure)
    return ShippedArguments(
        tuple(blobs), tuple(pickled.upstream.values()), (*shared_kwargs, *shared), some
    )


def pickle_with_references(value: Any) -> tuple[rundir.Content, tuple[Any, ...]]:
    """A value as bytes in which each Job and ArrayJob stands as a reference, and those jobs."""
    pickled = _Pickled()
    data = pickled.dump(value, sharing=False)
    return data, tuple(pickled.upstream.values())


class Required:
    """A job that a call needs without taking its value."""

    def __init__(self, job: Any, paired: bool = False) -> None:
        self.job = job
        self.paired = paired

    def __slurm_reference__(self) -> tuple[str, str, int, int]:
        """The runner checks that the value is there; of a job of a packed map, those of its items.

        They are the calls from a first one up to, and without, a second.
        """
        items = range(self.job.index, self.job.index + 1)
        if self.job.packed is not None:
            items = self.job.packed.pack.items_of(self.job.index)
        return ("check", self.job.run, items.start, items.stop)


class _Shape:
    """The function's signature as its callers see it: without context, common arguments given."""

    def __init__(
        self,
        function: Callable[..., Any],
        context: tuple[str, int | None] | None,
        common: Mapping[str, Any],
    ) -> None:
        self.name = str(own(function, "__name__", "the function"))
        self._context = context
        self._common = common
        self._fitting: set[tuple[int, tuple[str, ...]]] = set()
        try:
            self._signature: inspect.Signature | None = inspect.signature(callable_of(function))
        except (TypeError, ValueError):
            self._signature = None

    @functools.cached_property
    def _without_context(self) -> inspect.Signature | None:
        if self._signature is None or self._context is None:
            return self._signature
        kept = [p for p in self._signature.parameters.values() if p.name != self._context[0]]
        return self._signature.replace(parameters=kept)

    def check(self, call: Call, where: str) -> None:
        """Refuse a call that Python would refuse."""
        form = (len(call.args), tuple(call.kwargs))
        if form in self._fitting:
            return  # whether a call fits depends on its form, not on its values
        given = self._context is not None and self._context[0] in call.kwargs
        signature = self._signature if given else self._without_context
        if signature is None:
            return
        try:
            signature.bind(*call.args, **{**self._common, **call.kwargs})
        except TypeError as error:
            twice = [key for key in self._common if f"argument {key!r}" in str(error)]
            hint = f"call it as {self.name}{signature}"
            if twice and "multiple values" in str(error):
                hint = f"leave {twice[0]!r} out of common=, or out of the items"
            raise WrongArguments(
                f"{where}{self.name}{signature} cannot be called like this: {error}", hint=hint
            ) from None
        self._fitting.add(form)

    def bound(self, call: Call) -> Any:
        """The values of a call by the names of the parameters, as they are where none are known."""
        kwargs = {**self._common, **call.kwargs}
        if self._without_context is None:
            return [call.args, kwargs]
        found = self._without_context.bind(*call.args, **kwargs)
        found.apply_defaults()
        return found.arguments

    def label(self, position: int) -> str:
        """The name of a positional argument."""
        if self._without_context is not None:
            names = [
                p.name
                for p in self._without_context.parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            if position < len(names):
                return names[position]
        return f"#{position + 1}"


class _Pickled:
    """Pickles one call after the other, and keeps what they share apart.

    `steady`: no value changes between one call and the next.
    """

    def __init__(self, refer: Callable[[Any], Any] | None = None, steady: bool = True) -> None:
        self.upstream: dict[str, Any] = {}
        self._refer = refer
        self._steady = steady
        self._numbers: dict[object, int] = {}
        self._kept: list[Any] = []
        self._shared: list[rundir.Content] = []
        # The keys in `upstream` of what was pickled since `needed`, and those in what is shared.
        self._needs: set[str] = set()
        self._needs_of: list[set[str]] = []

    def needed(self) -> set[str]:
        """The keys of the jobs whose values are needed by what was pickled since this was asked."""
        found, self._needs = self._needs, set()
        return found

    def dump(self, value: Any, sharing: bool = True) -> rundir.Content:
        make = functools.partial(_pickler_class(), self, sharing)
        found = dump(make, value)
        return found if self._steady else rundir.joined(found)

    def reference(self, obj: Any, sharing: bool) -> Any:
        """What stands for this object in a pickle; None: itself."""
        find = getattr(type(obj), "__slurm_reference__", None)
        if find is not None:
            reference = find(obj) if self._refer is None else self._refer(obj)
            if not getattr(obj, "paired", False):
                key = repr(reference[1:])
                self.upstream[key] = getattr(obj, "job", obj)
                self._needs.add(key)
            return reference
        if sharing and _is_large(obj):
            return self._share(obj)
        return None

    def _share(self, obj: Any) -> Any:
        fixed = self._steady or type(obj) in (bytes, str)
        number = self._numbers.get(id(obj)) if fixed else None
        if number is None:
            # In a list, so that the object itself is written and not a reference to it.
            before, self._needs = self._needs, set()
            data = self.dump([obj], sharing=False)
            needs, self._needs = self._needs, before
            content = None if fixed else hashlib.blake2b(rundir.joined(data)).digest()
            number = self._numbers.get(content) if content else None
            if number is None:
                self._shared.append(data)
                self._needs_of.append(needs)
                number = len(self._shared)
            if content:
                self._numbers[content] = number
            else:
                self._kept.append(obj)  # so that its id stays its own
                self._numbers[id(obj)] = number
        self._needs |= self._needs_of[number - 1]
        return ("shared", number)

    def shared(self) -> list[rundir.Content]:
        return list(self._shared)


#: Values of these types are no jobs, hold none and are small: a map of a million needs no search.
_PLAIN = frozenset((int, float, complex, bool, type(None)))


def _is_plain(call: Call) -> bool:
    return (
        not call.requires
        and not call.paired
        and all(type(value) in _PLAIN for value in call.args)
        and all(type(value) in _PLAIN for value in call.kwargs.values())
    )


def _is_large(obj: Any) -> bool:
    if type(obj) in (bytes, bytearray, str):
        return len(obj) >= SHARE_FROM
    if type(obj) in (list, tuple, dict, set, frozenset):
        return len(obj) >= SHARE_FROM // 8
    # Only what its class has is asked for: a value may answer to any name.
    if not hasattr(type(obj), "nbytes"):
        return False
    size = obj.nbytes
    return isinstance(size, int) and size >= SHARE_FROM


@functools.lru_cache(maxsize=1)
def _pickler_class() -> Any:
    from slurm.runner import wrapped

    class Pickler(wrapped.Pickler):
        def __init__(self, pickled: _Pickled, sharing: bool, sink: Any, **how: Any) -> None:
            super().__init__(sink, **how)
            self._pickled = pickled
            self._sharing = sharing

        def persistent_id(self, obj: Any) -> Any:
            return self._pickled.reference(obj, self._sharing)

    return Pickler


def _refusable(
    shape: _Shape, pickled: _Pickled, call: Call, where: str, value: Any, sharing: bool
) -> rundir.Content:
    try:
        return pickled.dump(value, sharing)
    except UpstreamFailed:
        raise
    except Exception as error:  # pickling calls code of any class
        raise _blame(shape, call, where, error) from error


def _blame(shape: _Shape, call: Call, where: str, error: Exception) -> UnpicklableArgument:
    labelled: Sequence[tuple[str, Any]] = [
        *((shape.label(i), value) for i, value in enumerate(call.args)),
        *call.kwargs.items(),
    ]
    for name, value in labelled:
        why = _trouble(value)
        if why is not None:
            place, part = _deepest(name, value)
            inside = "" if place == name else f"; it is {place}"
            return UnpicklableArgument(
                f"{where}argument {name!r} of {shape.name} cannot be pickled: its value is a "
                f"{type(value).__name__} ({type(why).__name__}: {why}){inside}",
                hint=f"open or create the {type(part).__name__} inside {shape.name}, and pass a "
                "path or plain data",
            )
    return UnpicklableArgument(f"{where}the arguments of {shape.name} cannot be pickled: {error}")


def _trouble(value: Any) -> Exception | None:
    try:
        _Pickled().dump(value)
    except Exception as why:  # noqa: BLE001 - we look for exactly what fails
        return why
    return None


def _deepest(place: str, value: Any, depth: int = 8) -> tuple[str, Any]:
    """The innermost part of a value that cannot be pickled, as one would write it in Python."""
    parts: list[tuple[str, Any]] = []
    if type(value).__module__.partition(".")[0] == "slurm":
        return place, value  # it says itself why it stays where it is
    if isinstance(value, Mapping):
        parts = [(f"{place}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(value)]
    elif not isinstance(value, type):
        parts = [(f"{place}.{name}", part) for name, part in _attributes(value).items()]
    for inner, part in parts[:1000] if depth else []:
        if _trouble(part) is not None:
            return _deepest(inner, part, depth - 1)
    return place, value


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes that a value itself has, without asking it for any."""
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}
