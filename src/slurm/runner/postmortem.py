"""Keeps what a debugger needs of a function that raised: frames, lines and small values."""

import json
import linecache
import os
import re
from typing import Any, Dict, List, Optional, Sequence

from slurm import rundir

#: How much of it is kept: for each call, for each value, lines around the place, frames.
_WHOLE, _VALUE, _AROUND, _FRAMES, _NAMES = 64_000, 300, 25, 30, 60
_SECRET = re.compile("pass|secret|token|credential|auth|api_?key|private", re.IGNORECASE)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def keep(run: str, error: BaseException) -> Optional[List[Any]]:
    """Write the frames of an exception; returns where they lie, None where that cannot be done."""
    try:
        found = frames_of(error, _secrets(run))
        data = json.dumps(found).encode()
        if len(data) > _WHOLE:
            data = json.dumps([dict(frame, locals={}) for frame in found]).encode()
        return rundir.append_frames(run, data)
    except Exception:  # noqa: BLE001 - the exception itself is what has to be recorded
        return None


def _secrets(run: str) -> List[str]:
    """The values of the job's secrets, which no file may hold."""
    with open(os.path.join(run, rundir.METADATA)) as f:
        names = json.load(f)["options"].get("secrets") or ()
    return [os.environ[name] for name in names if os.environ.get(name)]


def frames_of(error: BaseException, secrets: Sequence[str] = ()) -> List[Dict[str, Any]]:
    """The frames of the user's own code, outermost first; what holds a secret is hidden."""
    found = []
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if not os.path.abspath(code.co_filename).startswith(_HERE):
            found.append(_frame(at.tb_frame, at.tb_lineno, secrets))
        at = at.tb_next
    return found[-_FRAMES:]


def _frame(frame: Any, line: int, secrets: Sequence[str]) -> Dict[str, Any]:
    code = frame.f_code
    first = max(1, line - _AROUND)
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    shown = sorted(frame.f_locals.items())[:_NAMES] if code.co_name != "<module>" else []
    return {
        "file": code.co_filename,
        "line": line,
        "name": code.co_name,
        "arguments": list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]),
        "locals": {k: _named(k, v, 2, secrets) for k, v in shown},
        "first": first,
        "source": "".join(lines[first - 1 : line + _AROUND]),
    }


def _named(name: str, value: Any, depth: int, secrets: Sequence[str]) -> str:
    return "<hidden>" if _SECRET.search(name) else picture(value, depth, secrets)


def picture(value: Any, depth: int = 2, secrets: Sequence[str] = ()) -> str:
    """A value in a few letters, made without calling code of its class where that can be."""
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        plain = value.decode("latin-1") if kind is bytes else str(value)
        if any(secret in plain for secret in secrets):
            return "<hidden>"
        text = repr(value[:_VALUE] if kind in (str, bytes) else value)
    elif kind in (list, tuple, set, frozenset, dict) and depth:
        text = _many(value, kind, depth - 1, secrets)
    else:
        text = f"<{kind.__module__}.{kind.__qualname__}{_shape(value)}>"
    return text if len(text) <= _VALUE else text[:_VALUE] + "..."


def _many(value: Any, kind: type, depth: int, secrets: Sequence[str]) -> str:
    some = list(value)[:10] if kind is not dict else list(value.items())[:10]
    rest = ", ..." if len(value) > len(some) else ""
    if kind is dict:
        pairs = (f"{picture(k, 0, secrets)}: {_named(str(k), v, depth, secrets)}" for k, v in some)
        return "{" + ", ".join(pairs) + rest + "}"
    inner = ", ".join(picture(one, depth, secrets) for one in some) + rest
    if kind is tuple:
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if kind is list:
        return f"[{inner}]"
    return f"{{{inner}}}" if kind is set else f"frozenset({{{inner}}})"


def _shape(value: Any) -> str:
    """What says most about arrays and frames of data: their shape and type of element."""
    try:
        parts = [str(getattr(value, name)) for name in ("shape", "dtype") if hasattr(value, name)]
    except Exception:  # noqa: BLE001 - attributes can be code of the user's own
        return ""
    return (" " + " ".join(parts)) if parts else ""
