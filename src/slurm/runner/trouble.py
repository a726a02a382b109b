"""The record of a call that brought no value: it raised, was refused, or ended the interpreter."""

from __future__ import annotations

import os

from slurm import rundir
from slurm.runner.run import Refused, say
from slurm.runner.values import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

_HERE = os.path.dirname(__file__) + os.sep


def trouble(error: BaseException) -> Tuple[str, Dict[str, Any], Any, int]:
    """The outcome of a call that raised."""
    if isinstance(error, Refused):
        return rundir.ERROR, _refusal(error), b"", 1
    if isinstance(error, SystemExit):
        code = exit_code(error)
        return rundir.EXIT, {"code": code, "text": _text(error.code)}, b"", code
    return _exception(error)


def _exception(error: BaseException) -> Tuple[str, Dict[str, Any], Any, int]:
    """The record of an exception: its text always, the object itself where it can travel."""
    import traceback

    from slurm.runner.exceptions import pickled

    frame = error.__traceback__
    # The runner's own frames say nothing to the user.
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_HERE):
        frame = frame.tb_next
    text = "".join(traceback.format_exception(type(error), error, frame))
    say(text)
    header = {
        "type": _name(type(error)),
        "types": [_name(cls) for cls in type(error).__mro__[:-1]],
        "message": _text(error, 2000),
        "traceback": text[-64_000:],
        "exception": isinstance(error, Exception),
    }
    return rundir.ERROR, header, pickled(error.with_traceback(None), _bytes), 1


def _bytes(value: Any) -> bytes:
    return rundir.joined(dumps(value))


def unpicklable(value: Any, error: Exception) -> Tuple[str, Dict[str, Any], Any, int]:
    """The outcome of a call whose value cannot be pickled."""
    header = {
        "error": "UnpicklableResult",
        "message": f"the function returned a {_name(type(value))} that cannot be pickled: "
        f"{type(error).__name__}: {error}",
        "evidence": [_text(value)],
        "hint": "return plain data, or write it to a file and return its path",
    }
    return rundir.ERROR, header, b"", 1


def exit_code(stop: SystemExit) -> int:
    """The exit code that Python itself would give for this SystemExit."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    say(f"{stop.code}\n")
    return 1


def _refusal(refused: Refused) -> Dict[str, Any]:
    say(f"slurm-sdk: {refused}\n")
    return {"error": refused.error, "message": str(refused), "hint": refused.hint}


def _name(cls: type) -> str:
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _text(value: Any, limit: int = 500) -> str:
    try:
        text = str(value) if isinstance(value, BaseException) else repr(value)
    except Exception as error:  # noqa: BLE001 - repr is the user's own code
        text = f"<no text: {type(error).__name__}>"
    return text if len(text) <= limit else text[:limit] + " ..."
