"""What a user may ask of Slurm by annotations: one table of names, checks and Slurm's fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from slurm.bridge.names import OTHER_PREFIX, PREFIX, RESERVED_ANNOTATIONS, RESUBMIT
from slurm.bridge.quantities import mebibytes_up, whole_up
from slurm.bridge.sizes import read_gres
from slurm.errors import OptionError, nearest
from slurm.model import option_values
from slurm.model.hostlist import expand_hostlist
from slurm.model.units import parse_duration

Value = str | int | bool | dict[str, object] | list[str]
_LONGEST = 1024
_MOST_HOSTS = 1000
_MOST = 2**31 - 1


def _shaped(pattern: str, example: str) -> Callable[[str], Value]:
    """Text of one shape only: what goes to Slurm holds no blank, quote or control character."""
    whole = re.compile(pattern)

    def parse(text: str) -> Value:
        if not whole.fullmatch(text):
            raise ValueError(f"use something like {example}")
        return text

    return parse


_word = _shaped(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}", "gpu or team-a")
_words = _shaped(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*(,[A-Za-z0-9_][A-Za-z0-9_.@-]*)*", "gpu or gpu,long")
_constraint = _shaped(r"[A-Za-z0-9_.:@&|*!,()\[\]-]+", "a100&ib or [rack1|rack2]")
_licenses = _shaped(r"[A-Za-z0-9_.@:,|=-]+", "matlab:2 or abc@db:1,xyz:2")


def _count(least: int, most: int = _MOST) -> Callable[[str], Value]:
    def parse(text: str) -> Value:
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise ValueError(f"use a whole number from {least} to {most}")
        return int(text)

    return parse


def _number(value: int) -> dict[str, object]:
    """A number in slurmrestd's own form, where 0 differs from "not set"."""
    return {"set": True, "number": value}


def _boxed(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    return lambda text: _number(int(str(parse(text))))


def _minutes(text: str) -> Value:
    if text.isdigit():
        return _boxed(_count(1))(text)
    seconds = parse_duration(text, "timelimit")
    if not seconds:
        raise ValueError("use minutes, or a time such as 2h, 1-12:00:00 or 90m")
    return _number(-(-int(seconds) // 60))


def _moment(text: str) -> Value:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError("use a moment such as 2030-01-31T08:00:00Z") from None
    return _number(int((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()))


def _cpus(text: str) -> Value:
    count = whole_up(text)
    if not 1 <= count <= _MOST:
        raise ValueError("use at least one CPU, and no more than a node can have")
    return count


def _memory(text: str) -> Value:
    size = mebibytes_up(text)
    if not 1 <= size <= _MOST:
        raise ValueError("use a size such as 512Mi or 4Gi")
    return _number(size)


def _gres(text: str) -> Value:
    return ",".join(map(str, read_gres(text)))


def _dependency(text: str) -> Value:
    return option_values.dependency(text, "dependency")


def _exclusive(text: str) -> Value:
    """`true` asks for whole nodes, `user` shares them among jobs of one user only."""
    kinds = {"true": ["none"], "user": ["user"], "mcs": ["mcs"], "false": []}
    if text not in kinds:
        raise ValueError("use true, false, user or mcs")
    return kinds[text]


def _truth(text: str) -> Value:
    if text not in ("true", "false"):
        raise ValueError("use true or false")
    return text == "true"


def _sentence(text: str) -> Value:
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError("use one line without control characters")
    return text


def _hosts(text: str) -> Value:
    """Few enough that expanding them costs nothing: it is done at each look at the pod."""
    try:
        expand_hostlist(text, _MOST_HOSTS)
    except ValueError as error:
        raise ValueError(f"{error}; name at most {_MOST_HOSTS} nodes, such as n[1-3]") from None
    return text


@dataclass(frozen=True)
class Parameter:
    """One annotation: its name behind the prefix, Slurm's field, the check and what it means.

    `guarded` marks what only the identity mapping may allow, and what no update changes; `listed`
    is the key of an identity rule that lists the values to choose from.
    """

    name: str
    field: str
    parse: Callable[[str], Value]
    meaning: str
    guarded: bool = False
    listed: str = ""


PARAMETERS: dict[str, Parameter] = {
    p.name: p
    for p in (
        Parameter("account", "account", _word, "Slurm account that pays", guarded=True),
        Parameter("begin", "begin_time", _moment, "not before this moment"),
        Parameter("comment", "comment", _sentence, "a line for people"),
        Parameter("constraints", "constraints", _constraint, "features that the nodes must have"),
        Parameter(
            "cpu-per-task", "cpus_per_task", _cpus, "CPUs of each pod, if more than requested"
        ),
        Parameter("deadline", "deadline", _moment, "Slurm drops the job that cannot end by then"),
        Parameter("dependency", "dependency", _dependency, "such as afterok:123"),
        Parameter("exclude", "excluded_nodes", _hosts, "Slurm nodes not to use, as n[1-3]"),
        Parameter("exclusive", "shared", _exclusive, "true: whole nodes; user, mcs; false: share"),
        Parameter(
            "gres",
            "tres_per_node",
            _gres,
            "such as gpu:2 or gpu:a100:2, if more than requested",
        ),
        Parameter("group-id", "group_id", _word, "Slurm group", guarded=True),
        Parameter("hold", "hold", _truth, "submitted held, until released in Slurm"),
        Parameter("job-name", "name", _sentence, "name of the job"),
        Parameter("licenses", "licenses", _licenses, "licenses, such as matlab:2"),
        Parameter("max-nodes", "maximum_nodes", _count(1), "most nodes of a gang"),
        Parameter("mem-per-node", "memory_per_node", _memory, "memory, if more than requested"),
        Parameter("min-nodes", "minimum_nodes", _count(1), "fewest nodes of a gang"),
        Parameter("nice", "nice", _count(0), "lowers the priority"),
        Parameter(
            "partition",
            "partition",
            _words,
            "one partition, or several with commas",
            listed="allow_partitions",
        ),
        Parameter("priority", "priority", _boxed(_count(1)), "fixed priority", guarded=True),
        Parameter("qos", "qos", _word, "quality of service", listed="allow_qos"),
        Parameter("reservation", "reservation", _words, "reservation", listed="allow_reservations"),
        Parameter("timelimit", "time_limit", _minutes, "minutes, or 2h, 1-12:00:00"),
        Parameter("user-id", "user_id", _word, "Slurm user", guarded=True),
        Parameter("wckey", "wckey", _word, "workload characterization key"),
    )
}

# What users of the command line would call them.
_ALSO = {"time": "timelimit", "name": "job-name", "constraint": "constraints", "user": "user-id"}
_WISHES = {RESUBMIT.removeprefix(PREFIX)}


def asked(annotations: Mapping[str, str]) -> dict[str, str]:
    """The parameters among annotations, by name; ours come before those of the other bridge."""
    found = {}
    for prefix in (OTHER_PREFIX, PREFIX):
        for key, text in annotations.items():
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and key not in RESERVED_ANNOTATIONS and name not in _WISHES:
                found[name] = text
    return found


def fields(annotations: Mapping[str, str]) -> dict[str, Value]:
    """Slurm's fields for the annotations; what `problems` would name is left out."""
    return {
        PARAMETERS[name].field: value
        for name, text in asked(annotations).items()
        if (value := _parsed(name, text)) is not None and not isinstance(value, Exception)
    }


def problems(annotations: Mapping[str, str]) -> list[str]:
    """What is wrong with the annotations, a sentence for each, for the person who wrote them."""
    found = []
    for name, text in sorted(asked(annotations).items()):
        value = _parsed(name, text)
        if value is None:
            found.append(f"annotation {PREFIX}{name} is not known{_did_you_mean(name)}")
        elif isinstance(value, Exception):
            reason = value.hint or value.message if isinstance(value, OptionError) else str(value)
            found.append(f"annotation {PREFIX}{name}: {text[:80]!r} cannot be used; {reason}")
    wish = annotations.get(RESUBMIT, "true")
    if wish not in ("true", "false"):
        found.append(f"annotation {RESUBMIT}: {wish[:80]!r} cannot be used; use true or false")
    return found


def _parsed(name: str, text: str) -> Value | Exception | None:
    """The value, what is wrong with it, or None for a name that nobody knows."""
    if name not in PARAMETERS:
        return None
    if len(text) > _LONGEST:
        return ValueError(f"use at most {_LONGEST} characters")
    try:
        return PARAMETERS[name].parse(text.strip() if name != "comment" else text)
    except (ValueError, OptionError) as error:
        return error


def _did_you_mean(name: str) -> str:
    like = _ALSO.get(name) or nearest(name, _names())
    return f"; did you mean {PREFIX}{like}?" if like else ""


def _names() -> Iterable[str]:
    return (*PARAMETERS, *_WISHES)
