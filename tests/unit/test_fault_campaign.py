"""The fault campaign's plans and rules: a seed gives one plan, and each breach is seen."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from campaign_plan import HOWS, SINCE, Call, Fault, Plan, draw, expected
from campaign_rules import Seen, violations

RUN = "c0-20260101-120000-abcdef"
DISAGREE = [{RUN: ["JobLost"]}, {RUN: ["JobFailed"]}]


def test_a_seed_gives_the_same_plan_and_two_hundred_cover_every_fault_and_workload() -> None:
    plans = [draw(seed) for seed in range(200)]
    assert plans == [draw(seed) for seed in range(200)]
    faults = Counter((fault.victim, fault.how) for plan in plans for fault in plan.faults)
    assert set(faults) == {(victim, how) for victim, hows in HOWS.items() for how in hows}
    kinds = Counter((plan.ssh, call.kind) for plan in plans for call in plan.calls)
    wanted = ("task", "array", "packed", "workflow")
    assert set(kinds) == {(ssh, kind) for ssh in (True, False) for kind in wanted}
    assert all(1 <= len(plan.faults) <= 3 for plan in plans)
    assert all(len({f.victim for f in plan.faults}) == len(plan.faults) for plan in plans)


def test_later_seeds_draw_batches_and_cached_calls_too() -> None:
    calls = [call for seed in range(SINCE, SINCE + 200) for call in draw(seed).calls]
    assert {"task", "array", "packed", "workflow", "batch"} == {call.kind for call in calls}
    cached = {call.kind for call in calls if call.cached}
    assert cached == {"task", "array", "packed", "batch"}
    assert not any(call.cached for seed in range(200) for call in draw(seed).calls)


def test_a_value_that_the_cache_lost_needs_a_fault_that_explains_it() -> None:
    said = [
        {"name": "c0", "run": RUN, "seconds": 1.0},
        {"name": "c0again0", "run": RUN, "seconds": 1.0},
    ]
    twice = replace(seen(marks=[*mark(), *mark("bb", "2", at=90.0)]), said=said)
    assert violations(plan_with(), twice) == ["c0.0 has a value that the cache does not have"]
    assert violations(plan_with("disk"), twice) == []


def test_a_workflow_has_a_label_for_each_of_its_calls() -> None:
    plan = Plan(0, False, (Call("c0", "workflow", ("value", "raise"), 1.0, 1),), ())
    found = {label: (item.outcome, item.may_requeue) for label, item in expected(plan).items()}
    assert found == {
        "c0kids.0": ("value", True),
        "c0kids.1": ("ValueError", True),
        "c0sum.0": ("UpstreamFailed", False),
        "c0.0": ("ValueError", True),
    }


def plan_with(*victims: str, retry: int = 0, kind: str = "task") -> Plan:
    faults = tuple(Fault(victim, "killed", 1.0, 1.0, 0) for victim in victims)
    return Plan(0, False, (Call("c0", kind, ("value",), 1.0, retry),), faults)


def mark(nonce: str = "aa", job: str = "1", restart: int = 0, at: float = 1.0) -> list[str]:
    return [
        f"c0.0 begin {nonce} {job} {restart} {at}",
        f"c0.0 end {nonce} {job} {restart} {at + 1}",
    ]


def seen(outcome: str = 'value "aa"', marks: list[str] | None = None) -> Seen:
    told = {RUN: [outcome]}
    said = [{"name": "c0", "run": RUN, "seconds": 1.0}]
    return Seen(said=said, marks=mark() if marks is None else marks, judged=[told, told])


def test_a_run_without_a_breach_has_nothing_to_tell() -> None:
    assert violations(plan_with(), seen()) == []


@pytest.mark.parametrize(
    "plan, what, word",
    [
        (plan_with(), replace(seen(), client_code=None), "hangs"),
        (plan_with(), replace(seen(), client_code=1), "ended with 1"),
        (plan_with("slurmdbd"), seen("JobLost"), "should be value"),
        (plan_with(), seen("open"), "no final outcome"),
        (plan_with(), seen('value "aa", then JobLost'), "no final outcome"),
        (
            plan_with(),
            replace(seen(), judged=DISAGREE),
            "another",
        ),
        (plan_with(), replace(seen(), judged=[{}, {}]), "is gone"),
        (plan_with(), seen('value "aa"', []), "never executed"),
        (plan_with(), seen('value "bb"'), "no execution returned"),
        (plan_with(), seen(marks=mark() + mark("bb")), "executed 2 times"),
        (plan_with(), seen(marks=mark() + mark("bb", restart=1)), "did not allow"),
        (plan_with(), seen(marks=mark() + mark("bb", job="2")), "by 2 jobs"),
        (plan_with(retry=1), seen(marks=mark() + mark("bb", "1", 1, 30.0)), "after its result"),
        (plan_with(), replace(seen(), left=["left after gc: c0"]), "left after gc"),
    ],
)
def test_each_breach_is_named(plan: Plan, what: Seen, word: str) -> None:
    assert any(word in line for line in violations(plan, what)), violations(plan, what)


def test_what_a_fault_or_retry_explains_is_no_breach() -> None:
    assert violations(plan_with("slurmctld"), seen("JobLost")) == []
    assert violations(plan_with(retry=1), seen(marks=mark("bb") + mark(job="2"))) == []
    relaunched = mark("bb") + mark(restart=1)
    assert violations(plan_with(retry=1), seen(marks=relaunched)) == []
    refused = Seen(judged=[{}, {}])
    refused.said = [{"name": "c0", "refused": "SchedulerUnreachable", "why": "", "seconds": 1.0}]
    assert violations(plan_with("slurmctld"), refused) == []
    assert violations(plan_with("slurmdbd"), refused) != []
