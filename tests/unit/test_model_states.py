"""Slurm's words for a job's state become one of our states, and never an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.model.states import JobState, parse_state


@pytest.mark.parametrize("state", list(JobState))
def test_each_state_is_found_by_its_name_and_by_its_code_in_any_case(state: JobState) -> None:
    for text in (state.value, state.code, state.value.lower(), f" {state.code.lower()}\n"):
        assert parse_state(text) is state


def test_short_codes_are_those_of_slurm() -> None:
    codes = {state.value: state.code for state in JobState if state.code != state.value}
    assert codes == {
        "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA",
        "FAILED": "F", "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF",
        "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF",
        "RESIZING": "RS", "REQUEUED": "RQ", "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH",
        "SPECIAL_EXIT": "SE", "STOPPED": "ST", "REVOKED": "RV", "RESV_DEL_HOLD": "RD",
        "SIGNALING": "SI", "STAGE_OUT": "SO", "UNKNOWN": "?",
    }  # fmt: skip


def test_each_state_explains_itself_in_a_sentence() -> None:
    meanings = [state.meaning for state in JobState]
    assert all(text.endswith(".") and text[0].isupper() for text in meanings)
    assert len(set(meanings)) == len(meanings)


def test_only_ends_are_finished_and_only_completed_is_a_success() -> None:
    assert {s.value for s in JobState if s.finished} == {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL",
        "BOOT_FAIL", "PREEMPTED", "REVOKED",
    }  # fmt: skip
    assert [s for s in JobState if s.succeeded] == [JobState.COMPLETED]


def test_a_state_is_pending_active_finished_or_unknown_and_never_two_of_them() -> None:
    for state in JobState:
        assert state.pending + state.active + state.finished == (state is not JobState.UNKNOWN)


def test_ends_that_slurm_may_take_back_are_marked() -> None:
    marked = {s for s in JobState if s.may_requeue}
    assert marked == {JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.PREEMPTED}
    assert all(state.finished for state in marked)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED by S", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("CANCELLE+", JobState.CANCELLED),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY),
        ("RUNNING,COMPLETING", JobState.COMPLETING),
        (["COMPLETED", "COMPLETING"], JobState.COMPLETING),
        (["PENDING", "REQUEUED"], JobState.REQUEUED),
        (["NODE_FAIL", "EXPEDITING"], JobState.EXPEDITING),
        (["RUNNING", "POWER_UP_NODE"], JobState.RUNNING),
        (["CANCELLED", "REVOKED"], JobState.REVOKED),
        (["RUNNING"], JobState.RUNNING),
        (["RUNNING", "SOMETHING_NEW"], JobState.RUNNING),
        ([], JobState.UNKNOWN),
        (None, JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
        ("REQ+", JobState.UNKNOWN),
        ("+", JobState.UNKNOWN),
        ("NOT_A_STATE", JobState.UNKNOWN),
    ],
)
def test_the_forms_that_slurm_prints_are_understood(text: object, state: JobState) -> None:
    assert parse_state(text) is state  # type: ignore[arg-type]


@given(st.one_of(st.text(), st.lists(st.text()), st.none()))
def test_no_text_makes_the_parser_fail(text: object) -> None:
    assert isinstance(parse_state(text), JobState)  # type: ignore[arg-type]


def test_a_state_prints_and_compares_as_its_name() -> None:
    assert f"{JobState.RUNNING:>8}" == " RUNNING"
    assert str(JobState.TIMEOUT) == "TIMEOUT" == JobState.TIMEOUT


def test_every_flag_that_overrides_a_base_state_wins_over_it() -> None:
    for flag in JobState:
        if flag.overrides:
            assert parse_state(["RUNNING", flag.value]) is flag
