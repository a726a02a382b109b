"""Whether a call has to run at all, and whether it runs again: the options `cache` and `retry`."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from slurm import errors
from slurm.model.option_values import text
from slurm.model.units import Seconds, parse_duration, parse_memory, refuse


def caching(value: object, name: str) -> bool | str | Callable[..., Any] | None:
    """What `cache=` takes: True, a text that stands for the code, or a function that makes keys."""
    if value is False:
        return None
    if value is True or callable(value):
        return value
    if not isinstance(value, str):
        refuse(
            name,
            value,
            "must be True, text or a function of the arguments",
            'write cache=True, cache="v2", or cache=lambda path: path',
        )
    return text(value, name)


#: More retries than this are a mistake, or a loop that a person should look at.
MOST = 100
#: `on=` takes classes of exceptions, or their names.
Raised = type[BaseException] | str


@dataclass(frozen=True)
class Retry:
    """When a call that failed runs again, and with what: `Retry(times=2, oom="mem*2")`.

    `times` is how often at most. `on` are the exceptions of the function that are worth another
    try; a process that died without one counts as `JobFailed`. `oom` and `timeout` say what is
    asked for after memory or time was used up: `"mem*2"`, `"mem+4G"`, `"time*1.5"`, or True for the
    same again; None leaves such failures alone. Where `preempted` or `node_fail` are set, Slurm
    itself starts the job again, and where it does not, a retry does. `backoff` is the time before
    the first retry, in seconds or as text; each further one waits twice as long.
    """

    times: int = 1
    on: Raised | Iterable[Raised] = (Exception,)
    oom: bool | str | None = None
    timeout: bool | str | None = None
    preempted: bool = True
    node_fail: bool = True
    backoff: float | str | timedelta = 0

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int):
            refuse("retry: times", self.times, "must be a whole number", "write Retry(times=2)")
        if not 1 <= self.times <= MOST:
            refuse("retry: times", self.times, f"must be between 1 and {MOST}")
        several = not isinstance(self.on, (str, type)) and isinstance(self.on, Iterable)
        on = tuple(self.on) if several else (self.on,)  # type: ignore[arg-type]
        object.__setattr__(self, "on", tuple(_class_name(one) for one in on))
        _growth(self.oom, "oom", "mem")
        _growth(self.timeout, "timeout", "time")
        for name in ("preempted", "node_fail"):
            if not isinstance(getattr(self, name), bool):
                refuse(f"retry: {name}", getattr(self, name), "must be True or False")
        object.__setattr__(self, "backoff", _seconds(self.backoff))

    def plain(self) -> dict[str, Any]:
        """This as JSON can hold it; `retry=` takes it again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def rules(self) -> dict[str, Any]:
        """This as the cluster needs it: growths taken apart, `None` for what is not retried."""
        growths = {
            "oom": _growth(self.oom, "oom", "mem"),
            "timeout": _growth(self.timeout, "timeout", "time"),
        }
        return {**self.plain(), **growths}


def retrying(value: object, name: str) -> Retry | None:
    """What `retry=` takes: a `Retry`, how often, or a mapping with a Retry's own words."""
    if value is False or value == 0:
        return None
    if isinstance(value, Retry):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Retry(times=value)
    if not isinstance(value, Mapping):
        refuse(name, value, "must be a Retry", "write retry=Retry(times=2)")
    known = [field.name for field in fields(Retry)]
    for word in value:
        if word not in known:
            close = errors.nearest(str(word), known)
            hint = f"did you mean {close}?" if close else f"a Retry has {', '.join(known)}"
            refuse(name, word, "a Retry has no such word", hint)
    return Retry(**value)


def _growth(value: object, name: str, what: str) -> list[Any] | None:
    """None: not retried; empty: the same again; else the sign and the amount."""
    if value is None or value is False:
        return None
    if value is True:
        return []
    pattern = r"\s*([A-Za-z_]+)\s*([*+])\s*(.+?)\s*"
    found = re.fullmatch(pattern, value) if isinstance(value, str) else None
    hint = f'write {name}="{what}*2", {name}="{what}+{"4G" if what == "mem" else "1h"}" or True'
    if found is None or found[1] != what:
        refuse(f"retry: {name}", value, f"is no growth of {what}", hint)
    if found[2] == "+":
        more = parse_memory(found[3], name) if what == "mem" else parse_duration(found[3], name)
        if not more:
            refuse(f"retry: {name}", value, "adds nothing", hint)
        return ["+", int(more)]
    try:
        factor = float(found[3])
    except ValueError:
        refuse(f"retry: {name}", value, f"{found[3]} is not a number", hint)
    if not 1 < factor <= 100:
        refuse(f"retry: {name}", value, "the factor must be more than 1 and at most 100", hint)
    return ["*", factor]


def _seconds(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, (bool, Seconds)):
        if not 0 <= value <= 86400:
            refuse("retry: backoff", value, "must be between 0 seconds and a day")
        return value
    found = parse_duration(value, "backoff")
    if found is None:
        refuse("retry: backoff", value, "must end at some time")
    return int(found)


def _class_name(given: object) -> str:
    """The name of a class of exceptions, as the runner writes it."""
    if isinstance(given, type) and issubclass(given, BaseException):
        own = given.__module__ == "builtins"
        return given.__qualname__ if own else f"{given.__module__}.{given.__qualname__}"
    if not isinstance(given, str):
        refuse("retry: on", given, "must be a class of exceptions", "write on=(OSError,)")
    if "." in given:
        return given
    ours = [name for name, found in vars(errors).items() if isinstance(found, type)]
    if given in ours:
        return f"slurm.errors.{given}"
    theirs = [
        name
        for name, found in vars(builtins).items()
        if isinstance(found, type) and issubclass(found, BaseException)
    ]
    if given not in theirs:
        close = errors.nearest(given, [*ours, *theirs])
        hint = f"did you mean {close!r}?" if close else 'write it with its module: "package.Error"'
        refuse("retry: on", given, "is no exception of Python's or of this package", hint)
    return given
