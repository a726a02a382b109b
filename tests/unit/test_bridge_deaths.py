"""A bridge that dies at any await of a pod's life, once or twice: one job, and no pod is lost."""

from __future__ import annotations

import asyncio

import pytest
from bridge_pair import Pair, awake, live

from mortal import Fate, Killed, Mortal
from slurm.bridge.lease import NotLeader

LIFE = [(pods, mode) for pods in (1, 2) for mode in ("gate", "direct")]


async def _lives(pair: Pair, *deaths: int) -> int:
    """One life after the other, each ending at its suspension, then one to the end; its length."""
    for at in (*deaths, 0):
        fate = Fate(at)
        try:
            await Mortal(live(pair), fate)
        except Killed:
            continue
        break
    return fate.suspensions


def _play(pods: int, mode: str, *deaths: int, late: bool = False) -> tuple[Pair, int]:
    pair = Pair(pods, mode, late=late)
    length = asyncio.run(_lives(pair, *deaths))
    assert pair.done()
    return pair, length


@pytest.mark.parametrize(("pods", "mode"), LIFE)
def test_a_death_at_any_await_leaves_one_job_and_a_pod_that_ran(pods: int, mode: str) -> None:
    _, length = _play(pods, mode)
    assert length > 20
    for at in range(1, length + 1):
        pair, _ = _play(pods, mode, at)
        assert len(pair.jobs) == 1, (at, pair.jobs)


@pytest.mark.parametrize(("pods", "mode"), LIFE)
def test_two_deaths_are_no_worse_than_one(pods: int, mode: str) -> None:
    _, length = _play(pods, mode)
    for first in range(1, length + 1, 5):
        for second in range(1, length + 1, 5):
            pair, _ = _play(pods, mode, first, second)
            assert len(pair.jobs) == 1, (first, second, pair.jobs)


@pytest.mark.parametrize(("pods", "mode"), LIFE)
def test_a_request_that_arrives_after_its_sender_s_death_does_no_harm(pods: int, mode: str) -> None:
    _, length = _play(pods, mode)
    for at in range(1, length + 1):
        pair, _ = _play(pods, mode, at, late=True)
        # A submission that arrives after the next one's: two for a moment, and one is ended.
        assert len(pair.jobs) <= 2, (at, pair.jobs)
        ran = [j for j in pair.jobs.values() if "Succeeded" in j["admin_comment"]]
        assert len(ran) == 1, (at, pair.jobs)


def test_a_pod_that_came_while_the_lease_was_renewed_late_is_looked_at_again() -> None:
    pair, answers = Pair(1, "gate"), [False]

    def fence() -> None:
        if answers and not answers.pop():
            raise NotLeader("renewed late")

    async def scenario() -> None:
        scheduler = awake(pair, fence)
        (pod,) = pair.read()
        scheduler.pod_changed(None, pod)
        key = await scheduler._queue.get()
        scheduler._queued.clear()
        scheduler._grown.clear()  # long ago
        await scheduler.view._list()
        scheduler.view._good = asyncio.get_running_loop().time()
        await scheduler._round(key)
        assert not pair.jobs
        assert await asyncio.wait_for(scheduler._queue.get(), 60) == key
        await scheduler._round(key)
        assert len(pair.jobs) == 1

    asyncio.run(scenario())
