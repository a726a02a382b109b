"""Slurm's short form for many node names, `n[1-3,7],gpu[01-02]-ib`, in both directions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

# More names than this is not a list of nodes; the bound keeps a wrong text from filling memory.
MOST_HOSTS = 100_000

_PIECE = r"\[(?P<ranges>[^\[\]]*)\]|(?P<text>[A-Za-z0-9_.-]+)"
_RANGE = r"(?P<first>[0-9]{1,15})(?:-(?P<last>[0-9]{1,15}))?"
_NAME = r"[A-Za-z0-9_.-]+"
_LAST_NUMBER = r"(?P<prefix>.*?)(?P<number>[0-9]{1,15})(?P<suffix>[^0-9]*)"


def expand_hostlist(text: str, most: int = MOST_HOSTS) -> list[str]:
    """The names that a host list stands for, each once, in the order of the text.

    Zero padding and several brackets in one name are understood; an empty text is no names.
    Raises `ValueError` for anything else, and for a list of more than `most` names.
    """
    names: dict[str, None] = {}
    room = most
    for term in _split_terms(text):
        pieces = _expand_term(term, text, most)
        count = 1
        for choices in pieces:
            count *= len(choices)
        room -= count
        if room < 0:
            raise ValueError(f"host list names more than {most} hosts: {text[:80]!r}")
        names.update(dict.fromkeys("".join(parts) for parts in itertools.product(*pieces)))
    return list(names)


def _split_terms(text: str) -> list[str]:
    """The parts of a host list between the commas that stand outside brackets."""
    if not text.strip():
        return []
    terms, start, depth = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in host list {text[:80]!r}")
        if character == "," and not depth:
            terms.append(text[start:at].strip())
            start = at + 1
    if depth:
        raise ValueError(f"a bracket is not closed in host list {text[:80]!r}")
    return [*terms, text[start:].strip()]


def _expand_term(term: str, text: str, most: int) -> list[list[str]]:
    """The choices for each piece of one name: `r[1-2]n5` gives `[["r"], ["1", "2"], ["n5"]]`."""
    piece = re.compile(_PIECE)
    pieces: list[list[str]] = []
    at, count = 0, 1
    while at < len(term):
        match = piece.match(term, at)
        if match is None:
            raise ValueError(f"{term[at:][:20]!r} is not part of a host name in {text[:80]!r}")
        ranges = match["ranges"]
        # Many brackets multiply: each is held to what is left, before its numbers are made.
        left = most // count
        pieces.append([match["text"]] if ranges is None else _expand_ranges(ranges, text, left))
        count *= len(pieces[-1])
        at = match.end()
    if not pieces:
        raise ValueError(f"a name is empty in host list {text[:80]!r}")
    return pieces


def _expand_ranges(ranges: str, text: str, most: int) -> list[str]:
    """The numbers of one bracket, padded as its first number is."""
    numbers: list[str] = []
    for part in ranges.split(","):
        match = re.fullmatch(_RANGE, part)
        if match is None:
            raise ValueError(f"{part[:20]!r} is not a range of numbers in {text[:80]!r}")
        first = match["first"]
        low, high = int(first), int(match["last"] or first)
        if high < low:
            raise ValueError(f"{part!r} is backwards in host list {text[:80]!r}")
        if len(numbers) + high - low >= most:
            raise ValueError(f"{part!r} is too long, or one of too many, in {text[:80]!r}")
        numbers += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return numbers


def collapse_hostlist(names: Iterable[str]) -> str:
    """The shortest host list for these names, each once, in the order of `host_order`."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for name in sorted(set(names), key=host_order):
        if re.fullmatch(_NAME, name) is None:
            raise ValueError(f"not a host name: {name[:80]!r}")
        prefix, number, suffix = _split_name(name)
        groups.setdefault((prefix, suffix, bool(number)), []).append(number)
    terms = []
    for (prefix, suffix, _), numbers in groups.items():
        ranges = _collapse_numbers(numbers)
        plain = len(numbers) == 1
        terms.append(f"{prefix}{ranges}{suffix}" if plain else f"{prefix}[{ranges}]{suffix}")
    return ",".join(terms)


def host_order(name: str) -> tuple[object, ...]:
    """A sort key under which `n2` comes before `n10`, and names of one kind stand together."""
    prefix, number, suffix = _split_name(name)
    natural = tuple(
        (len(part), part) if odd else part
        for odd, part in zip(itertools.cycle((False, True)), re.split(r"([0-9]+)", prefix))
    )
    return natural, suffix, len(number), number


def _split_name(name: str) -> tuple[str, str, str]:
    """A name as what stands before its last number, the number (perhaps empty), and the rest."""
    match = re.fullmatch(_LAST_NUMBER, name)
    return (match["prefix"], match["number"], match["suffix"]) if match else (name, "", "")


def _collapse_numbers(numbers: list[str]) -> str:
    """Numbers in order as ranges; a number joins only where expanding gives its very digits."""
    ranges: list[list[str]] = []
    for number in numbers:
        first, last = ranges[-1] if ranges else ("", "")
        if last and number == str(int(last) + 1).zfill(len(first)):
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(a if a == b else f"{a}-{b}" for a, b in ranges)
