"""How often the watcher asks the scheduler, by its own clock."""

from __future__ import annotations

from slurm.watcher import BURST, FIRST_POLL, POLL, Watcher


def test_jobs_that_come_one_by_one_do_not_each_cost_a_question() -> None:
    watcher = Watcher(backend=None)  # type: ignore[arg-type]
    now, polls = 1000.0, 0
    for second in range(0, 3600, 5):
        at = now + second
        if watcher._poll_at <= at:
            polls += 1
            watcher._poll_at = at + POLL
        watcher._poll_at = min(watcher._poll_at, watcher._first_poll(at))
    assert 3600 / POLL - 1 <= polls <= 1.2 * 3600 / POLL + BURST


def test_the_first_jobs_are_asked_about_soon() -> None:
    watcher = Watcher(backend=None)  # type: ignore[arg-type]
    assert watcher._first_poll(1000.0) == 1000.0 + FIRST_POLL
