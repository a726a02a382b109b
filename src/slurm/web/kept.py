"""Answers that are kept for a moment, so that many who ask cost no more than one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from slurm.errors import SchedulerUnreachable

T = TypeVar("T")


class Bucket:
    """So many at once, and then so many a second."""

    def __init__(
        self, burst: float, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._rate, self._clock = burst, rate, clock
        self._left, self._at = burst, clock()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Kept:
    """The last answers by key: each is made once for all who ask while it is fresh."""

    def __init__(
        self, most: int, bucket: Bucket | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._bucket, self._clock = most, bucket, clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, fresh: float, make: Callable[[], T]) -> T:
        """The answer, at most `fresh` seconds old where there is still room for a question."""
        with self._lock:
            turn = self._making.setdefault(key, threading.Lock())
        try:
            with turn:
                with self._lock:
                    found = self._answers.get(key)
                    if found is not None and self._clock() - found[0] < fresh:
                        self._answers.move_to_end(key)
                        return found[1]  # type: ignore[no-any-return]
                    allowed = self._bucket is None or self._bucket.take()
                if not allowed:
                    if found is not None:
                        return found[1]  # type: ignore[no-any-return]
                    raise SchedulerUnreachable(
                        "too many questions at once; this one was not asked",
                        hint="wait a few seconds",
                    )
                answer = make()
                with self._lock:
                    self._answers[key] = (self._clock(), answer)
                    self._answers.move_to_end(key)
                    while len(self._answers) > self._most:
                        self._answers.popitem(last=False)
                return answer
        finally:
            with self._lock:
                if not turn.locked():
                    self._making.pop(key, None)

    def forget(self) -> None:
        """Make everything anew when it is next asked for."""
        with self._lock:
            self._answers.clear()
