"""Death at a chosen await: a coroutine is let go where it waits, and nothing is tidied up."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class Fate:
    """Says when: at suspension number `at` of all that it is told of; 0 lets it live."""

    def __init__(self, at: int) -> None:
        self.at, self.suspensions, self.dead = at, 0, False

    def step(self) -> bool:
        self.suspensions += 1
        self.dead = self.dead or self.suspensions == self.at
        return self.dead


class Mortal:
    """Awaits a coroutine for as long as its fate allows."""

    def __init__(self, work: Coroutine[Any, Any, None], fate: Fate) -> None:
        self._work, self._fate = work, fate

    def __await__(self) -> Generator[Any, Any, None]:
        send: Any = self._work.send
        value: Any = None
        while True:
            try:
                waits_for = send(value)
            except StopIteration:
                return
            if self._fate.step():
                self._work.close()
                raise Killed
            try:
                send, value = self._work.send, (yield waits_for)
            except BaseException as error:
                send, value = self._work.throw, error
