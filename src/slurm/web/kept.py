"""Answers that are kept for a moment, so that many who ask cost no more than one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar

from slurm.errors import SchedulerUnreachable

T = TypeVar("T")

#: Who asks just now: a user, or a session where all have the same rights.
visitor: ContextVar[str] = ContextVar("visitor", default="")
#: Seconds after the last question for which a visitor has a share.
SHARES = 60.0


class TooManyQuestions(SchedulerUnreachable):
    """This visitor has asked too much; others may still ask, so nobody else is shown it."""


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


class Shares:
    """So many questions at once and a second, in equal shares for the visitors of the last minute.

    One who asks without end has that share, and takes nothing of the others'.
    """

    def __init__(
        self, burst: float, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._rate, self._clock = burst, rate, clock
        #: Of each visitor: what is left, and when it last asked. Who asked last stands last.
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self) -> bool:
        """Whether the visitor of this moment may ask one more."""
        now, who = self._clock(), visitor.get()
        while self._known and now - next(iter(self._known.values()))[1] > SHARES:
            self._known.popitem(last=False)
        count = len(self._known) + (who not in self._known)
        most = max(1.0, self._burst / count)
        left, last = self._known.get(who, (most, now))
        left = min(most, left + (now - last) * self._rate / count)
        allowed = left >= 1
        self._known[who] = (left - allowed, now)
        self._known.move_to_end(who)
        return allowed


class Kept:
    """The last answers by key: each is made once for all who ask while it is fresh."""

    def __init__(
        self, most: int, shares: Shares | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._shares, self._clock = most, shares, clock
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
                    allowed = self._shares is None or self._shares.take()
                if not allowed:
                    if found is not None:
                        return found[1]  # type: ignore[no-any-return]
                    raise TooManyQuestions(
                        "you asked too many questions at once; this one was not passed on",
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
