"""The embedded scheduler's decisions: order, fitting, dependencies and outcomes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.api.embedded.engine import (
    RESERVE_AFTER_S,
    Facts,
    Lanes,
    Place,
    Verdict,
    judge,
    judge_edge,
    outcome,
)
from slurm.api.embedded.request import Need
from slurm.api.sbatch_values import Dependency, Edge

WELL = Facts(total=2, started=2, ended=2, failed=0, last_start=100)
BADLY = Facts(total=2, started=2, ended=2, failed=1, last_start=100)
HALF = Facts(total=2, started=2, ended=1, failed=0, last_start=100)
HALF_BADLY = Facts(total=2, started=2, ended=1, failed=1, last_start=100)
WAITS = Facts(total=2, started=1, ended=0, failed=0, last_start=100)
READY, WAIT, NEVER = Verdict.READY, Verdict.WAIT, Verdict.NEVER


@pytest.mark.parametrize(
    ("kind", "well", "badly", "half", "half_badly", "waits"),
    [
        ("afterok", READY, NEVER, WAIT, NEVER, WAIT),
        ("aftercorr", READY, NEVER, WAIT, NEVER, WAIT),
        ("afternotok", NEVER, READY, WAIT, WAIT, WAIT),
        ("afterany", READY, READY, WAIT, WAIT, WAIT),
        ("after", READY, READY, READY, READY, WAIT),
    ],
)
def test_the_table_of_dependency_types(
    kind: str, well: Verdict, badly: Verdict, half: Verdict, half_badly: Verdict, waits: Verdict
) -> None:
    facts = (WELL, BADLY, HALF, HALF_BADLY, WAITS)
    verdicts = [judge_edge(Edge(kind, 1), each, 100).verdict for each in facts]
    assert verdicts == [well, badly, half, half_badly, waits]


def test_a_job_that_is_unknown_can_never_be_waited_for() -> None:
    assert judge_edge(Edge("afterany", 1), None, 0).verdict is NEVER


def test_after_with_minutes_says_when_to_look_again() -> None:
    decision = judge_edge(Edge("after", 1, None, 120), HALF, 150)
    assert (decision.verdict, decision.look_again) == (WAIT, 220)
    assert judge_edge(Edge("after", 1, None, 120), HALF, 220).verdict is READY


FACTS = {1: WELL, 2: BADLY, 3: HALF}


@pytest.mark.parametrize(
    ("jobs", "all_of_them", "any_of_them"),
    [
        ((1,), READY, READY),
        ((1, 3), WAIT, READY),
        ((1, 2), NEVER, READY),
        ((2, 3), NEVER, WAIT),
        ((2,), NEVER, NEVER),
        ((3,), WAIT, WAIT),
    ],
)
def test_all_edges_or_any_edge(
    jobs: tuple[int, ...], all_of_them: Verdict, any_of_them: Verdict
) -> None:
    edges = tuple(Edge("afterok", job) for job in jobs)
    for any_one, verdict in ((False, all_of_them), (True, any_of_them)):
        found = judge(Dependency(edges, any_one), lambda edge: FACTS[edge.job], True, 100)
        assert found.verdict is verdict


def test_a_singleton_waits_until_it_is_the_first_of_its_name() -> None:
    alone = Dependency((Edge("singleton"),))
    assert judge(alone, lambda _: None, False, 0).verdict is WAIT
    assert judge(alone, lambda _: None, True, 0).verdict is READY


@pytest.mark.parametrize(
    ("ending", "code", "signum", "lost", "requeue", "state"),
    [
        ("", 0, 0, False, True, "COMPLETED"),
        ("", 3, 0, False, True, "FAILED"),
        ("", 0, 9, False, True, "FAILED"),
        ("", 0, 0, True, True, "PENDING"),
        ("", 0, 0, True, False, "NODE_FAIL"),
        ("CANCELLED", 0, 0, False, True, "CANCELLED"),
        ("CANCELLED", 0, 0, True, True, "CANCELLED"),
        ("TIMEOUT", 0, 9, False, True, "TIMEOUT"),
        ("REQUEUED", 0, 15, False, True, "PENDING"),
    ],
)
def test_the_table_of_outcomes(
    ending: str, code: int, signum: int, lost: bool, requeue: bool, state: str
) -> None:
    assert outcome(ending, code, signum, lost, requeue) == state


def need(cpus: int) -> Need:
    return Need(cpus, 100, 0)


def lanes_of(**jobs: tuple[int, int]) -> Lanes:
    """Lanes with jobs given as id=(cpus, priority)."""
    lanes = Lanes()
    for name, (cpus, priority) in jobs.items():
        number = int(name[1:])
        lanes.add(number, Place(need(cpus), 0, (-priority, number)))
    return lanes


FREE = Need(4, 1000, 0)


def test_the_first_in_order_starts_first_and_priority_goes_before() -> None:
    assert lanes_of(j1=(1, 0), j2=(1, 0)).pick(FREE, (), 0) == 1
    assert lanes_of(j1=(1, 0), j2=(2, 5)).pick(FREE, (), 0) == 2


def test_a_job_that_does_not_fit_is_passed_only_for_a_while() -> None:
    lanes = lanes_of(j1=(8, 0), j2=(1, 0), j3=(1, 0))
    assert lanes.pick(FREE, (), 0) == 2
    lanes.remove(2)
    assert lanes.pick(FREE, (), RESERVE_AFTER_S - 1) == 3
    assert lanes.pick(FREE, (), RESERVE_AFTER_S) is None
    assert lanes.pick(Need(8, 1000, 0), (), RESERVE_AFTER_S) == 1


def test_an_array_at_its_throttle_is_not_picked() -> None:
    lanes = Lanes()
    lanes.add(1, Place(need(1), 7, (0, 1)))
    lanes.add(2, Place(need(1), 0, (0, 2)))
    assert lanes.pick(FREE, {7}, 0) == 2
    assert lanes.pick(FREE, (), 0) == 1


def test_a_removed_job_is_not_picked_and_may_come_back() -> None:
    lanes = lanes_of(j1=(1, 0))
    lanes.remove(1)
    assert (lanes.pick(FREE, (), 0), len(lanes), lanes.head()) == (None, 0, None)
    lanes.add(1, Place(need(1), 0, (0, 1)))
    assert lanes.pick(FREE, (), 0) == 1


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-2, 2)), max_size=40))
def test_what_is_picked_is_the_first_in_order_of_all_that_fit(jobs: list[tuple[int, int]]) -> None:
    lanes = Lanes()
    waiting = {}
    for number, (cpus, priority) in enumerate(jobs):
        waiting[number] = Place(need(cpus), 0, (-priority, number))
        lanes.add(number, waiting[number])
    free = Need(3, 10_000, 0)
    while (picked := lanes.pick(free, (), 0)) is not None:
        fitting = [n for n, place in waiting.items() if place.need.fits(free)]
        assert picked == min(fitting, key=lambda n: waiting[n].order)
        lanes.remove(picked)
        del waiting[picked]
    assert not any(place.need.fits(free) for place in waiting.values())
