"""What packaging is busy with: events for whoever listens, and lines in the log."""

from __future__ import annotations

import contextlib
import logging
import sys
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


def show(event: PackagingEvent) -> None:
    """Say on standard error what is built, pushed, sent or installed, and how long it took."""
    if event.state == "begin":
        sys.stderr.write(f"{event.stage}: {event.text}\n")
    elif event.state == "end":
        sys.stderr.write(f"{event.stage}: done in {event.elapsed:.1f} s\n")


def show_all(event: PackagingEvent) -> None:
    """The same, and every line that the tools print."""
    if event.state == "line":
        sys.stderr.write(f"  {event.text}\n")
    show(event)


@contextlib.contextmanager
def shown(verbose: bool = False) -> Iterator[None]:
    """While it is open, packaging says what it does; `verbose`: with all that its tools say."""
    before = list(_listeners)
    _listeners[:] = [one for one in before if one not in (show, show_all)]
    try:
        with listening(show_all if verbose else show):
            yield
    finally:
        _listeners[:] = before


def keep_showing() -> None:
    """From now on packaging says what it does: somebody looks at a terminal or a notebook."""
    if show not in _listeners and show_all not in _listeners:
        _listeners.append(show)
