"""What packaging is busy with: events for whoever listens, and lines in the log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

log = logging.getLogger("slurm")


@dataclass(frozen=True)
class PackagingEvent:
    """One thing that packaging began, goes on with, or ended."""

    #: `build`, `push`, `upload` or `install`.
    stage: str
    #: `begin`, `line` (of the program that works), `end` or `failed`.
    state: str
    #: What it is about, or the line.
    text: str
    #: Seconds since it began.
    elapsed: float = 0.0


_listeners: list[Callable[[PackagingEvent], None]] = []


@contextlib.contextmanager
def listening(listener: Callable[[PackagingEvent], None]) -> Iterator[None]:
    """While it is open, `listener` is told what packaging does, in any thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(event: PackagingEvent) -> None:
    """Tell all listeners, and the log; lines of programs only where debugging is on."""
    level = logging.DEBUG if event.state == "line" else logging.INFO
    log.log(level, "slurm: %s %s: %s", event.stage, event.state, event.text)
    for listener in list(_listeners):
        listener(event)


@contextlib.contextmanager
def step(stage: str, text: str) -> Iterator[Callable[[str], None]]:
    """One step of packaging; what it gives tells of a line that a program printed."""
    begun = time.monotonic()
    tell(PackagingEvent(stage, "begin", text))
    state = "failed"
    try:
        yield lambda line: tell(PackagingEvent(stage, "line", line, time.monotonic() - begun))
        state = "end"
    finally:
        tell(PackagingEvent(stage, state, text, time.monotonic() - begun))
