"""Decides how a function travels, by reference or by value, and makes the function file."""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import re
import sys
import sysconfig
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slurm import rundir
from slurm.attributes import callable_of, own
from slurm.errors import UnpicklableFunction, UsageError
from slurm.here import import_path

#: Modules of the user's own that travel by value with what is pickled now.
travelling: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar(
    "travelling", default=frozenset()
)


@dataclass(frozen=True)
class ShippedFunction:
    """A function as it lies in the run directory, and why it travels the way it does."""

    by: str
    target: str
    why: str
    data: bytes
    workflow: bool = False
    #: The parameter that receives the context: its name, and its position among positional ones.
    context: tuple[str, int | None] | None = None


def ship_function(
    function: Callable[..., Any],
    path: tuple[str, ...],
    workflow: bool = False,
    reason: str | None = None,
    captured: str = "",
) -> ShippedFunction:
    """Make the function file of a run; `reason`: why it travels by value, "" that it does not.

    `captured` is the folder of the code that it imports, where that was captured.
    """
    module = own(function, "__module__", None)
    target = _target(function)
    reason = by_value_reason(function) if reason is None else reason or None
    context = context_parameter(function)
    if context is not None and not workflow:
        _refuse_workflow_context(function, context[0])
    header: dict[str, Any] = {
        "format": 1,
        "by": "value" if reason else "reference",
        "target": target,
        "python": list(sys.version_info[:3]),
        "path": list(path),
        "captured": captured,
        "context": context,
        "workflow": workflow,
    }
    pickled = _pickle_by_value(function, target) if reason else b""
    why = reason or f"the node imports {module}"
    data = rundir.encode_function(header, pickled)
    return ShippedFunction(header["by"], target, why, data, workflow, context)


def _target(function: Any) -> str:
    """Module and name, never an address: those of what a partial calls, or of a class."""
    while isinstance(function, functools.partial):
        function = function.func
    name = own(function, "__qualname__", type(function).__qualname__)
    return f"{own(function, '__module__', None)}:{name}"


def by_value_reason(function: Callable[..., Any]) -> str | None:
    """Why this function has to travel by value; None when the node can import it by name."""
    module, qualname = own(function, "__module__", None), own(function, "__qualname__", "")
    if module == "__main__":
        return "it is defined in the script or notebook that runs"
    if not module or not qualname:
        return "it is an object that can be called, not a function of a module"
    if "<" in qualname:
        return "it is a nested function or a lambda"
    if module in travelling.get():
        return f"module {module} is this machine's own"
    loaded = sys.modules.get(module)
    if loaded is None or getattr(loaded, "__spec__", None) is None:
        return f"module {module} was not imported from a file"
    found: Any = loaded
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if getattr(found, "unwrapped", found) is not function:
        return f"{module}.{qualname} is another object than this function"
    if not _node_can_import(module):
        return f"module {module} is not on the import path"
    return None


def _node_can_import(module: str) -> bool:
    """Whether a fresh Python with this import path would find what is loaded here.

    `importlib.util.find_spec` does not tell: it answers from the modules that are loaded.
    """
    top = module.partition(".")[0]
    loaded = getattr(sys.modules.get(top), "__spec__", None)
    for finder in sys.meta_path:
        try:
            found = finder.find_spec(top, None)
        except (ImportError, ValueError, AttributeError):
            continue
        if found is not None:
            return loaded is None or found.origin == loaded.origin
    return False


def _pickle_by_value(function: Callable[..., Any], target: str) -> bytes:
    from slurm.runner import wrapped

    try:
        data: bytes = wrapped.dumps(function)
    except Exception as error:  # pickling calls code of any class
        culprit = _unpicklable_global(function)
        where = f": its global {culprit!r} cannot be pickled" if culprit else ""
        raise UnpicklableFunction(
            f"{target} cannot be sent by value{where} ({type(error).__name__}: {error})",
            hint="create such objects inside the function, or move the function into a module "
            "that the node can import",
        ) from error
    return data


def _unpicklable_global(function: Callable[..., Any]) -> str | None:
    from slurm.runner import wrapped

    code = own(function, "__code__", None)
    space = own(function, "__globals__", {})
    cells = own(function, "__closure__", None) or ()
    names: dict[str, Any] = {}
    if code is not None:
        names.update(zip(code.co_freevars, (c.cell_contents for c in cells), strict=False))
    names.update({n: space[n] for n in (code.co_names if code else ()) if n in space})
    for name, value in names.items():
        try:
            wrapped.dumps(value)
        except Exception:  # noqa: BLE001 - we look for exactly what fails
            return name
    return None


def refuse_generator(function: Any, name: str) -> None:
    """Refuse a function that yields, at its call: what it would return cannot leave its process.

    What is no function at all is refused, too.
    """
    if not callable(function):
        raise UsageError(
            f"a {type(function).__name__} was given where a function is needed",
            hint="give the function itself, then its arguments: submit(f, 1), not submit(f(1))",
        )
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if isinstance(inner, types.MethodType):
        inner = inner.__func__
    flags = inner.__code__.co_flags if isinstance(inner, types.FunctionType) else 0
    if flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise UsageError(
            f"{name} is a generator function: a generator cannot leave the process that made it",
            hint="return list(...) of what it yields, or map a function over the items",
        )


def context_parameter(function: Callable[..., Any]) -> tuple[str, int | None] | None:
    """The parameter annotated with JobContext: its name, and its position among positional ones."""
    try:
        parameters = _signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C do not tell
        return None
    names = _names_around(function)
    position = 0
    for parameter in parameters:
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        takes_one = positional or parameter.kind is parameter.KEYWORD_ONLY
        if takes_one and _is_context(parameter.annotation, names):
            return parameter.name, position if positional else None
        position += positional
    return None


def _refuse_workflow_context(function: Callable[..., Any], name: str) -> None:
    """Only a workflow has children to ask about."""
    if "WorkflowContext" in str(_signature(function).parameters[name].annotation):
        raise UsageError(
            f"{name} of {own(function, '__name__', function)} is a WorkflowContext, but the "
            "function is a task",
            hint="write @workflow above it, or annotate the parameter with JobContext",
        )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    function = callable_of(function)
    if sys.version_info >= (3, 14):
        # Annotations are evaluated when they are asked for; names may be missing at run time.
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _names_around(function: Any) -> dict[str, Any]:
    """The global names where a function was written, for annotations that are text."""
    while isinstance(function, functools.partial) or own(function, "__wrapped__") is not None:
        is_partial = isinstance(function, functools.partial)
        function = function.func if is_partial else function.__wrapped__
    if not callable(own(function, "__get__", None)):  # an object with a __call__ of its own
        function = type(function).__call__
    function = own(function, "__func__", function)
    return dict(own(function, "__globals__", {}))


def _is_context(annotation: Any, names: dict[str, Any]) -> bool:
    """Whether an annotation means a context, possibly with None; the parameter's name is free."""
    text = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(text, str):
        try:
            # What `typing.get_type_hints` does; but one name that is missing must not hide others.
            annotation = eval(text, names)
        except Exception:  # noqa: BLE001 - imported for type checkers only: the text has to do
            return _text_means_context(text)
        if isinstance(annotation, str):
            return _text_means_context(annotation)
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _is_context(typing.get_args(annotation)[0], names)
    if origin in (typing.Union, types.UnionType):
        members = [m for m in typing.get_args(annotation) if m is not type(None)]
        return len(members) == 1 and _is_context(members[0], names)
    place = (getattr(annotation, "__module__", ""), getattr(annotation, "__qualname__", ""))
    return place in (("slurm.context", "JobContext"), ("slurm.workflow", "WorkflowContext"))


def _text_means_context(text: str) -> bool:
    text = re.sub(r"[\s'\"]", "", text)
    text = re.sub(r"^(?:\w+\.)?(?:Optional|Union)\[(.*)\]$", r"\1", text)
    members = [m for m in re.split(r"[|,]", text) if m != "None"]
    names = ("JobContext", "WorkflowContext")
    return len(members) == 1 and members[0].rpartition(".")[2] in names


def client_path() -> tuple[str, ...]:
    """The entries of this client's import path that its Python does not find by itself.

    A job on the same machine or file system gets them, so that modules beside the script and
    editable installs import there as they do here.
    """
    kept = [entry for entry in import_path() if not _is_pythons_own(entry)]
    return tuple(dict.fromkeys(e for e in kept if os.path.exists(e)))


@functools.lru_cache(maxsize=1024)
def _is_pythons_own(entry: str) -> bool:
    """Whether Python finds an entry of the import path by itself."""
    zipped = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    return os.path.basename(entry) == zipped or os.path.realpath(entry) in _pythons_places()


@functools.lru_cache(maxsize=1)
def _pythons_places() -> frozenset[str]:
    own = {os.path.realpath(p) for p in sysconfig.get_paths().values()}
    return frozenset(own | {os.path.join(p, "lib-dynload") for p in own})
