"""Pickles the arguments of a call and finds the Jobs among them, at any depth, as dependencies."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm.errors import UnpicklableArgument, UsageError


class WrongArguments(UsageError, TypeError):
    """The call does not fit the function's signature."""

    code = "SLURM-E122"


@dataclass(frozen=True)
class ShippedArguments:
    """One call's arguments as bytes, and the jobs whose values they need."""

    data: bytes
    upstream: tuple[Any, ...]


def ship_arguments(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    context: tuple[str, int | None] | None,
) -> ShippedArguments:
    """Pickle one call; what does not fit or cannot be sent is refused by name."""
    names = check_signature(function, args, kwargs, context)
    try:
        return _dump((list(args), dict(kwargs)))
    except Exception as error:
        raise _blame(function, args, kwargs, names, error) from error


def check_signature(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    context: tuple[str, int | None] | None,
) -> list[str]:
    """Refuse a call that Python would refuse; return the names of the positional arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    parameters = list(signature.parameters.values())
    if context is not None and context[0] not in kwargs:
        parameters = [p for p in parameters if p.name != context[0]]
        signature = signature.replace(parameters=parameters)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        raise WrongArguments(
            f"{name}{signature} cannot be called like this: {error}",
            hint=f"call it as {name}{signature}",
        ) from None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _dump(value: Any) -> ShippedArguments:
    import cloudpickle

    upstream: dict[str, Any] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            reference = getattr(type(obj), "__slurm_reference__", None)
            if reference is None:
                return None
            upstream[f"{obj.run}#{obj.index}"] = obj
            return reference(obj)

    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return ShippedArguments(buffer.getvalue(), tuple(upstream.values()))


def _blame(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
    error: BaseException,
) -> UnpicklableArgument:
    called = getattr(function, "__name__", "the function")
    labelled = [(names[i] if i < len(names) else f"#{i + 1}", v) for i, v in enumerate(args)]
    for name, value in [*labelled, *kwargs.items()]:
        why = _trouble(value)
        if why is not None:
            place, part = _deepest(str(name), value)
            inside = "" if place == name else f"; it is {place}"
            return UnpicklableArgument(
                f"argument {name!r} of {called} cannot be pickled: its value is a "
                f"{type(value).__name__} ({type(why).__name__}: {why}){inside}",
                hint=f"open or create the {type(part).__name__} inside {called}, and pass a path "
                "or plain data",
            )
    return UnpicklableArgument(f"the arguments of {called} cannot be pickled: {error}")


def _trouble(value: Any) -> Exception | None:
    try:
        _dump(value)
    except Exception as why:  # noqa: BLE001 - we look for exactly what fails
        return why
    return None


def _deepest(place: str, value: Any, depth: int = 8) -> tuple[str, Any]:
    """The innermost part of a value that cannot be pickled, as one would write it in Python."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        parts = [(f"{place}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(value)]
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        parts = [(f"{place}.{name}", part) for name, part in vars(value).items()]
    for inner, part in parts[:1000] if depth else []:
        if _trouble(part) is not None:
            return _deepest(inner, part, depth - 1)
    return place, value
