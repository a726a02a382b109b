"""How often the scheduler is asked, by a clock of the test's own."""

from __future__ import annotations

from slurm.pace import ASK_AFTER, BURST, FIRST_POLL, POLL, POLL_GAP, REFILL, Pace


def test_jobs_that_come_while_others_are_open_do_not_each_cost_a_question() -> None:
    pace = Pace()
    polls = 0
    for now in range(1000, 4600, 5):
        if pace.next <= now:
            polls += 1
            pace.asking(now, any_open=True)
        pace.job_came(now, alone=False)
    assert 3600 / POLL - 1 <= polls <= 1.2 * 3600 / POLL + BURST


def test_a_job_with_no_other_beside_it_is_always_asked_about_soon() -> None:
    pace = Pace()
    for now in range(1000, 1100, 10):
        pace.nothing_open()
        pace.job_came(float(now), alone=True)
        assert pace.next == now + FIRST_POLL


def test_ends_without_a_word_are_asked_about_at_once_and_then_ever_more_slowly() -> None:
    pace = Pace()
    pace.asking(1000.0, any_open=True)
    assert pace.ask_soon(1000.0, times=1)
    assert pace.next == 1000.0 + max(ASK_AFTER[0], POLL_GAP)
    assert not pace.ask_soon(1000.0, times=len(ASK_AFTER) + 5)  # later than what is planned


def test_many_ends_without_a_word_are_not_a_storm_of_questions() -> None:
    pace = Pace()
    now, asked = 1000.0, 0
    while now < 1060.0:
        pace.ask_soon(now, times=1)
        now = pace.next
        pace.asking(now, any_open=True)
        asked += 1
    assert asked <= 60 / REFILL + 2 * BURST
