"""How often the watcher asks the scheduler, by its own clock."""

from __future__ import annotations

from slurm.watcher import BURST, FIRST_POLL, POLL, Watcher, _Run


def test_jobs_that_come_while_others_are_open_do_not_each_cost_a_question() -> None:
    watcher = Watcher(backend=None)  # type: ignore[arg-type]
    watcher._runs = {"one": _Run(), "two": _Run()}
    now, polls = 1000.0, 0
    for second in range(0, 3600, 5):
        at = now + second
        if watcher._poll_at <= at:
            polls += 1
            watcher._poll_at = at + POLL
        watcher._poll_at = min(watcher._poll_at, watcher._first_poll(at))
    assert 3600 / POLL - 1 <= polls <= 1.2 * 3600 / POLL + BURST


def test_a_job_with_no_other_beside_it_is_always_asked_about_soon() -> None:
    watcher = Watcher(backend=None)  # type: ignore[arg-type]
    for now in range(1000, 1100, 10):
        watcher._poll_at = float("inf")
        assert watcher._first_poll(float(now)) == now + FIRST_POLL
