"""The memory through which a worker of a packed map gives its parent the outcomes of items."""

import json
import mmap
from typing import List, NamedTuple, Sequence, Tuple

from slurm.runner import batches

#: A range has at most so many items, with so many bytes of outcomes.
MOST, DATA = 16384, 768 << 10

_COUNTERS = 64
BEGUN, DONE, LIMIT = 0, 1, 2

#: A call of a run: the run's path below the base directory, and the index.
Call = Tuple[str, int]


class Taken(NamedTuple):
    """Outcomes of items in a row, as they are written, and what some of the items wait for."""

    items: int
    failed: int
    payload: bytes
    #: The places in the row of items without an outcome, each with the call whose value it lacks.
    waits: Sequence[Tuple[int, Call]] = ()


class Board:
    """Memory that a worker shares with its parent: what it has finished outlives it.

    The bytes of an item are there before its word in the table, and that before the count.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _COUNTERS + 4 * MOST + DATA)
        view = memoryview(self._memory)
        self.counters = view[:_COUNTERS].cast("Q")
        self.words = view[_COUNTERS : _COUNTERS + 4 * MOST].cast("I")
        self.data = view[_COUNTERS + 4 * MOST :]

    def clear(self, limit: int) -> None:
        """Begin a new range of so many items."""
        self.counters[BEGUN] = self.counters[DONE] = 0
        self.counters[LIMIT] = limit

    @property
    def begun(self) -> int:
        """How many items of the range were begun."""
        return int(self.counters[BEGUN])

    @property
    def done(self) -> int:
        """How many of them have an outcome here."""
        return int(self.counters[DONE])

    @property
    def limit(self) -> int:
        """How many items of the range may be begun; the parent lowers it to take the rest back."""
        return int(self.counters[LIMIT])

    @limit.setter
    def limit(self, value: int) -> None:
        self.counters[LIMIT] = value

    def take(self, start: int) -> Taken:
        """The outcomes from `start` on."""
        done = self.done
        before = sum(word & batches.LENGTH for word in self.words[:start])
        words = self.words[start:done].tolist()
        used = before + sum(word & batches.LENGTH for word in words)
        data = bytes(self.data[before:used])
        waits = []  # type: List[Tuple[int, Call]]
        if any(word & batches.KIND == batches.WAITS for word in words):
            words, data, waits = _without_waits(words, data)
        failed = sum(1 for word in words if word & batches.TROUBLE)
        return Taken(len(words), failed, batches.encode_batch(words, data), waits)


def _without_waits(
    words: List[int], data: bytes
) -> Tuple[List[int], bytes, List[Tuple[int, Call]]]:
    """The words and bytes of outcomes alone; those that wait are taken for elsewhere."""
    kept, parts, waits, end = [], [], [], 0
    for number, word in enumerate(words):
        start, end = end, end + (word & batches.LENGTH)
        if word & batches.KIND == batches.WAITS:
            run, index = json.loads(data[start:end].decode())
            waits.append((number, (run, index)))
            word, start = batches.ELSEWHERE, end
        kept.append(word)
        parts.append(data[start:end])
    return kept, b"".join(parts), waits
