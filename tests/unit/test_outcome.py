"""The truth about a job: every row of the table has its story, and no evidence is left unjudged."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm import outcome, rundir
from slurm.api.slurm_commands import JobStatus
from slurm.evidence import Evidence
from slurm.failure import FAILURES
from slurm.model.states import JobState
from slurm.outcome import (
    EXIT_RAN_BEFORE,
    FAILURE_GRACE,
    RESULT_GRACE,
    STALE,
    Verdict,
    judge,
)
from slurm.rundir import Event, Identity, Record, decode_events, format_event


def record(kind: str, rank: int = 0, attempt: int = 0, **header: Any) -> Record:
    return Record("1", 0, rank, attempt, kind, header, b"")


def event(kind: str, attempt: int = 0, **fields: object) -> Event:
    line = format_event(kind, Identity("1", 0, 0, attempt), **fields)
    return decode_events(line.encode() + b"\n")[0][0]


def ended(code: int, attempt: int = 0, signal: str = "0", phase: str = "run", **more: str) -> Event:
    return event("exit", attempt, code=code, signal=signal, phase=phase, **more)


def status(
    state: str, restarts: int = 0, nodes: str = "n1", exit_code: int | None = None
) -> JobStatus:
    return JobStatus(
        "1", state, "None", nodes, exit_code, None, 100, None, None, restarts, "/b/r", "add"
    )


def evidence(*parts: Record | Event | JobStatus, **facts: Any) -> Evidence:
    seen = Evidence(**facts)
    for part in parts:
        if isinstance(part, Record):
            seen.records.append(part)
            seen.noted.add(part.attempt)
        elif isinstance(part, Event):
            seen.add(part)
        else:
            seen.status = part
    return seen


VALUE, ERROR, EXIT = record(rundir.VALUE), record(rundir.ERROR), record(rundir.EXIT, code=3)
BEGIN = event("begin", node="n1")
NOTED = event("record", outcome="value")

# A story, its evidence, its verdict.
SOME, OTHER = record(rundir.VALUE, ranks=2), record(rundir.VALUE, rank=1, ranks=2)
EVERY: dict[str, Any] = {"ranks": 2, "every_rank": True}

STORIES: list[tuple[str, Evidence, Verdict]] = [
    ("a value and exit 0", evidence(VALUE, ended(0)), Verdict.VALUE),
    (
        "a value and exit 0, and a child was killed for memory",
        evidence(record(rundir.VALUE, oom=1), ended(0)),
        Verdict.OUT_OF_MEMORY,
    ),
    ("an exception and exit 1", evidence(ERROR, ended(1)), Verdict.RAISED),
    (
        "a MemoryError because a child was killed for memory",
        evidence(record(rundir.ERROR, oom=2), ended(1)),
        Verdict.OUT_OF_MEMORY,
    ),
    ("sys.exit(3)", evidence(EXIT, ended(3)), Verdict.EXITED),
    ("sys.exit(0)", evidence(record(rundir.EXIT, code=0), ended(0)), Verdict.EXITED),
    ("a value, then a crash at exit", evidence(VALUE, ended(139)), Verdict.ASK),
    (
        "a value, then a crash at exit, and the scheduler agrees",
        evidence(VALUE, ended(139), status("FAILED")),
        Verdict.VALUE,
    ),
    (
        "a value, then killed for memory at exit",
        evidence(record(rundir.VALUE, oom=1), ended(137), status("OUT_OF_MEMORY")),
        Verdict.OUT_OF_MEMORY,
    ),
    ("a value, no exit yet", evidence(VALUE), Verdict.WAIT),
    ("a value, no exit, still running", evidence(VALUE, status("RUNNING")), Verdict.WAIT),
    ("a value, then the node died", evidence(VALUE, status("NODE_FAIL")), Verdict.VALUE),
    ("a value, and the scheduler forgot", evidence(VALUE, unknown_for=1.0), Verdict.VALUE),
    (
        "rank 0 has a value, another rank was killed",
        evidence(VALUE, ended(137), status("FAILED"), ranks=2),
        Verdict.FAILED,
    ),
    (
        "rank 0 has a value, rank 1 raised",
        evidence(VALUE, record(rundir.ERROR, rank=1), ended(1), ranks=2),
        Verdict.RAISED,
    ),
    (
        "an exception when told to end, and a requeue may follow",
        evidence(record(rundir.ERROR, stopped=True), ended(1, signal="TERM"), requeue=True),
        Verdict.ASK,
    ),
    (
        "an exception when told to end, and the job is in the queue again",
        evidence(
            record(rundir.ERROR, stopped=True),
            ended(1, signal="TERM"),
            status("PENDING", restarts=1),
            requeue=True,
        ),
        Verdict.WAIT,
    ),
    (
        "an exception when told to end, and the scheduler has not decided",
        evidence(
            record(rundir.ERROR, stopped=True),
            ended(1, signal="TERM"),
            status("COMPLETING"),
            requeue=True,
        ),
        Verdict.ASK,
    ),
    (
        "an exception when told to end, and that was the end",
        evidence(
            record(rundir.ERROR, stopped=True),
            ended(1, signal="TERM"),
            status("CANCELLED"),
            requeue=True,
        ),
        Verdict.RAISED,
    ),
    (
        "a value and a crash at exit long ago, and the scheduler missed the end",
        evidence(VALUE, ended(139), status("RUNNING"), exit_for=STALE),
        Verdict.VALUE,
    ),
    (
        "an exception and exit 0 long ago, and the scheduler missed the end",
        evidence(ERROR, ended(0), status("RUNNING"), exit_for=STALE),
        Verdict.RAISED,
    ),
    (
        "left with exit code 0 long ago, and the scheduler missed the end",
        evidence(BEGIN, ended(0), status("RUNNING"), exit_for=STALE),
        Verdict.EXITED,
    ),
    (
        "killed long ago, and the scheduler missed the end",
        evidence(BEGIN, ended(137), status("RUNNING"), exit_for=STALE),
        Verdict.ENDED,
    ),
    (
        "started anew by a controller that forgot it, and the first one may still come",
        evidence(status("FAILED", exit_code=EXIT_RAN_BEFORE)),
        Verdict.WAIT,
    ),
    (
        "started anew by a controller that forgot it, and the first one never came",
        evidence(status("FAILED", exit_code=EXIT_RAN_BEFORE), over_for=RESULT_GRACE),
        Verdict.JOB_LOST,
    ),
    (
        "failed without a trace, and its record had time to appear",
        evidence(status("FAILED", exit_code=1), over_for=FAILURE_GRACE),
        Verdict.FAILED,
    ),
    ("an exception, and exit 0", evidence(ERROR, ended(0)), Verdict.ASK),
    (
        "an exception, and exit 0, and COMPLETED",
        evidence(ERROR, ended(0), status("COMPLETED")),
        Verdict.RAISED,
    ),
    ("an exception, no exit yet", evidence(ERROR), Verdict.WAIT),
    ("an exception, still running", evidence(ERROR, status("COMPLETING")), Verdict.WAIT),
    ("an exception, then the node died", evidence(ERROR, status("NODE_FAIL")), Verdict.RAISED),
    (
        "sys.exit, then the node died",
        evidence(EXIT, status("NODE_FAIL")),
        Verdict.EXITED,
    ),
    (
        "an exception after an out-of-memory kill, no exit event",
        evidence(record(rundir.ERROR, oom=1), status("OUT_OF_MEMORY")),
        Verdict.OUT_OF_MEMORY,
    ),
    (
        "a value after an out-of-memory kill, no exit event",
        evidence(record(rundir.VALUE, oom=1), status("OUT_OF_MEMORY")),
        Verdict.OUT_OF_MEMORY,
    ),
    (
        "a value, and another rank was killed for memory",
        evidence(VALUE, ended(1, oom="1"), ranks=2),
        Verdict.OUT_OF_MEMORY,
    ),
    (
        "a rank was killed for memory, and Slurm calls the job FAILED",
        evidence(BEGIN, ended(1, oom="1"), status("FAILED", exit_code=1), ranks=2),
        Verdict.OUT_OF_MEMORY,
    ),
    ("the runner could not write", evidence(BEGIN, ended(74)), Verdict.NOT_WRITTEN),
    (
        "nothing could be written, the exit code tells",
        evidence(status("FAILED", exit_code=74)),
        Verdict.NOT_WRITTEN,
    ),
    ("killed, and nobody was asked", evidence(BEGIN, ended(137)), Verdict.ASK),
    (
        "failed by itself, and the scheduler is down for a minute",
        evidence(BEGIN, ended(1), unreachable_for=RESULT_GRACE),
        Verdict.ENDED,
    ),
    (
        "stopped by TERM, and the scheduler is down: a requeue may follow",
        evidence(BEGIN, ended(143, signal="TERM"), unreachable_for=600.0),
        Verdict.ASK,
    ),
    ("killed, scheduler still says RUNNING", evidence(ended(137), status("RUNNING")), Verdict.ASK),
    (
        "stopped and put back into the queue",
        evidence(ended(143, signal="TERM"), status("PENDING", restarts=1)),
        Verdict.WAIT,
    ),
    (
        "the second attempt runs",
        evidence(ended(143, signal="TERM"), status("RUNNING", restarts=1)),
        Verdict.WAIT,
    ),
    ("os._exit(0)", evidence(BEGIN, ended(0), status("COMPLETED")), Verdict.EXITED),
    ("killed by a signal", evidence(BEGIN, ended(137), status("FAILED")), Verdict.FAILED),
    ("cancelled", evidence(BEGIN, ended(143), status("CANCELLED by 0")), Verdict.FAILED),
    (
        "the batch script survived what killed the function for memory",
        evidence(BEGIN, ended(0), status("OUT_OF_MEMORY")),
        Verdict.FAILED,
    ),
    (
        "a record was noted and is not to be seen yet",
        evidence(BEGIN, NOTED, ended(1), status("FAILED"), over_for=RESULT_GRACE - 1),
        Verdict.WAIT,
    ),
    (
        "a record was noted and never came",
        evidence(BEGIN, NOTED, ended(1), status("FAILED"), over_for=RESULT_GRACE),
        Verdict.RESULT_LOST,
    ),
    (
        "exit 0 without a record, and the scheduler forgot",
        evidence(BEGIN, ended(0), unknown_for=0.0),
        Verdict.EXITED,
    ),
    (
        "stopped from outside, and the scheduler forgot",
        evidence(BEGIN, ended(143, signal="TERM"), unknown_for=FAILURE_GRACE),
        Verdict.JOB_LOST,
    ),
    (
        "failed by itself, and the scheduler forgot",
        evidence(BEGIN, ended(9), unknown_for=FAILURE_GRACE),
        Verdict.ENDED,
    ),
    (
        "COMPLETED, no record yet",
        evidence(status("COMPLETED"), over_for=RESULT_GRACE - 1),
        Verdict.WAIT,
    ),
    (
        "COMPLETED, and no record for a minute",
        evidence(status("COMPLETED"), over_for=RESULT_GRACE),
        Verdict.RESULT_LOST,
    ),
    (
        "cancelled in the queue",
        evidence(status("CANCELLED", nodes=""), over_for=0.0),
        Verdict.FAILED,
    ),
    ("the node died just now", evidence(BEGIN, status("NODE_FAIL"), over_for=0.0), Verdict.WAIT),
    (
        "the node died",
        evidence(BEGIN, status("NODE_FAIL"), over_for=FAILURE_GRACE),
        Verdict.FAILED,
    ),
    ("unknown for a moment", evidence(unknown_for=RESULT_GRACE - 1), Verdict.WAIT),
    ("unknown for a minute", evidence(unknown_for=RESULT_GRACE), Verdict.JOB_LOST),
    ("nothing is known yet", evidence(), Verdict.WAIT),
    ("in the queue", evidence(status("PENDING", nodes="")), Verdict.WAIT),
    ("running", evidence(BEGIN, event("start"), status("RUNNING")), Verdict.WAIT),
    ("suspended", evidence(BEGIN, status("SUSPENDED")), Verdict.WAIT),
    ("a state nobody knows", evidence(BEGIN, status("FROBNICATED")), Verdict.WAIT),
    # ---- the values of all ranks are wanted, and those of some are there
    ("both ranks of two", evidence(SOME, OTHER, ended(0), **EVERY), Verdict.VALUE),
    ("one rank of two, no exit yet", evidence(SOME, **EVERY), Verdict.WAIT),
    ("one of two, it runs", evidence(SOME, status("RUNNING"), **EVERY), Verdict.WAIT),
    ("one of two, the exit came first", evidence(SOME, ended(0), **EVERY), Verdict.ASK),
    (
        "one of two, the exit came before the scheduler knew",
        evidence(SOME, ended(0), status("RUNNING"), **EVERY),
        Verdict.ASK,
    ),
    (
        "one of two, the other's file is not seen yet",
        evidence(SOME, ended(0), status("COMPLETED"), over_for=1.0, **EVERY),
        Verdict.WAIT,
    ),
    (
        "one of two, the other's is lost",
        evidence(SOME, ended(0), status("COMPLETED"), over_for=61.0, **EVERY),
        Verdict.RESULT_LOST,
    ),
    ("one of two, the job failed", evidence(SOME, status("FAILED"), **EVERY), Verdict.FAILED),
    (
        "one of two, killed for memory",
        evidence(record(rundir.VALUE, oom=1, ranks=2), ended(0), **EVERY),
        Verdict.OUT_OF_MEMORY,
    ),
]


@pytest.mark.parametrize(("seen", "verdict"), [s[1:] for s in STORIES], ids=[s[0] for s in STORIES])
def test_each_story_has_its_verdict(seen: Evidence, verdict: Verdict) -> None:
    assert judge(seen) is verdict


def _row(seen: Evidence) -> int:
    key = (outcome._record(seen), outcome._exit(seen), outcome._scheduler(seen))
    for number, (*pattern, condition, _) in enumerate(outcome._TABLE):
        if all(p in ("*", k) for p, k in zip(pattern, key, strict=True)) and condition(seen):
            return number
    raise AssertionError(f"no row for {key}")


def test_every_row_of_the_table_is_told_by_a_story() -> None:
    told = {_row(seen) for _, seen, _ in STORIES}
    untold = [row for number, row in enumerate(outcome._TABLE) if number not in told]
    assert untold == []


def test_every_verdict_is_told_by_a_story() -> None:
    # UNTRUSTED is not judged from evidence: the watcher gives it when files are refused.
    assert {verdict for *_, verdict in STORIES} == set(Verdict) - {Verdict.UNTRUSTED}


def test_only_asking_and_waiting_leave_a_job_open() -> None:
    assert {v for v in Verdict if not v.settled} == {Verdict.ASK, Verdict.WAIT}


# ---- attempts and ranks -------------------------------------------------------------------------


def test_node_fail_is_not_the_end_of_a_job_that_may_be_requeued() -> None:
    facts = {"requeue": True, "over_for": FAILURE_GRACE}
    assert judge(evidence(BEGIN, status("NODE_FAIL"), over_count=1, **facts)) is Verdict.WAIT
    assert judge(evidence(BEGIN, status("NODE_FAIL"), over_count=2, **facts)) is Verdict.FAILED


@pytest.mark.parametrize("state", ["PREEMPTED", "BOOT_FAIL", "NODE_FAIL"])
def test_the_value_of_the_attempt_after_a_requeue_counts(state: str) -> None:
    seen = evidence(BEGIN, status(state), requeue=True, over_for=99.0, over_count=1)
    assert judge(seen) is Verdict.WAIT
    seen.status = status("PENDING", restarts=1)
    assert judge(seen) is Verdict.WAIT
    seen.add(event("begin", 1))
    seen.records.append(record(rundir.VALUE, attempt=1))
    seen.add(ended(0, attempt=1))
    assert judge(seen) is Verdict.VALUE


def test_a_record_and_an_exit_of_different_attempts_do_not_count_together() -> None:
    seen = evidence(record(rundir.ERROR, attempt=0), ended(1, attempt=1))
    assert seen.trouble() is None
    assert judge(seen) is Verdict.ASK


def test_the_first_value_is_final() -> None:
    first, second = record(rundir.VALUE, attempt=0), record(rundir.VALUE, attempt=1)
    assert evidence(first, second).value() is first


def test_a_value_that_a_later_attempt_found_counts() -> None:
    """The node died between record and exit event; the next attempt ended without running."""
    assert judge(evidence(VALUE, ended(0, attempt=1))) is Verdict.VALUE


def test_the_exception_is_that_of_the_lowest_rank_that_has_one() -> None:
    one, two = record(rundir.ERROR, rank=1), record(rundir.ERROR, rank=2)
    assert evidence(two, one, ranks=4).trouble() is one


def test_a_rank_that_was_stopped_because_another_failed_has_nothing_to_say() -> None:
    echo, cause = record(rundir.ERROR, rank=0, stopped=True), record(rundir.ERROR, rank=3)
    assert evidence(echo, cause, ranks=4).trouble() is cause


def test_the_value_of_another_rank_than_0_is_not_the_result() -> None:
    seen = evidence(record(rundir.VALUE, rank=1), ranks=2)
    assert seen.value() is None
    assert judge(seen) is Verdict.WAIT


def test_a_sys_exit_with_the_code_of_a_failed_write_is_still_a_sys_exit() -> None:
    assert judge(evidence(record(rundir.EXIT, code=74), ended(74))) is Verdict.EXITED


# ---- properties ---------------------------------------------------------------------------------

_states = st.sampled_from([*(s.value for s in JobState), "CANCELLED by 12", "", "NEW_IN_30.05"])
_seconds = st.one_of(st.none(), st.floats(0, 200))
_records = st.builds(
    record,
    st.sampled_from([rundir.VALUE, rundir.ERROR, rundir.EXIT, "later-kind"]),
    rank=st.integers(0, 2),
    attempt=st.integers(0, 2),
    oom=st.integers(0, 1),
    stopped=st.booleans(),
)
_events = st.one_of(
    st.builds(
        ended,
        st.sampled_from([0, 1, 74, 127, 137, 143]),
        attempt=st.integers(0, 2),
        signal=st.sampled_from(["0", "TERM", "INT"]),
        phase=st.sampled_from(["setup", "run", "teardown"]),
    ),
    st.builds(event, st.sampled_from(["begin", "start", "record", "x"]), st.integers(0, 2)),
)
_evidence = st.builds(
    lambda records, events, answer, **facts: evidence(
        *records, *events, *([answer] if answer else []), **facts
    ),
    records=st.lists(_records, max_size=4),
    events=st.lists(_events, max_size=5),
    answer=st.one_of(
        st.none(),
        st.builds(
            status,
            _states,
            restarts=st.integers(0, 2),
            nodes=st.sampled_from(["", "n1"]),
            exit_code=st.sampled_from([None, 0, 74, 1]),
        ),
    ),
    ranks=st.sampled_from([1, 2]),
    requeue=st.booleans(),
    unknown_for=_seconds,
    over_for=_seconds,
    over_count=st.integers(0, 3),
    unreachable_for=_seconds,
)


@given(_evidence)
def test_there_is_an_answer_to_any_evidence(seen: Evidence) -> None:
    assert judge(seen) in set(Verdict)


@given(_evidence, st.floats(0, 1000))
def test_a_settled_verdict_stays_when_the_same_evidence_comes_again(
    seen: Evidence, later: float
) -> None:
    verdict = judge(seen)
    if not verdict.settled:
        return
    again = copy.deepcopy(seen)
    again.records += list(seen.records)
    for events in (seen.begins, seen.starts, seen.exits):
        for one in events.values():
            again.add(one)
    again.over_count += 1
    for name in ("over_for", "unknown_for", "unreachable_for"):
        before = getattr(seen, name)
        setattr(again, name, None if before is None else before + later)
    assert judge(again) is verdict


@given(_evidence)
def test_a_value_is_only_given_where_there_is_one(seen: Evidence) -> None:
    if judge(seen) is Verdict.VALUE:
        assert seen.value() is not None
    if judge(seen) is Verdict.RAISED:
        assert seen.trouble() is not None


@given(_evidence)
def test_nothing_waits_for_ever_once_the_scheduler_says_it_is_over(seen: Evidence) -> None:
    """Nothing hangs: with patience used up, an end that the scheduler names is an end."""
    if seen.status is None or seen.state is None or seen.state.phase != "finished":
        return
    seen.unknown_for = None
    seen.over_for, seen.over_count = 10_000.0, 5
    assert judge(seen).settled


@given(_evidence)
def test_nothing_waits_for_ever_for_a_job_that_the_scheduler_does_not_know(seen: Evidence) -> None:
    seen.unknown_for = 10_000.0
    assert judge(seen).settled


@pytest.mark.parametrize("state", [s for s in JobState if s.finished and not s.succeeded])
def test_every_bad_end_of_slurm_has_an_error_of_its_own_words(state: JobState) -> None:
    kind, text, _ = FAILURES[state]
    assert kind.code.startswith("SLURM-E3")
    assert text
