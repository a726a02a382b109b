"""Decides how a function travels, by reference or by value, and makes the function file."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slurm import rundir
from slurm.errors import UnpicklableFunction


@dataclass(frozen=True)
class ShippedFunction:
    """A function as it lies in the run directory, and why it travels the way it does."""

    by: str
    target: str
    why: str
    data: bytes


def ship_function(function: Callable[..., Any], path: tuple[str, ...]) -> ShippedFunction:
    """Make the function file of a run."""
    target = f"{function.__module__}:{getattr(function, '__qualname__', repr(function))}"
    reason = by_value_reason(function)
    header: dict[str, Any] = {
        "format": 1,
        "by": "value" if reason else "reference",
        "target": target,
        "python": list(sys.version_info[:3]),
        "path": list(path),
        "context": context_parameter(function),
    }
    pickled = _pickle_by_value(function, target) if reason else b""
    why = reason or f"the node imports {function.__module__}"
    return ShippedFunction(header["by"], target, why, rundir.encode_function(header, pickled))


def by_value_reason(function: Callable[..., Any]) -> str | None:
    """Why this function has to travel by value; None when the node can import it by name."""
    module, qualname = function.__module__, getattr(function, "__qualname__", "")
    if module == "__main__":
        return "it is defined in the script or notebook that runs"
    if "<" in qualname or not qualname:
        return "it is a nested function or a lambda"
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
    top = module.partition(".")[0]
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _pickle_by_value(function: Callable[..., Any], target: str) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(function, protocol=5)
    except Exception as error:
        culprit = _unpicklable_global(function)
        where = f": its global {culprit!r} cannot be pickled" if culprit else ""
        raise UnpicklableFunction(
            f"{target} cannot be sent by value{where} ({type(error).__name__}: {error})",
            hint="create such objects inside the function, or move the function into a module "
            "that the node can import",
        ) from error
    return data


def _unpicklable_global(function: Callable[..., Any]) -> str | None:
    import cloudpickle

    code = getattr(function, "__code__", None)
    space = getattr(function, "__globals__", {})
    cells = getattr(function, "__closure__", None) or ()
    names: dict[str, Any] = {}
    if code is not None:
        names.update(zip(code.co_freevars, (c.cell_contents for c in cells), strict=False))
    names.update({n: space[n] for n in (code.co_names if code else ()) if n in space})
    for name, value in names.items():
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001 - we look for exactly what fails
            return name
    return None


def context_parameter(function: Callable[..., Any]) -> tuple[str, int | None] | None:
    """The parameter annotated with JobContext: its name, and its position among positional ones."""
    annotations = getattr(function, "__annotations__", None) or {}
    if not any("JobContext" in _annotation_text(a) for a in annotations.values()):
        return None
    position = 0
    for name, parameter in inspect.signature(function).parameters.items():
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if _is_context(parameter.annotation):
            return name, position if positional else None
        position += positional
    return None


def _annotation_text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else repr(annotation)


def _is_context(annotation: object) -> bool:
    text = _annotation_text(annotation).replace(" ", "").replace("typing.", "")
    for wrapper in ("|None", "None|"):
        text = text.replace(wrapper, "")
    if text.startswith("Optional[") and text.endswith("]"):
        text = text[9:-1]
    text = text.removeprefix("<class'").removesuffix("'>").strip("'\"")
    return text.rpartition(".")[2] == "JobContext"


def client_path() -> tuple[str, ...]:
    """The entries of this client's import path that its Python does not find by itself.

    A job on the same machine or file system gets them, so that modules beside the script and
    editable installs import there as they do here.
    """
    own = {os.path.realpath(p) for p in sysconfig.get_paths().values()}
    own |= {os.path.join(p, "lib-dynload") for p in own}
    zipped = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    entries = [os.path.abspath(entry or os.getcwd()) for entry in sys.path]
    kept = [e for e in entries if os.path.realpath(e) not in own and os.path.basename(e) != zipped]
    return tuple(dict.fromkeys(e for e in kept if os.path.exists(e)))
