"""Turns a verdict and its evidence into the typed error that a person reads."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm import errors
from slurm.api.slurm_commands import JobStatus
from slurm.evidence import Evidence
from slurm.model.states import JobState
from slurm.model.units import format_duration, format_memory
from slurm.outcome import Verdict
from slurm.rundir import EXIT_NOT_VISIBLE, Record

#: What Slurm reports as the signal of a job whose log it cannot open.
_NO_LOG = 53

#: State -> error class, what happened, what to do.
FAILURES: dict[JobState, tuple[type[errors.JobError], str, str]] = {
    JobState.FAILED: (errors.JobFailed, "failed", "read its log: job.stderr()"),
    JobState.CANCELLED: (errors.JobCancelled, "was cancelled", ""),
    JobState.TIMEOUT: (
        errors.TimeLimitReached,
        "ran into its time limit",
        "ask for more, e.g. task.with_options(time='{time2}'), or stop in time: a function with a "
        "`ctx: JobContext` parameter can look at ctx.should_stop",
    ),
    JobState.DEADLINE: (
        errors.TimeLimitReached,
        "could not end before its deadline",
        "choose a later deadline, or ask for less time",
    ),
    JobState.OUT_OF_MEMORY: (
        errors.JobOutOfMemory,
        "was killed because its memory was used up",
        "ask for more, e.g. task.with_options(mem='{mem2}')",
    ),
    JobState.NODE_FAIL: (
        errors.NodeFailed,
        "lost its node",
        "submit it again; with requeue=True Slurm does so by itself",
    ),
    JobState.BOOT_FAIL: (
        errors.NodeFailed,
        "got a node that could not be made ready",
        "submit it again; with requeue=True Slurm does so by itself",
    ),
    JobState.PREEMPTED: (
        errors.JobPreempted,
        "was preempted by a job of higher priority",
        "submit with requeue=True, so that Slurm starts it again",
    ),
    JobState.REVOKED: (errors.JobLost, "was revoked by the federation", ""),
}


@dataclass(frozen=True)
class Subject:
    """Whose failure it is, and what its log said last."""

    name: str
    job_id: str
    run: str
    options: Mapping[str, object]
    last_lines: Sequence[str] = ()
    dependency: bool = False
    untrusted: str | None = None
    #: The image that it runs in.
    container: str | None = None


def failure(verdict: Verdict, seen: Evidence, job: Subject) -> errors.SlurmError:
    """The error for every verdict but VALUE and RAISED, which bring their own."""
    if verdict is Verdict.EXITED:
        return _exited(seen, job)
    if verdict is Verdict.UNTRUSTED:
        return errors.UntrustedRun(
            f"{_label(job)}: {job.untrusted}",
            hint="nothing in it was unpickled; find out who wrote there",
        )
    if verdict is Verdict.OUT_OF_MEMORY:
        return _by_state(JobState.OUT_OF_MEMORY, seen, job)
    if verdict is Verdict.FAILED:
        return _by_state(seen.state or JobState.FAILED, seen, job)
    if verdict is Verdict.ENDED:
        return _by_state(JobState.FAILED, seen, job)
    kind, text, hint = _LOST[verdict]
    return kind(
        f"{_label(job)} {text.format(run=job.run)}",
        hint=hint.format(run=job.run, job=job.job_id),
        evidence=job.last_lines,
        **_facts(seen, job),
    )


_LOST: dict[Verdict, tuple[type[errors.JobError], str, str]] = {
    Verdict.RESULT_LOST: (
        errors.ResultLost,
        "is over, but its result did not appear in {run} within a minute",
        "check that the nodes write to the same directory as this client reads: ls -la {run}",
    ),
    Verdict.JOB_LOST: (
        errors.JobLost,
        "is unknown to the scheduler and left no result in {run}: the controller forgot it, or it "
        "was never accepted",
        "submit it again; sacct -j {job} may know more",
    ),
    Verdict.NOT_WRITTEN: (
        errors.ResultNotWritten,
        "ran to its end, but its result could not be written to {run} (disk full or quota?)",
        "free space there (df -h; quota), or choose another Cluster(job_base_dir=...)",
    ),
}


def _label(job: Subject) -> str:
    return f"{job.name} (job {job.job_id})"


def _node(seen: Evidence) -> str | None:
    begin = seen.begins.get(seen.attempt)
    if begin is not None:
        return begin.fields.get("node")
    return (seen.status.nodes or None) if seen.status else None


def _codes(seen: Evidence) -> tuple[int | None, int | None]:
    """Exit code and signal: of the script's own event, else of the scheduler."""
    event = seen.last_exit()
    if event is not None:
        code = event.number("code")
        return (code, None) if code <= 128 else (code, code - 128)
    if seen.status is not None:
        return seen.status.exit_code, seen.status.signal
    return None, None


def _facts(seen: Evidence, job: Subject) -> dict[str, Any]:
    code, number = _codes(seen)
    state = seen.state
    return {
        "job_id": job.job_id,
        "state": None if state is None else state.value,
        "node": _node(seen),
        "exit_code": code,
        "signal": number,
    }


def _by_state(state: JobState, seen: Evidence, job: Subject) -> errors.SlurmError:
    special = _special(state, seen, job)
    if special is not None:
        return special
    kind, text, hint = FAILURES.get(state, FAILURES[JobState.FAILED])
    if state is JobState.FAILED:
        text, hint = _how_it_failed(seen, hint)
    where = f" on {_node(seen)}" if _node(seen) else ""
    if state is JobState.CANCELLED and not seen.begins:
        text += " before it started"
    return kind(
        f"{_label(job)} {text}{where}{_asked(state, job)}",
        hint=hint.format(**_doubled(job)) or None,
        evidence=job.last_lines,
        **{**_facts(seen, job), "state": state.value},
    )


def _special(state: JobState, seen: Evidence, job: Subject) -> errors.JobError | None:
    """Ends that the state alone does not tell: no directory there, or an upstream that failed."""
    status = seen.status
    facts = {**_facts(seen, job), "state": state.value}
    log = next((job.options[name] for name in ("output", "error") if job.options.get(name)), None)
    if state is JobState.FAILED and not seen.begins and status and status.signal == _NO_LOG and log:
        return errors.JobFailed(
            f"{_label(job)} did not start: {status.nodes or 'the node'} could not open its log "
            f"{log}",
            hint="output= and error= name files in directories that are there on the nodes, and "
            "that you may write",
            **facts,
        )
    if state is JobState.FAILED and not seen.begins and status and _saw_nothing(status):
        return errors.RunDirNotVisible(
            f"{_label(job)} did not start: {status.nodes or 'the node'} does not see {job.run}",
            hint="choose a directory that all nodes share: Cluster(job_base_dir=...)",
            **facts,
        )
    if state is JobState.FAILED and job.container and seen.attempt not in seen.starts:
        from slurm.packaging.container.failures import explain

        meaning, fix = explain(job.container, job.last_lines)
        where = f" on {_node(seen)}" if _node(seen) else ""
        return errors.ContainerFailed(
            f"{_label(job)}{where}: {meaning}", hint=fix, evidence=job.last_lines, **facts
        )
    if state is JobState.CANCELLED and not seen.begins and job.dependency and _dependency(status):
        return errors.UpstreamFailed(
            f"{_label(job)} will never run: a job that it depends on did not succeed",
            hint="look at the jobs it depends on, correct them and submit again",
            **facts,
        )
    return None


def _saw_nothing(status: JobStatus) -> bool:
    """Slurm could not open the log, or made a directory for it where the run should have been."""
    return status.signal == _NO_LOG or status.exit_code == EXIT_NOT_VISIBLE


def _dependency(status: object) -> bool:
    return "Dependency" in str(getattr(status, "reason", ""))


def _how_it_failed(seen: Evidence, hint: str) -> tuple[str, str]:
    event = seen.last_exit()
    code, number = _codes(seen)
    phase = event.fields.get("phase", "") if event is not None else ""
    if phase == "setup":
        return f"ended in its setup with exit code {code}", "correct the setup lines; see its log"
    if event is not None and seen.attempt not in seen.starts and code in (126, 127):
        return f"could not start Python (exit code {code})", "check python=, venv= and modules="
    if number:
        name = signal_name(number)
        extra = " (somebody, or the kernel for want of memory)" if number == 9 else ""
        return f"was killed by {name}{extra} and left no result", hint
    if code is None:
        return "ended, nobody says why, and left no result", hint
    return f"ended with exit code {code} and left no result", hint


def _asked(state: JobState, job: Subject) -> str:
    time, mem = job.options.get("time"), job.options.get("mem")
    if state is JobState.TIMEOUT and isinstance(time, int):
        return f" (time={format_duration(time)})"
    if state is JobState.OUT_OF_MEMORY and isinstance(mem, int):
        return f" (mem={format_memory(mem)})"
    return ""


def _doubled(job: Subject) -> dict[str, str]:
    time, mem = job.options.get("time"), job.options.get("mem")
    return {
        "time2": format_duration(2 * time) if isinstance(time, int) else "2h",
        "mem2": format_memory(2 * mem) if isinstance(mem, int) else "8G",
    }


def _exited(seen: Evidence, job: Subject) -> errors.JobError:
    record = seen.trouble()
    if record is not None:
        code = record.header.get("code", 0)
        how = f"called sys.exit({record.header.get('text', code)})"
    else:
        code = _codes(seen)[0]
        how = f"ended the interpreter with exit code {code} (os._exit?)"
    return errors.FunctionExited(
        f"{_label(job)} {how} instead of returning a value",
        hint="return a value, or raise an exception to say what is wrong",
        evidence=job.last_lines,
        **{**_facts(seen, job), "exit_code": code},
    )


def recorded(record: Record, job: Subject) -> errors.SlurmError:
    """The error of a record that carries no exception object: the runner's own, or text only."""
    header = record.header
    name = header.get("error")
    if name:
        found = getattr(errors, str(name), None)
        kind = errors.SlurmError
        if isinstance(found, type) and issubclass(found, errors.SlurmError):
            kind = found  # whoever wrote the record chose the name
        error: errors.SlurmError = kind(
            f"{_label(job)}: {header.get('message')}",
            hint=header.get("hint"),
            evidence=header.get("evidence", ()),
        )
        return error
    if not header.get("exception", True):
        return errors.FunctionExited(
            f"{_label(job)} was ended by {header.get('type')}: {header.get('message')}",
            hint="only subclasses of Exception are sent back as they are",
            job_id=job.job_id,
        )
    return errors.RemoteError(
        f"{_label(job)} raised {header.get('type')}: {header.get('message')}",
        hint="the exception itself could not be sent; its text and traceback are complete",
    )


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
