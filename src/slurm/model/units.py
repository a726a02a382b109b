"""Times, memory sizes and GPU requests: what people write and what Slurm writes become numbers."""

from __future__ import annotations

import math
import re
from reprlib import Repr
from typing import NamedTuple, NoReturn

from slurm.errors import OptionError

# sbatch computes with 32-bit seconds; more memory than this (1 EiB) is a slip of the keyboard.
LONGEST_DURATION = 2**31 - 1
LARGEST_MEMORY = 2**40
MOST_GPUS = 999_999

_DURATION_FORMS = (
    'write "90min", "2h", "1d12h", Slurm\'s "HH:MM:SS" or "D-HH:MM:SS", a number of minutes, '
    'a timedelta, or "UNLIMITED"'
)
_MEMORY_FORMS = (
    'write "512M", "8G", "8GiB", "1.5TiB", or a number of MiB; 0 means all memory of the node'
)
_GPU_FORMS = 'write a number, "a100", "a100:2" or "a100:2,v100:1"'

_UNIT_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 604800),
}
_UNIT_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}

_CLOCK = (
    r"(?:(?P<days>[0-9]{1,9})-)?(?P<a>[0-9]{1,10})(?::(?P<b>[0-9]{1,10}))?(?::(?P<c>[0-9]{1,10}))?"
)
_AMOUNT = r"\s*([0-9]{1,12})(?:\.([0-9]{1,9}))?\s*([A-Za-z]+)\s*"
_MEMORY = r"(?i)([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*(?:([KMGTP])(?:I?B)?)?"
_GPU = r"(?:gpu:)?(?:(?P<type>[A-Za-z0-9_][A-Za-z0-9_.-]*):)?(?P<count>[0-9]{1,6})"
_GPU_TYPE = r"(?:gpu:)?(?P<type>[A-Za-z0-9_][A-Za-z0-9_.-]*)"

_short = Repr()
_short.maxstring = _short.maxother = 80


def brief(value: object) -> str:
    """`repr(value)`, cut to what fits into a message."""
    try:
        return _short.repr(value)
    except ValueError:  # Python refuses to write an int of many thousand digits
        return f"<{type(value).__name__}>"


def refuse(name: str, value: object, problem: str, hint: str | None = None) -> NoReturn:
    """Raise the `OptionError` that names the argument, its value and the forms that work."""
    raise OptionError(f"{name}={brief(value)}: {problem}", hint=hint)


class Seconds(int):
    """A duration that was parsed already, so that parsing it again does not read it as minutes."""

    __slots__ = ()


def parse_duration(value: object, name: str = "time") -> Seconds | None:
    """The seconds in `value`, or None for `UNLIMITED`.

    Slurm's forms (`minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
    `days-hours:minutes`, `days-hours:minutes:seconds`), human ones (`"2h"`, `"1h 30m"`,
    `"2 hours"`; `m` means minutes), `timedelta`, and plain numbers, which are minutes as in Slurm.
    Parts of a second are rounded up.
    """
    if isinstance(value, Seconds):
        seconds: int = value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = _ceiling(value * 60, name, value, _DURATION_FORMS)
    elif isinstance(value, str):
        text = value.strip()
        if text.upper() in ("UNLIMITED", "INFINITE"):
            return None
        found = _clock_seconds(text)
        if found is None:
            found = _human_seconds(text)
        if found is None:
            refuse(name, value, "is not a time", _DURATION_FORMS)
        seconds = found
    else:
        # Imported here: most time limits are text, and every job would pay for it.
        from datetime import timedelta

        if not isinstance(value, timedelta):
            refuse(name, value, f"a time cannot be {_a(value)}", _DURATION_FORMS)
        # Rounded up; the longest timedelta has no negative of its own.
        seconds = value // timedelta(seconds=1) + bool(value % timedelta(seconds=1))
    if seconds <= 0:
        hint = 'leave it out for the partition\'s default, or write "UNLIMITED" for no limit'
        refuse(name, value, "a time must be longer than zero", hint)
    if seconds > LONGEST_DURATION:
        refuse(name, value, "is longer than Slurm can count", 'write "UNLIMITED" for no limit')
    return Seconds(seconds)


def _ceiling(number: float, name: str, value: object, forms: str) -> int:
    """`number` rounded up; infinity and NaN, which float arithmetic can give, are refused."""
    try:
        return math.ceil(number)
    except (OverflowError, ValueError):
        refuse(name, value, "is not a number that can be used here", forms)


def _clock_seconds(text: str) -> int | None:
    """The seconds in one of Slurm's own forms, or None."""
    match = re.fullmatch(_CLOCK, text)
    if match is None:
        return None
    a, b, c = (int(match[part] or 0) for part in "abc")
    if match["days"] is not None:
        return int(match["days"]) * 86400 + a * 3600 + b * 60 + c
    if match["c"] is not None:
        return a * 3600 + b * 60 + c
    return a * 60 + b


def _human_seconds(text: str) -> int | None:
    """The seconds in amounts with units, each unit at most once, or None."""
    amount = re.compile(_AMOUNT)
    at, total, seen = 0, 0, set()
    while at < len(text):
        match = amount.match(text, at)
        unit = _UNIT_SECONDS.get(match[3].lower()) if match else None
        if match is None or unit is None or unit in seen:
            return None
        seen.add(unit)
        total += _scaled(match[1], match[2], unit)
        at = match.end()
    return total if seen else None


def _scaled(whole: str, fraction: str | None, unit: int, per: int = 1) -> int:
    """`whole.fraction * unit / per`, rounded up, without the errors of floating point."""
    fraction = fraction or ""
    parts = int("1" + "0" * len(fraction)) * per
    return -(-int(whole + fraction) * unit // parts)


def format_duration(seconds: int | None) -> str:
    """Slurm's `HH:MM:SS` or `D-HH:MM:SS`; None is `UNLIMITED`."""
    if seconds is None:
        return "UNLIMITED"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest:02}"


def parse_memory(value: object, name: str = "mem") -> int:
    """The MiB in `value`, rounded up.

    A plain number is MiB, as in Slurm. All units are powers of 1024, so `GB`, `G` and `GiB` are
    the same: Slurm knows no others. 0 asks for all memory of the node.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        mib = _ceiling(value, name, value, _MEMORY_FORMS)
    elif isinstance(value, str):
        match = re.fullmatch(_MEMORY, value.strip())
        if match is None:
            refuse(name, value, "is not an amount of memory", _MEMORY_FORMS)
        mib = _scaled(match[1], match[2], _UNIT_KIB[(match[3] or "M").upper()], per=1024)
    else:
        refuse(name, value, f"an amount of memory cannot be {_a(value)}", _MEMORY_FORMS)
    if mib < 0:
        refuse(name, value, "an amount of memory cannot be negative", _MEMORY_FORMS)
    if mib > LARGEST_MEMORY:
        refuse(name, value, "is more memory than any node has", _MEMORY_FORMS)
    return mib


def format_memory(mib: int) -> str:
    """Memory the way sbatch takes it: `8192M`, and `0` for all memory of the node."""
    return f"{mib}M" if mib else "0"


class GpuRequest(NamedTuple):
    """A number of GPUs, of one type where it is given; `str()` is Slurm's `a100:2` or `2`."""

    type: str | None
    # Hides tuple.count, which nobody calls on a request.
    count: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.type}:{self.count}" if self.type else str(self.count)


def parse_gpus(value: object, name: str = "gpus") -> tuple[GpuRequest, ...]:
    """The GPUs in `2`, `"2"`, `"a100"` (one), `"a100:2"`, `"gpu:a100:2"` or `"a100:2,v100:1"`.

    0 asks for none and gives an empty tuple: it renders to no flag and replaces a default.
    """
    if isinstance(value, tuple) and all(isinstance(part, GpuRequest) for part in value):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= MOST_GPUS:
            refuse(name, value, "is not a number of GPUs", _GPU_FORMS)
        return (GpuRequest(None, value),) if value else ()
    if not isinstance(value, str):
        refuse(name, value, f"a number of GPUs cannot be {_a(value)}", _GPU_FORMS)
    requests = [_parse_gpu(part.strip(), name, value) for part in value.split(",")]
    types = [request.type for request in requests]
    if len(set(types)) < len(types) or (None in types and len(types) > 1):
        refuse(name, value, "names a type twice, or mixes typed and untyped GPUs", _GPU_FORMS)
    return tuple(request for request in requests if request.count)


def _parse_gpu(text: str, name: str, value: str) -> GpuRequest:
    """One part of a list of GPU requests."""
    match = re.fullmatch(_GPU, text)
    if match is not None:
        kind = None if match["type"] == "gpu" else match["type"]
        return GpuRequest(kind, int(match["count"]))
    match = re.fullmatch(_GPU_TYPE, text)
    if match is None or match["type"].isdigit():
        refuse(name, value, "is not a number of GPUs", _GPU_FORMS)
    return GpuRequest(None if match["type"] == "gpu" else match["type"], 1)


def _a(value: object) -> str:
    """`a list`, `an int`, for messages."""
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
