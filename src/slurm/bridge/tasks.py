"""Tasks that live and end together, and waits in which no cancellation is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

# Time for a task to tidy up before it is told again.
_TIDY_S = 10.0


async def together(*work: Coroutine[Any, Any, Any]) -> None:
    """Run all of them until the first ends or fails; then end the others."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end(tasks)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them until all are over; how they ended is nobody's business any more."""
    rest = set(tasks)
    while rest:
        for task in rest:
            task.cancel()
        done, rest = await asyncio.wait(rest, timeout=_TIDY_S)
        for task in done:
            if not task.cancelled():
                task.exception()


async def woken(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event came within these seconds.

    `asyncio.wait_for` before Python 3.12 swallows a cancellation that meets the event.
    """
    waiter = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait({waiter}, timeout=seconds)
    finally:
        waiter.cancel()
    return bool(done)
