"""Reads the values of sbatch options in Slurm's notation: times, sizes, arrays, dependencies."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass

from slurm.api.sbatch_lines import BadRequest

MAX_ARRAY_SIZE = 10001  # indices run to 10000, as with Slurm's MaxArraySize

_UNITS = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_DAYTIMES = {"midnight": 0, "noon": 12 * 3600, "teatime": 16 * 3600}
KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "singleton")


@dataclass(frozen=True)
class Edge:
    """One thing that a job waits for; `job` is 0 for singleton."""

    kind: str
    job: int = 0
    index: int | None = None
    delay: int = 0


@dataclass(frozen=True)
class Dependency:
    """What a job waits for: all edges, or any one of them."""

    edges: tuple[Edge, ...]
    any_one: bool = False


@dataclass(frozen=True)
class EarlySignal:
    """A signal to send some seconds before the time limit."""

    signum: int
    seconds: int = 60
    batch_only: bool = False


def read_count(name: str, text: str, least: int = 1) -> int:
    """A whole number."""
    if not text.isascii() or not text.isdigit() or int(text) < least or len(text) > 9:
        raise BadRequest(f"Invalid numeric value {text!r} for --{name}.")
    return int(text)


def read_nodes(text: str) -> int:
    """`2`, `2-4` or `2,4`: the least number of nodes asked for."""
    return read_count("nodes", re.split("[-,:]", text, maxsplit=1)[0])


def read_time(text: str) -> int | None:
    """A time limit in seconds; None without limit."""
    if text.upper() in {"UNLIMITED", "INFINITE", "-1", "0"}:
        return None
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text, re.ASCII)
    if match is None:
        raise BadRequest(f"Invalid --time specification {text!r}.")
    days, *parts = (None if part is None else int(part) for part in match.groups())
    first, second, third = parts
    if days is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return (days or 0) * 86400 + seconds or None


def read_memory(name: str, text: str) -> int:
    """A memory size in MiB, rounded up."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.upper(), re.ASCII)
    if match is None:
        raise BadRequest(f"Invalid --{name} specification {text!r}.")
    return -int(-int(match[1]) * _UNITS[match[2]] // 1)


def read_gpus(name: str, text: str) -> int:
    """`2`, `a100:2`, `a100:2,v100:1`: the number of GPUs, whatever their type."""
    total = 0
    for part in text.split(","):
        kind, _, count = part.rpartition(":")
        if count.isascii() and count.isdigit():
            total += read_count(name, count, least=0)
        elif kind == "" and count:
            total += 1
        else:
            raise BadRequest(f"Invalid --{name} specification {text!r}.")
    return total


def read_gres(text: str) -> int:
    """The number of GPUs in a `--gres` list; other resources do not exist here."""
    total = 0
    for part in text.split(","):
        name, _, rest = part.removeprefix("gres/").removeprefix("gres:").partition(":")
        if name == "gpu":
            total += read_gpus("gres", rest.split("(")[0] or "1")
        elif name and name.lower() != "none":
            raise BadRequest(f"Invalid generic resource (gres) specification {part!r}.")
    return total


def read_array(text: str) -> tuple[tuple[int, ...], int | None]:
    """`0-15:4,20%2`: the indices in order and how many may run at once."""
    spec, percent, limit = text.partition("%")
    throttle = read_count("array", limit) if percent else None
    indices: set[int] = set()
    for part in spec.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part, re.ASCII)
        if match is None or match[3] == "0":
            raise BadRequest(f"Invalid job array specification {text!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= MAX_ARRAY_SIZE:
            raise BadRequest(
                f"Invalid job array specification {text!r}: indices go from 0 to "
                f"{MAX_ARRAY_SIZE - 1}."
            )
        indices.update(range(first, last + 1, int(match[3] or 1)))
    return tuple(sorted(indices)), throttle


def array_step(text: str) -> int:
    """What Slurm calls the step of an array: 2 for `0-8:2`, 1 for anything but one range."""
    match = re.fullmatch(r"\d+-\d+:(\d+)(%\d+)?", text, re.ASCII)
    return int(match[1]) if match else 1


def read_dependency(text: str) -> Dependency:
    """`afterok:17:18,afterany:19_3` (all) or `afterok:17?afterok:18` (any)."""
    any_one = "?" in text
    if any_one and "," in text:
        raise BadRequest(f"Job dependency problem: ',' and '?' together in {text!r}.")
    edges: list[Edge] = []
    for part in re.split("[,?]", text):
        kind, *targets = part.split(":")
        if kind not in KINDS or bool(targets) == (kind == "singleton"):
            raise BadRequest(f"Job dependency problem: {part!r} is none of {', '.join(KINDS)}.")
        if kind == "singleton":
            edges.append(Edge(kind))
        edges += [_read_target(kind, target) for target in targets]
    return Dependency(tuple(edges), any_one)


def _read_target(kind: str, text: str) -> Edge:
    match = re.fullmatch(r"(\d{1,18})(?:_(\d{1,9}|\*))?(?:\+(\d{1,9}))?", text, re.ASCII)
    if match is None or (match[3] and kind != "after"):
        raise BadRequest(f"Job dependency problem: {text!r} is not a job id.")
    index = int(match[2]) if match[2] and match[2] != "*" else None
    return Edge(kind, int(match[1]), index, int(match[3] or 0) * 60)


def read_signal(text: str) -> EarlySignal:
    """`[{B}:]SIG[@seconds]`; the signal as a name or a number, 60 seconds if not said."""
    match = re.fullmatch(r"(?:([RB]{1,2}):)?(\w+)(?:@(\d{1,9}))?", text, re.ASCII)
    if match is None:
        raise BadRequest(f"Invalid --signal specification {text!r}.")
    seconds = 60 if match[3] is None else int(match[3])
    return EarlySignal(signal_number(match[2]), seconds, "B" in (match[1] or ""))


def signal_number(text: str) -> int:
    """The number of a signal given as `15`, `TERM` or `SIGTERM`."""
    if text.isascii() and text.isdigit() and int(text) in {int(s) for s in signal.valid_signals()}:
        return int(text)
    name = text.upper()
    found = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
    if found is None:
        raise BadRequest(f"Invalid signal {text!r}.")
    return int(found)


def read_begin(text: str, now: float) -> int:
    """When a job may start, in epoch seconds: `now+2hours`, `16:00`, `2030-01-31T12:00`, ..."""
    match = re.fullmatch(r"now(?:\+(\d{1,9})\s*([a-z]*))?", text.lower(), re.ASCII)
    if match is not None:
        unit = (match[2] or "second").rstrip("s")
        if unit not in _SPANS:
            raise BadRequest(f"Invalid --begin specification {text!r}.")
        return int(now) + int(match[1] or 0) * _SPANS[unit]
    found = _read_daytime(text, now) or _read_date(text)
    if found is None:
        raise BadRequest(f"Invalid --begin specification {text!r}.")
    return found


def _read_daytime(text: str, now: float) -> int | None:
    """A time of day, the next one to come; `today` and `tomorrow` too."""
    here = time.localtime(now)
    day = (here.tm_year, here.tm_mon, here.tm_mday)
    if text in {"today", "tomorrow"}:
        return int(time.mktime((*day[:2], day[2] + (text == "tomorrow"), 0, 0, 0, 0, 0, -1)))
    match = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap]m)?", text.lower(), re.ASCII)
    if text in _DAYTIMES:
        seconds = _DAYTIMES[text]
    elif match is not None:
        hour = int(match[1]) % 12 + 12 * (match[4] == "pm") if match[4] else int(match[1])
        seconds = hour * 3600 + int(match[2]) * 60 + int(match[3] or 0)
    else:
        return None
    if seconds >= 86400:
        return None
    clock = (seconds // 3600, seconds // 60 % 60, seconds % 60)
    found = time.mktime((*day, *clock, 0, 0, -1))
    return int(found if found >= now else time.mktime((*day[:2], day[2] + 1, *clock, 0, 0, -1)))


def _read_date(text: str) -> int | None:
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%m%d%y", "%m/%d/%y"):
        try:
            return int(time.mktime(time.strptime(text, form)))
        except (ValueError, OverflowError):
            continue
    return None
