"""Digests of plain data and of memory, many at once where they are of one type."""

from __future__ import annotations

import array
import hashlib
import itertools
import marshal
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Types whose values are their content and hold nothing else.
SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))
_NESTED = frozenset((list, tuple))
#: Memory is digested in pieces of this size: hashlib lets other threads run meanwhile.
_PIECE = 16 << 20
#: Lists in lists that are looked at as one.
_DEEPEST = 4


def combine(kind: str, *parts: str) -> str:
    """One digest of several texts, which cannot be mistaken for others."""
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def of_scalar(value: Any) -> str:
    """The digest of None, a number, text or bytes."""
    kind = type(value)
    if kind is bytes:
        return of_memory("bytes", value)
    return combine(kind.__name__, value if kind is str else _text(value))


def _text(value: Any) -> str:
    if type(value) is not int:
        return repr(value)
    try:
        return repr(value)
    except ValueError:  # longer than Python likes to write
        return hex(value)


def of_memory(kind: str, data: Any) -> str:
    """The digest of a stretch of memory."""
    view = memoryview(data).cast("B")
    if view.nbytes <= _PIECE:
        return hashlib.sha256(kind.encode() + b"\0" + view).hexdigest()
    pieces = [view[at : at + _PIECE] for at in range(0, view.nbytes, _PIECE)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda piece: hashlib.sha256(piece).hexdigest(), pieces))
    return combine(kind, str(view.nbytes), *found)


def of_series(values: Sequence[Any]) -> str | None:
    """The digest of many plain values in their order; None where others are among them."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        found = _of_one_kind(values, kinds.pop())
        if found is not None:
            return found
    return of_memory("mixed", marshal.dumps(tuple(values), 0)) if _all_plain(values) else None


def _of_one_kind(values: Sequence[Any], kind: type) -> str | None:
    name = kind.__name__
    if kind is int:
        try:
            return of_memory("int64", array.array("q", values))
        except OverflowError:
            return None
    if kind is float:
        return of_memory(name, array.array("d", values))
    if kind is bool:
        return of_memory(name, bytes(values))
    if kind is str or kind is bytes:
        sizes = of_memory("sizes", array.array("q", map(len, values)))
        if kind is bytes:
            return combine(name, sizes, of_memory(name, b"".join(values)))
        text = "".join(values).encode("utf-8", "surrogatepass")
        return combine(name, sizes, of_memory(name, text))
    return None


def holds_text(values: Sequence[Any], text: str) -> bool:
    """Whether a text stands in plain values, at any depth; not asked of others."""
    if not _all_plain(values):
        return False
    return text.encode("utf-8", "surrogatepass") in marshal.dumps(tuple(values), 0)


def _all_plain(values: Iterable[Any], depth: int = 0) -> bool:
    """Whether values are plain, or lists and tuples of such: marshal writes those by content."""
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return True
    if depth == _DEEPEST or not kinds <= SCALARS | _NESTED:
        return False
    inner = [value for value in values if type(value) in _NESTED]
    return _all_plain(list(itertools.chain.from_iterable(inner)), depth + 1)
