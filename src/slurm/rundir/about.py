"""The metadata of a run, which others may have written: what it cannot mean is left out."""

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

#: Calls of one run: what says that it has more is not a map that was ever submitted.
_MOST = 10_000_000


def _is_count(value: object, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value >= 0


def _is_part(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_count, value))


def _are_parts(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, list) or not value or not all(map(_is_part, value)):
        return False
    # The parts follow each other, so that no call is there twice.
    calls = int(value[-1][1]) + int(value[-1][2])
    return calls <= _MOST and calls == sum(int(part[2]) for part in value)


def _is_pack(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, list) or len(value) != 5 or not isinstance(value[4], str):
        return False
    return all(_is_count(number, 1) for number in (value[0], *value[2:4])) and _is_count(value[1])


def _is_parent(value: object) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, list)
        and len(value) >= 2
        and isinstance(value[0], str)
        and _is_count(value[1])
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _of(*kinds: type) -> "Callable[[object], bool]":
    return lambda value: isinstance(value, kinds)


_NONE = type(None)
#: What is read of it and would lead astray, and how it must look; all else is taken as it is.
_LOOKS = {
    "task": _of(str),
    "options": _of(dict),
    "workdir": _of(str),
    "submitted": _is_time,
    "ranks": lambda value: _is_count(value, 1),
    "parts": _are_parts,
    "pack": _is_pack,
    "item_retry": _of(dict, _NONE),
    "container": _of(str, _NONE),
    "upstream": _are_names,
    "retry": _of(dict, _NONE),
    "parent": _is_parent,
    "scheduler": _of(dict, _NONE),
}  # type: Dict[str, Callable[[object], bool]]


def checked(found: "Dict[str, Any]") -> "Dict[str, Any]":
    """Metadata without the entries that are none of ours."""
    return {
        name: value for name, value in found.items() if name not in _LOOKS or _LOOKS[name](value)
    }
