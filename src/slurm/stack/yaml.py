"""Values -> YAML that people like to read: enough for compose files and monitoring, no more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Words that need no quotes and that no reader of YAML takes for a number, a date or a truth value.
_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.@=+-]*(?::[A-Za-z0-9_/.@=+-]+)*\Z")
_WORD = r"[A-Za-z0-9_/.@=+-]+"
_WIDEST = 96
_MEANS_MORE = re.compile(r"(?i)(y|n|yes|no|on|off|true|false|null|~|\.|\.inf|\.nan|-)\Z")


@dataclass(frozen=True)
class Anchor:
    """A value that is written once, and used again by its name."""

    name: str
    value: object


@dataclass(frozen=True)
class Alias:
    """An anchor's value again; under the key `<<` its keys are taken over."""

    name: str


def dump(value: Mapping[str, object], comment: str = "") -> str:
    """The YAML of a mapping, with a comment above it; the order of keys stays."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    lines: list[str] = []
    for key, part in value.items():
        lines += ["", *_entry(f"{_scalar(key)}:", part, 0, spaced=key == "services")]
    return head + "\n".join(lines).lstrip("\n") + "\n"


def plain(value: object, anchors: dict[str, object] | None = None) -> object:
    """The same without anchors and aliases, as a reader of the YAML would have it."""
    known: dict[str, object] = {} if anchors is None else anchors
    if isinstance(value, Anchor):
        known[value.name] = plain(value.value, known)
        return known[value.name]
    if isinstance(value, Alias):
        return known[value.name]
    if isinstance(value, Mapping):
        parts = {key: plain(part, known) for key, part in value.items()}
        merged = parts.pop("<<", {})
        return {**merged, **parts} if isinstance(merged, Mapping) else parts
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item, known) for item in value]
    return value


def _entry(head: str, value: object, depth: int, spaced: bool = False) -> list[str]:
    """A key or a dash with its value behind or below it; `spaced` parts have lines between."""
    pad = "  " * depth
    if isinstance(value, Anchor):
        return _entry(f"{head} &{value.name}", value.value, depth)
    if isinstance(value, Mapping) and value:
        parts = [_entry(f"{_scalar(k)}:", v, depth + 1) for k, v in value.items()]
        between = [""] if spaced else []
        below = [line for part in parts for line in [*part, *between]]
        return [f"{pad}{head}", *(below[:-1] if spaced else below)]
    flow = _flow(value)
    if flow and len(pad) + len(head) + len(flow) < _WIDEST:
        return [f"{pad}{head} {flow}"]
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return [f"{pad}{head}", *(line for item in value for line in _item(item, depth + 1))]
    return [f"{pad}{head} {_scalar(value)}"]


def _flow(value: object) -> str:
    """A list of plain words on one line, or nothing where that would not be read well."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        return ""
    if not all(isinstance(item, str) and re.fullmatch(_WORD, item) for item in value):
        return ""
    return f"[{', '.join(map(_scalar, value))}]"


def _item(value: object, depth: int) -> list[str]:
    if isinstance(value, Mapping) and value:
        lines = [x for k, v in value.items() for x in _entry(f"{_scalar(k)}:", v, depth + 1)]
        pad = "  " * depth
        return [f"{pad}- {lines[0].lstrip()}", *lines[1:]]
    return _entry("-", value, depth)


def _scalar(value: object) -> str:
    if isinstance(value, Alias):
        return f"*{value.name}"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, str):
        plain = value == "<<" or (_PLAIN.match(value) and not _MEANS_MORE.match(value))
        return value if plain else json.dumps(value)
    if isinstance(value, Sequence):
        return "[]"
    return json.dumps(value)
