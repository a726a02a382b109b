"""One function per kind of option value: what a user may write becomes one checked, plain form.

Each takes `(value, name)` and returns the plain form, or raises an `OptionError` that names the
argument, the value and what works. Each also takes its own plain form and returns it unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slurm.errors import join_names, nearest
from slurm.model.hostlist import expand_hostlist
from slurm.model.units import (
    Seconds,
    format_duration,
    parse_duration,
    refuse,
)

Parse = Callable[[object, str], Any]

UNLIMITED = "UNLIMITED"

# Patterns stay text until they are used: compiling them all would slow every start.
_CONTROL = r"[\x00-\x1f\x7f]"
_SURROGATE = "[\ud800-\udfff]"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_NODES = r"(?P<least>[0-9]{1,7})(?:-(?P<most>[0-9]{1,7}))?"
_SIGNAL = r"(?:[RB]{1,2}:)?(?:(?:SIG)?[A-Z]{2,}[A-Z0-9+-]*|[0-9]{1,2})(?:@[0-9]{1,5})?"
_SWITCHES = r"(?P<count>[0-9]{1,6})(?:@(?P<wait>.+))?"
_AFTER = (
    r"(?:(?:after|afterany|afterok|afternotok|aftercorr|afterburstbuffer)"
    r"(?::[0-9]+(?:_(?:[0-9]+|\*))?(?:\+[0-9]+)?)+|singleton)"
)
_DEPENDENCY = rf"{_AFTER}(?:(?:,{_AFTER})*|(?:\?{_AFTER})*)"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?: ?[AaPp][Mm])?"
_MOMENT = (
    r"(?i)now(?:\+[0-9]{1,9}(?:seconds?|minutes?|hours?|days?|weeks?)?)?"
    rf"|(?:today|tomorrow)(?: {_CLOCK})?|midnight|noon|fika|teatime|{_CLOCK}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?"
    rf"|(?:[0-9]{{6}}|[0-9]{{1,2}}[./][0-9]{{1,2}}(?:[./](?:[0-9]{{2}}|[0-9]{{4}}))?)(?:-{_CLOCK})?"
)


def text(value: object, name: str) -> str:
    """One line of text that is not empty."""
    if not isinstance(value, str):
        refuse(name, value, f"must be text, not {type(value).__name__}")
    if not value.strip():
        refuse(name, value, "is empty", f"leave {name} out, or write None to remove a default")
    if re.search(_CONTROL, value):
        refuse(name, value, "has a newline, NUL or other control character", "write it on one line")
    return _encodable(value, name)


def _encodable(value: str, name: str) -> str:
    """`value`, if it can be written to a script."""
    if re.search(_SURROGATE, value):
        refuse(name, value, "cannot be written as UTF-8")
    return value


def path(value: object, name: str) -> str:
    """A path or a program, as text or `pathlib.Path`; it may not look like an option."""
    found = text(os.fspath(value) if isinstance(value, os.PathLike) else value, name)
    if found.startswith("-"):
        refuse(name, value, "would be read as an option", f'write "./{found}"')
    return found


def shaped(pattern: str, example: str) -> Parse:
    """Text of one shape; `example` is what the hint shows."""

    def parse(value: object, name: str) -> str:
        found = text(value, name).strip()
        if re.fullmatch(pattern, found) is None:
            refuse(name, value, f"is not of the form that {name} takes", f"for example {example}")
        return found

    return parse


def choice(*known: str) -> Parse:
    """One of a few words, in any case."""

    def parse(value: object, name: str) -> str:
        return _one_of(known, value, text(value, name).strip(), name)

    return parse


def choices(*known: str) -> Parse:
    """Some of a few words, as a list or with commas, in any case."""

    def parse(value: object, name: str) -> str:
        return ",".join(_one_of(known, value, word, name) for word in _words(value, name))

    return parse


def _one_of(known: tuple[str, ...], value: object, word: str, name: str) -> str:
    """The known word that `word` is but for case."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    if word.lower() not in by_lower:
        close = nearest(word.lower(), by_lower)
        hint = f'did you mean "{by_lower[close]}"?' if close else f"it can be {join_names(known)}"
        refuse(name, value, f"{word!r} is not known", hint)
    return by_lower[word.lower()]


def comma_list(value: object, name: str) -> str:
    """Text with commas, or a list that becomes it."""
    return ",".join(_words(value, name))


def _words(value: object, name: str) -> list[str]:
    """The items of a list or of text with commas, each checked."""
    if isinstance(value, str):
        items: list[object] = list(text(value, name).split(","))
    elif isinstance(value, (list, tuple)):
        items = list(value)
    else:
        refuse(name, value, f"must be text or a list, not {type(value).__name__}")
    if not items:
        refuse(name, value, "is empty", f"leave {name} out, or write None to remove a default")
    words = [text(item, name).strip() for item in items]
    for word in words:
        if "," in word:
            refuse(name, value, f"{word!r} has a comma in it", "write one item of the list each")
    return words


def count(least: int, most: int = 2**31 - 1, also: tuple[str, ...] = ()) -> Parse:
    """A whole number, or one of a few words."""

    def parse(value: object, name: str) -> int | str:
        if isinstance(value, str) and value.upper() in also:
            return value.upper()
        number = value
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,12}\s*", value):
            number = int(value)
        if not isinstance(number, int) or isinstance(number, bool):
            refuse(name, value, "is not a whole number", f"write a number, {least} or more")
        if not least <= number <= most:
            refuse(name, value, f"must lie between {least} and {most}")
        return number

    return parse


def _digits(value: object) -> str:
    """A number or text as text, and nothing for what is neither (True is no number here)."""
    if type(value) is int and 0 <= value < 10**9:
        return str(value)
    return value if isinstance(value, str) else ""


def nodes(value: object, name: str) -> int | str:
    """A number of nodes, or a range of it, `"2-4"`."""
    match = re.fullmatch(_NODES, _digits(value))
    if match is None:
        refuse(name, value, "is not a number of nodes", 'write a number or "2-4"')
    least, most = int(match["least"]), int(match["most"] or match["least"])
    if not 0 < least <= most:
        refuse(name, value, "must be one or more, the smaller number first")
    return f"{least}-{most}" if match["most"] else least


def flag(value: object, name: str) -> bool | None:
    """A switch: True, or None (no flag, and a default is removed) for False."""
    if not isinstance(value, bool):
        refuse(name, value, "is a switch", "write True or False")
    return value or None


def yes_no(*also: str) -> Parse:
    """True and False where both mean something, or one of a few words."""

    def parse(value: object, name: str) -> bool | str:
        if not isinstance(value, bool) and not (isinstance(value, str) and value in also):
            words = join_names(["True", "False", *(f'"{word}"' for word in also)])
            refuse(name, value, "is not known", f"write {words}")
        return value

    return parse


def flag_or(*also: str) -> Parse:
    """A switch that can also be one of a few words."""
    either = yes_no(*also)
    return lambda value, name: either(value, name) or None


def duration(value: object, name: str) -> Seconds | str:
    """A time limit: seconds, or the word UNLIMITED (None would mean "not set")."""
    seconds = parse_duration(value, name)
    return UNLIMITED if seconds is None else seconds


def limited(value: object, name: str) -> Seconds:
    """A time that must have an end."""
    seconds = parse_duration(value, name)
    if seconds is None:
        refuse(name, value, "must have an end")
    return seconds


def moment(value: object, name: str) -> str:
    """A point in time in Slurm's words, a `datetime` on the cluster's clock, or a `timedelta`."""
    import datetime

    if isinstance(value, datetime.timedelta):
        return f"now+{limited(value, name)}"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            hint = "give a datetime without a time zone (the cluster's clock), or a timedelta"
            refuse(name, value, "Slurm takes no time zones", hint)
        return value.isoformat(timespec="seconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    found = text(value, name).strip()
    if re.fullmatch(_MOMENT, found) is None:
        hint = 'write "16:00", "now+2hours", "tomorrow", "2030-01-20T12:30:00" or a timedelta'
        refuse(name, value, "is not a point in time", hint)
    return found


def hosts(value: object, name: str) -> str:
    """A host list, as text or as a list of names."""
    if isinstance(value, str):
        found = text(value, name).strip()
    elif isinstance(value, (list, tuple)) and value:
        found = ",".join(text(item, name) for item in value)
    else:
        refuse(name, value, "must be text or a list of names", 'write "n[1-3,7]" or a list')
    try:
        expand_hostlist(found)
    except ValueError as error:
        refuse(name, value, str(error), 'write "n[1-3,7]" or a list of names')
    return found


def signal(value: object, name: str) -> str:
    """When to send which signal before the time limit: `"USR1@120"` or `"B:TERM@60"`."""
    found = (_digits(value) or text(value, name)).strip().upper()
    if re.fullmatch(_SIGNAL, found) is None or int(found.partition("@")[2] or 0) > 65535:
        refuse(name, value, "is not a signal", 'write "USR1@120", or "B:USR1@120" for the script')
    return found


def switches(value: object, name: str) -> str:
    """How many network switches at most, and how long to wait for them: `"1@10:00"`."""
    match = re.fullmatch(_SWITCHES, _digits(value))
    if match is None:
        refuse(name, value, "is not a number of switches", 'write a number or "1@10:00"')
    if match["wait"] is None:
        return match["count"]
    return f"{match['count']}@{format_duration(limited(match['wait'], name))}"


def dependency(value: object, name: str) -> str:
    """A dependency in Slurm's words, `"afterok:123:124,singleton"`."""
    found = text(value, name).strip()
    if re.fullmatch(_DEPENDENCY, found) is None:
        hint = 'write "afterok:123", "afterany:123:124" or "singleton", joined by "," or by "?"'
        refuse(name, value, "is not a dependency", hint)
    return found


def variables(value: object, name: str) -> dict[str, str | None]:
    """Environment variables; a value of None removes a default. Values are not shown in errors."""
    if not isinstance(value, Mapping):
        refuse(name, type(value), "must be a mapping", f'write {name}={{"NAME": "value"}}')
    found: dict[str, str | None] = {}
    for key, entry in value.items():
        variable(key, name)
        found[key] = None if entry is None else _variable_value(entry, f'{name}["{key}"]')
    return found


def _variable_value(value: object, name: str) -> str:
    """The value of one environment variable; it may be private, so that no error shows it."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, float) or (type(value) is int and abs(value) < 10**100):
        return str(value)
    if not isinstance(value, str) or "\0" in value or re.search(_SURROGATE, value):
        hint = 'write text without NUL that can be encoded as UTF-8, for example "1"'
        refuse(name, type(value), "its value cannot be used", hint)
    return value


def variable(value: object, name: str) -> str:
    """The name of one environment variable."""
    if not isinstance(value, str) or re.fullmatch(_VARIABLE, value) is None:
        # What stands behind "=" may be private.
        shown = value.partition("=")[0] if isinstance(value, str) else type(value)
        hint = 'names are letters, digits and "_", and do not begin with a digit'
        refuse(name, shown, "is not the name of an environment variable", hint)
    return value


def secret_names(value: object, name: str) -> tuple[str, ...]:
    """The names of environment variables; never their values."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        hint = f'write {name}=("WANDB_API_KEY",); the values come from the environment'
        refuse(name, type(value), "takes names, not values", hint)
    items = [value] if isinstance(value, str) else list(value)
    for at, item in enumerate(items):
        # Somebody may have written the secret itself: no error shows it.
        if not isinstance(item, str) or re.fullmatch(_VARIABLE, item) is None:
            hint = f'write {name}=("WANDB_API_KEY",); the values come from the environment'
            refuse(f"{name}[{at}]", type(item), "is not the name of an environment variable", hint)
    return tuple(items)


def shell_lines(value: object, name: str) -> tuple[str, ...]:
    """Pieces of shell, one or a list of them; a piece may have several lines, as a loop has."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        refuse(name, value, "must be text or a list of lines")
    pieces: list[str] = []
    for item in items:
        if not isinstance(item, str) or "\0" in item:
            refuse(name, item, "is not a line of shell")
        pieces.append(_encodable(item, name).replace("\r\n", "\n").rstrip("\n"))
    return tuple(pieces)


def words(value: object, name: str) -> tuple[str, ...]:
    """Words of a command line, each as it is."""
    if not isinstance(value, (list, tuple)):
        refuse(name, value, "must be a list of words", f'write {name}=["--cpu-bind=none"]')
    for item in value:
        if not isinstance(item, str) or "\0" in item:
            refuse(name, item, "is not a word")
    return tuple(_encodable(item, name) for item in value)


def module_names(value: object, name: str) -> tuple[str, ...]:
    """The names of environment modules."""
    one = shaped(r"[A-Za-z0-9_.][A-Za-z0-9_.+/@:=~-]*", '"cuda/12.4"')
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items:
        refuse(name, value, "must be a list of names", f'write {name}=["gcc", "cuda/12.4"]')
    return tuple(one(item, name) for item in items)
