"""The items of a packed map that are left to do, as ranges."""

from collections import deque
from typing import Deque, Optional, Set, Tuple


class Queue:
    """The items that are left: ranges in order, and those that have to run alone."""

    def __init__(self, first: int, stop: int, over: Set[int]) -> None:
        self._ranges: Deque[Tuple[int, int]] = deque()
        self._alone: Deque[int] = deque()
        self.left = 0
        begin = first
        for index in [*sorted(over), stop]:
            self.give_back(begin, index)
            begin = index + 1

    def give_back(self, first: int, stop: int) -> None:
        """Put a range back; it is the next to be taken."""
        if first < stop:
            self._ranges.appendleft((first, stop))
            self.left += stop - first

    def suspect(self, index: int) -> None:
        """Put an item back that has to run alone, after all others."""
        self._alone.append(index)
        self.left += 1

    def take(self, most: int) -> Optional[Tuple[int, int]]:
        """The next range, of at most so many items."""
        if self._ranges:
            first, stop = self._ranges.popleft()
            cut = min(stop, first + max(1, most))
            self.left -= stop - first
            self.give_back(cut, stop)
        elif self._alone:
            first = self._alone.popleft()
            cut = first + 1
            self.left -= 1
        else:
            return None
        return first, cut
