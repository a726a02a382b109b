"""What a value in `cluster.toml` may be: each kind reads one value, or says what would be right."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slurm.errors import OptionError, nearest
from slurm.model.hostlist import expand_hostlist
from slurm.model.units import (
    brief,
    format_duration,
    format_memory,
    parse_duration,
    parse_gpus,
    parse_memory,
)


class Wrong(ValueError):
    """A value that cannot be used: the problem in words, and what to write instead."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True)
class Kind:
    """One kind of value: what it is called in the reference, how it is read, how it is shown."""

    words: str
    read: Callable[[object], Any]
    show: Callable[[Any], str] = field(default=lambda value: toml(value))


def toml(value: object) -> str:
    """A plain value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def number(low: int, high: int) -> Kind:
    """A whole number in a range."""
    words = f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            fix = "write it without quotes" if isinstance(value, str) else f"such as {low or 1}"
            raise Wrong(f"must be {words}, not {brief(value)}", fix)
        if not low <= value <= high:
            raise Wrong(f"{brief(value)} is not {words}", f"write {words}")
        return value

    return Kind(words, read)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, not {brief(value)}", "write true or false, no quotes")
    return value


def _text(value: object, words: str) -> str:
    if not isinstance(value, str):
        raise Wrong(f"must be {words} in quotes, not {brief(value)}", 'write "..." around it')
    return value


def text(pattern: str, words: str) -> Kind:
    """A text that a pattern allows; slurm.conf and compose files know little quoting."""

    def read(value: object) -> str:
        found = _text(value, words)
        if not re.fullmatch(pattern, found):
            raise Wrong(f"{brief(found)} is not {words}", f"write {words}")
        return found

    return Kind(words, read)


def choice(*known: str) -> Kind:
    """One of a few words."""
    words = " or ".join(f"`{word}`" for word in known)
    plain = ", ".join(known)

    def read(value: object) -> str:
        found = _text(value, f"one of {plain}")
        if found not in known:
            close = nearest(found, known)
            raise Wrong(
                f"{brief(found)} is not one of {plain}",
                f'did you mean "{close}"?' if close else f"write one of {plain}",
            )
        return found

    return Kind(words, read)


def either(word: str, other: Kind) -> Kind:
    """The word, or a value of another kind."""

    def read(value: object) -> Any:
        if value == word:
            return word
        try:
            return other.read(value)
        except Wrong as wrong:
            raise Wrong(wrong.problem, f'{wrong.fix}, or "{word}"') from None

    def show(value: Any) -> str:
        return toml(value) if value == word else other.show(value)

    return Kind(f"`{word}`, or {other.words}", read, show)


def optional(kind: Kind) -> Kind:
    """A value that may be left out; the empty text says the same."""
    return Kind(
        kind.words,
        lambda value: "" if value == "" else kind.read(value),
        lambda value: kind.show(value) if value else "",
    )


def many(one: Kind) -> Kind:
    """A list of values of one kind, each once."""

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Wrong(f"must be a list, not {brief(value)}", f"write [{brief(value)}]")
        found = tuple(one.read(item) for item in value)
        twice = [item for item in found if found.count(item) > 1]
        if twice:
            raise Wrong(f"{brief(twice[0])} stands in the list twice", "remove one of them")
        return found

    return Kind(f"a list, each {one.words}", read)


def _with_units(parse: Callable[..., Any], words: str) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        try:
            return parse(value, "value")
        except OptionError as error:
            problem = error.message.partition(": ")[2]
            raise Wrong(f"{brief(value)} {problem}", error.hint or f"write {words}") from None

    return read


def _memory(value: object) -> int:
    mib: int = _with_units(parse_memory, "an amount of memory")(value)
    if mib < 64:
        raise Wrong(f"{brief(value)} is {mib} MiB, too little to run anything", "64MiB or more")
    return mib


def _show_memory(mib: int) -> str:
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else format_memory(mib)


def _hostlist(value: object) -> tuple[str, ...]:
    found = _text(value, "node names")
    try:
        names = expand_hostlist(found)
    except ValueError as error:
        raise Wrong(str(error), 'write names such as "n1", "n[1-4]" or "cpu[01-16],gpu1"') from None
    if not names:
        raise Wrong("names no node", 'write names such as "n[1-4]"')
    for name in names:
        if not re.fullmatch(_LABEL, name):
            raise Wrong(
                f"{brief(name)} is not a host name",
                "use lower case letters, digits and -, at most 40, a letter or digit at each end",
            )
    return tuple(names)


def _show_hostlist(value: tuple[str, ...]) -> str:
    from slurm.model.hostlist import collapse_hostlist

    return toml(collapse_hostlist(value))


def _address(value: object) -> str:
    found = _text(value, "an IPv4 address")
    try:
        return str(ipaddress.IPv4Address(found))
    except ValueError:
        raise Wrong(f"{brief(found)} is not an IPv4 address", 'such as "192.168.1.10"') from None


def _subnet(value: object) -> str:
    found = _text(value, "an IPv4 network")
    try:
        network = ipaddress.IPv4Network(found)
    except ValueError as error:
        raise Wrong(
            f"{brief(found)} is not an IPv4 network: {error}", 'such as "10.213.7.0/24"'
        ) from None
    if network.prefixlen > 28 or network.prefixlen < 8:
        raise Wrong(f"{found} has no room for a cluster, or far too much", "a prefix of /16 to /27")
    return str(network)


def _span(value: object) -> tuple[int, int]:
    found = _text(value, "a range of ports")
    match = re.fullmatch(r"(\d{4,5})-(\d{4,5})", found)
    if not match or not 1024 <= int(match[1]) < int(match[2]) <= 65535:
        raise Wrong(f"{brief(found)} is not a range of ports", 'such as "60001-61000"')
    return int(match[1]), int(match[2])


_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"

FLAG = Kind("`true` or `false`", _flag)
PORT = number(1, 65535)
NAME = text(
    r"[a-z][a-z0-9_]{0,31}", "a name: a lower case letter, then letters, digits or _, at most 32"
)
LABEL = text(_LABEL, "a host name: lower case letters, digits and -, at most 40")
WORD = text(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", "a word of letters, digits and _ . + -")
_PRINTED = r"[^\x00-\x08\x0a-\x1f\x7f]*"
LINE = text(rf"{_PRINTED}[^\x00-\x20\x7f]{_PRINTED}", "one line that is not empty")
PATH = text(
    r"/[A-Za-z0-9._/+@-]*", "an absolute path of letters, digits and . _ + @ -, nothing else"
)
VOLUME = text(
    r"/[A-Za-z0-9._/+@-]*|[a-z0-9][a-z0-9_.-]{0,63}", "a volume's name, or an absolute path"
)
IMAGE = text(
    r"[a-z0-9](?:[A-Za-z0-9._/:@-]|\{suite\}|\{version\}){0,254}",
    "an image's name, in which only {suite} and {version} are filled in",
)
HOSTNAME = text(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", "a host name or an address")
MEMORY = Kind('memory, such as `"2GiB"`', _memory, lambda v: toml(_show_memory(v)))
DURATION = Kind(
    'a time, such as `"10min"`, or `"UNLIMITED"`',
    _with_units(parse_duration, "a time"),
    lambda v: toml(format_duration(v)),
)
NODES = Kind('node names, such as `"n[1-4]"`', _hostlist, _show_hostlist)
GPUS = Kind(
    '`"auto"`, a number, or `"a100:2"`',
    lambda v: v if v == "auto" else _with_units(parse_gpus, "GPUs")(v),
    lambda v: toml(v) if v == "auto" else toml(",".join(map(str, v))) if v else "0",
)
ADDRESS = Kind("an IPv4 address", _address)
SUBNET = Kind("an IPv4 network", _subnet)
PORTS = Kind('a range of ports, such as `"60001-61000"`', _span, lambda v: toml(f"{v[0]}-{v[1]}"))
