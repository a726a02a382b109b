"""Waits and endings of the bridge's tasks: no cancellation is lost, whatever it meets."""

from __future__ import annotations

import asyncio

import pytest

from slurm.bridge.tasks import end, woken


@pytest.mark.parametrize("steps", range(5))
def test_a_cancellation_that_meets_the_event_is_not_lost(steps: int) -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        task = asyncio.ensure_future(woken(event, 60))
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        over = task.done()
        task.cancel()
        await asyncio.wait({task}, timeout=60)
        assert over or task.cancelled()

    asyncio.run(scenario())


def test_an_event_is_told_from_the_end_of_the_time() -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        assert not await woken(event, 0.01)
        event.set()
        assert await woken(event, 60)

    asyncio.run(scenario())


def test_a_task_that_swallows_its_first_cancellation_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slurm.bridge.tasks._TIDY_S", 0.05)
    heard: list[int] = []

    async def deaf() -> None:
        while len(heard) < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                heard.append(1)

    async def scenario() -> None:
        task = asyncio.ensure_future(deaf())
        await asyncio.sleep(0)
        await end([task])
        assert task.done()

    asyncio.run(scenario())
    assert len(heard) == 2
