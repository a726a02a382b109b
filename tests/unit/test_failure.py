"""Errors are written for the reader: job, state, evidence and the fix are in the text."""

from __future__ import annotations

from typing import Any

import pytest

from slurm import errors, rundir
from slurm.api.slurm_commands import JobStatus
from slurm.evidence import Evidence
from slurm.failure import Subject, failure, recorded, signal_name
from slurm.model.states import JobState
from slurm.outcome import Verdict
from slurm.rundir import Event, Record


def subject(**facts: Any) -> Subject:
    given = {"options": {}, "last_lines": ("line one", "line two"), **facts}
    return Subject(name="train", job_id="4711", run="/base/train-1", **given)


def exit_event(code: int, phase: str = "run", signal: str = "0") -> Event:
    return Event("exit", {"attempt": "0", "code": str(code), "phase": phase, "signal": signal})


def begun(**facts: Any) -> Evidence:
    return Evidence(begins={0: Event("begin", {"node": "n7", "attempt": "0"})}, **facts)


def status(state: str, **facts: Any) -> JobStatus:
    given = {
        "reason": "None", "nodes": "n7", "exit_code": None, "signal": None, "submit": 1,
        "start": None, "end": None, "restarts": 0, "work_dir": "/base/train-1", "name": "train",
        **facts,
    }  # fmt: skip
    return JobStatus(job_id="4711", state=state, **given)


# state -> error, what the text says, what the fix says
BY_STATE: dict[str, tuple[type[errors.JobError], str, str]] = {
    "FAILED": (errors.JobFailed, "left no result", "job.stderr()"),
    "CANCELLED": (errors.JobCancelled, "was cancelled", ""),
    "TIMEOUT": (errors.TimeLimitReached, "time limit on n7 (time=", "time='02:00:00'"),
    "DEADLINE": (errors.TimeLimitReached, "before its deadline", "later deadline"),
    "OUT_OF_MEMORY": (errors.JobOutOfMemory, "memory was used up on n7 (mem=4", "mem='8"),
    "NODE_FAIL": (errors.NodeFailed, "lost its node", "requeue=True"),
    "BOOT_FAIL": (errors.NodeFailed, "could not be made ready", "requeue=True"),
    "PREEMPTED": (errors.JobPreempted, "was preempted", "requeue=True"),
    "REVOKED": (errors.JobLost, "revoked by the federation", ""),
}


@pytest.mark.parametrize("state", sorted(BY_STATE))
def test_each_bad_end_says_what_where_and_how_to_mend_it(state: str) -> None:
    kind, says, fix = BY_STATE[state]
    job = subject(options={"time": 3600, "mem": 4096})
    error = failure(Verdict.FAILED, begun(status=status(state)), job)
    assert type(error) is kind
    assert isinstance(error, errors.JobError)
    assert error.message.startswith("train (job 4711) ")
    assert says in error.message
    assert "n7" in error.message
    assert (error.job_id, error.state, error.node) == ("4711", state, "n7")
    assert fix in (error.hint or "")
    assert error.evidence == ("line one", "line two")
    text = str(error)
    assert text.startswith(f"{kind.code} {kind.__name__}: ")
    assert "  | line two" in text


def test_every_bad_end_of_slurm_is_tested_here() -> None:
    assert set(BY_STATE) == {s.value for s in JobState if s.finished and not s.succeeded}


def test_without_a_limit_of_ones_own_the_fix_still_names_a_value() -> None:
    error = failure(Verdict.FAILED, begun(status=status("TIMEOUT")), subject())
    assert "time='2h'" in str(error.hint)
    assert "(time=" not in error.message


@pytest.mark.parametrize(
    ("verdict", "kind", "says", "fix"),
    [
        (Verdict.RESULT_LOST, errors.ResultLost, "/base/train-1", "ls -la /base/train-1"),
        (Verdict.JOB_LOST, errors.JobLost, "unknown to the scheduler", "sacct -j 4711"),
        (Verdict.NOT_WRITTEN, errors.ResultNotWritten, "disk full or quota", "job_base_dir="),
        (Verdict.OUT_OF_MEMORY, errors.JobOutOfMemory, "memory was used up", "with_options(mem="),
        (Verdict.ENDED, errors.JobFailed, "ended with exit code 3", "job.stderr()"),
    ],
)
def test_each_verdict_has_its_error(
    verdict: Verdict, kind: type[errors.JobError], says: str, fix: str
) -> None:
    error = failure(verdict, begun(exits={0: exit_event(3)}), subject())
    assert type(error) is kind
    assert error.message.startswith("train (job 4711) ")
    assert says in error.message
    assert fix in str(error.hint)
    assert error.job_id == "4711"
    assert error.exit_code == 3


@pytest.mark.parametrize(
    ("event", "says", "fix"),
    [
        (exit_event(2, "setup"), "ended in its setup with exit code 2", "setup lines"),
        (exit_event(127), "could not start Python (exit code 127)", "python="),
        (exit_event(137), "was killed by SIGKILL (somebody, or the kernel", "job.stderr()"),
        (exit_event(139), "was killed by SIGSEGV and left no result", "job.stderr()"),
        (exit_event(5), "ended with exit code 5 and left no result", "job.stderr()"),
    ],
)
def test_a_plain_failure_says_how_it_ended(event: Event, says: str, fix: str) -> None:
    seen = begun(exits={0: event}, status=status("FAILED"))
    error = failure(Verdict.FAILED, seen, subject())
    assert says in error.message
    assert fix in str(error.hint)


def test_a_function_that_exits_127_after_python_started_is_no_missing_python() -> None:
    started = {0: Event("start", {"attempt": "0"})}
    seen = begun(exits={0: exit_event(127)}, starts=started, status=status("FAILED"))
    assert "exit code 127 and left no result" in failure(Verdict.FAILED, seen, subject()).message


def test_the_scheduler_tells_the_code_where_the_script_could_not() -> None:
    seen = begun(status=status("FAILED", exit_code=0, signal=9))
    error = failure(Verdict.FAILED, seen, subject())
    assert isinstance(error, errors.JobError)
    assert (error.exit_code, error.signal) == (0, 9)
    assert "SIGKILL" in error.message


@pytest.mark.parametrize("told", [{"exit_code": 0, "signal": 53}, {"exit_code": 72}])
def test_a_node_that_does_not_see_the_directory_is_told_apart(told: dict[str, int]) -> None:
    seen = Evidence(status=status("FAILED", **told))
    error = failure(Verdict.FAILED, seen, subject())
    assert type(error) is errors.RunDirNotVisible
    assert "n7 does not see /base/train-1" in error.message
    assert "job_base_dir" in str(error.hint)


def test_a_log_that_was_asked_for_is_suspected_before_the_directory() -> None:
    seen = Evidence(status=status("FAILED", exit_code=0, signal=53))
    error = failure(Verdict.FAILED, seen, subject(options={"error": "/nowhere/log"}))
    assert type(error) is errors.JobFailed
    assert "n7 could not open its log /nowhere/log" in error.message


def test_a_job_whose_upstream_failed_says_so() -> None:
    seen = Evidence(status=status("CANCELLED", reason="DependencyNeverSatisfied", nodes=""))
    error = failure(Verdict.FAILED, seen, subject(dependency=True))
    assert type(error) is errors.UpstreamFailed
    assert "will never run" in error.message


def test_a_job_cancelled_in_the_queue_says_that_it_never_started() -> None:
    seen = Evidence(status=status("CANCELLED", nodes=""))
    error = failure(Verdict.FAILED, seen, subject())
    assert type(error) is errors.JobCancelled
    assert error.message == "train (job 4711) was cancelled before it started"


@pytest.mark.parametrize(("code", "text"), [(3, "3"), (1, "'no data'"), (0, "None")])
def test_sys_exit_is_named_with_its_argument(code: int, text: str) -> None:
    record = Record("4711", 0, 0, 0, rundir.EXIT, {"code": code, "text": text}, b"")
    seen = begun(records=[record], exits={0: exit_event(code)})
    error = failure(Verdict.EXITED, seen, subject())
    assert type(error) is errors.FunctionExited
    assert f"called sys.exit({text}) instead of returning" in error.message
    assert error.exit_code == code


def test_an_interpreter_that_ended_without_a_word_is_named_as_such() -> None:
    error = failure(Verdict.EXITED, begun(exits={0: exit_event(0)}), subject())
    assert type(error) is errors.FunctionExited
    assert "os._exit" in error.message


def test_an_error_of_the_runner_arrives_as_its_own_class() -> None:
    header = {"error": "PythonMismatch", "message": "3.9 is not 3.11", "hint": "python="}
    error = recorded(Record("4711", 0, 0, 0, rundir.ERROR, header, b""), subject())
    assert type(error) is errors.PythonMismatch
    assert "3.9 is not 3.11" in error.message
    assert error.hint == "python="


def test_an_exception_that_could_not_travel_arrives_as_text() -> None:
    header = {"type": "lib.Odd", "message": "it broke", "exception": True}
    error = recorded(Record("4711", 0, 0, 0, rundir.ERROR, header, b""), subject())
    assert type(error) is errors.RemoteError
    assert "raised lib.Odd: it broke" in error.message


def test_a_base_exception_is_not_raised_in_the_client() -> None:
    header = {"type": "KeyboardInterrupt", "message": "", "exception": False}
    error = recorded(Record("4711", 0, 0, 0, rundir.ERROR, header, b""), subject())
    assert type(error) is errors.FunctionExited
    assert "KeyboardInterrupt" in error.message


def test_signals_have_names_and_unknown_ones_numbers() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(53).startswith(("SIG", "signal 53"))
    assert signal_name(4000) == "signal 4000"
