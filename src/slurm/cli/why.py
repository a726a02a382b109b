"""`slurm why JOB`: in English why a job waits, or why it failed, and the command that helps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import COMMON, COUNT, Answer, Common, Run
from slurm.cli.opened import Opened, last_lines, look_at
from slurm.cli.screen import Screen, span
from slurm.errors import RemoteError, SlurmError
from slurm.failure import signal_name
from slurm.why import Ended, Fix, Why, explain_failure, explain_pending


@dataclass(frozen=True)
class FailureKind:
    """One kind of failure of a run, and how many of its calls ended so."""

    kind: Annotated[str, "raised, exited, died, oom, timeout, preempted, node_fail or cancelled."]
    what: Annotated[str, "The type of the exception; else what happened, in a few words."]
    count: Annotated[int, "How many calls."]
    job_id: Annotated[str, "The first of them: `slurm why` explains it."]

    @property
    def said(self) -> str:
        """In a line."""
        return f"raised {self.what}" if self.kind == "raised" else self.what


@dataclass(frozen=True)
class WhyShown(Answer):
    """Why a job waits or failed."""

    run: Annotated[str, "The run."]
    job_id: Annotated[str, "The job that is explained."]
    state: Annotated[str, "Its state."]
    others: Annotated[dict[str, int], "Of an array: how many of its jobs are in which state."]
    failures: Annotated[
        list[FailureKind], "Of an array: each kind of failure, the commonest first."
    ]
    answer: Annotated[Why, "The answer."]

    @property
    def exit_code(self) -> int:
        """1 where it failed."""
        from slurm.model.states import parse_state

        state = parse_state(self.state)
        return TASK_FAILED if state.phase == "finished" and not state.succeeded else DONE

    def lines(self, screen: Screen) -> Iterator[str]:
        """The sentence, the place in line, the evidence, and what helps."""
        told = self.answer
        code = f" ({told.reason})" if told.reason else ""
        yield f"job {self.job_id} is {screen.state(self.state)}{code}"
        yield from screen.wrap(told.text, indent="  ", first="  ")
        yield from (f"  {line}" for line in _in_line(told))
        if self.exit_code:
            yield from (f"  {line}" for line in _against(told))
        for line in told.evidence:
            # Lines of a log stay as they are, for copying.
            log = [f"  | {line}"]
            yield from log if self.exit_code else screen.wrap(line, indent="    ", first="  | ")
        if len(self.others) > 1:
            some = ", ".join(f"{n} {state}" for state, n in sorted(self.others.items()))
            yield f"  the whole run: {some}"
        if len(self.failures) > 1:
            yield "  it failed in several ways:"
            yield from (
                f"    {one.count} x {one.said}, first in slurm why {one.job_id}"
                for one in self.failures
            )
        for fix in told.fixes:
            yield from _fix(fix, screen)
        if not told.fixes and told.waits:
            yield "  nothing to do: it starts by itself"


def _in_line(told: Why) -> Iterator[str]:
    """Where it stands in the queue, and when it is expected to start."""
    if told.position is not None:
        before = told.position - 1
        higher = f", {told.ahead} of them with a higher priority" if told.ahead else ""
        count = f"{before} job{'' if before == 1 else 's'} in line before it{higher}"
        yield count if before else "it is the first in line"
    if told.starts is not None:
        left = told.starts - time.time()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(told.starts))
        yield f"Slurm expects it to start {f'in {span(left)}' if left > 0 else 'now'} ({when})"


def _against(told: Why) -> Iterator[str]:
    """What it used against what it had asked for."""
    for limit in told.limits:
        used = f"{limit.used} of " if limit.used else ""
        yield f"{limit.name}: {used}{limit.value}" + (
            f", {limit.distance}" if limit.distance else ""
        )


def _fix(fix: Fix, screen: Screen) -> Iterator[str]:
    if not fix.command:
        yield from screen.wrap(fix.effect, indent="       ", first="  fix: ")
        return
    yield f"  fix: {screen.paint(fix.command, 'bold')}"
    yield from screen.wrap(fix.effect, indent="       ", first="       ")


def why(
    run: Run,
    *,
    task: Annotated[
        int | None, Parameter(help="Of an array: the one with this number.", validator=COUNT)
    ] = None,
    common: Common = COMMON,
) -> WhyShown:
    """Say in English why a job waits, or why it failed, and what helps."""
    return explained(look_at(common, run).of_task(task))


def explained(opened: Opened) -> WhyShown:
    """The answer about the job of a run that matters most: a failed one, else a waiting one."""
    job = _chosen(opened)
    others = opened.states if len(opened.jobs) > 1 else {}
    state = job.known_state
    if job.settled and not job.succeeded:
        answer = explain_failure(_ended(opened, job), opened.cluster.base)
    elif state.phase == "pending" and job.key is not None:
        answer = _pending(opened, job)
    elif state.phase == "finished" and not job.settled:
        answer = unwritten(job)
    else:
        answer = _fine(job)
    failures = _kinds(opened) if others else []
    return WhyShown(opened.run, job.id, state.value, others, failures, answer)


def _chosen(opened: Opened) -> Any:
    waiting = [j for j in opened.jobs if not j.settled and j.known_state.phase == "pending"]
    return next(iter([*opened.failed, *opened.ended_badly, *waiting, *opened.jobs]))


def _kinds(opened: Opened) -> list[FailureKind]:
    """In which ways the calls of a run failed, and how many in each."""
    first: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for job in opened.ended_badly:
        last = job.history[-1]
        kind = last.kind or job.known_state.value
        what = kind
        if kind == "raised":
            what = last.error.partition(":")[0].strip()
        elif last.error:
            what = last.error.splitlines()[0]
        first.setdefault((kind, what), job.bare)
        counts[kind, what] += 1
    return [
        FailureKind(kind, what, count, first[kind, what])
        for (kind, what), count in counts.most_common()
    ]


def _pending(opened: Opened, job: Any) -> Why:
    facts = opened.cluster.backend.explain(job.key)
    reason = str(facts["job"].get("Reason") or job.reason or "None")
    if not facts["job"]:
        facts = {**facts, "job": _own_words(job)}
    names = {"job": job.bare, "array": job.bare.partition("_")[0], "run": opened.run}
    return explain_pending(reason, facts, names, time.time())


def _own_words(job: Any) -> dict[str, str]:
    """What we know ourselves of a job whose scheduler keeps no such record."""
    asked = job.options
    cpus = (asked.get("cpus_per_task") or 1) * (asked.get("ntasks") or 1)
    tres = f"cpu={cpus}" + (f",mem={asked['mem']}M" if asked.get("mem") else "")
    throttle = asked.get("array_throttle")
    return {"TRES": tres, **({"ArrayTaskThrottle": str(throttle)} if throttle else {})}


def unwritten(job: Any) -> Why:
    """An end that only the scheduler tells of."""
    over = f"It is over as {job.known_state.value}, and its directory has nothing of it."
    where = job.node or "its node"
    logs = [job.options[name] for name in ("output", "error") if job.options.get(name)]
    status = job.evidence.status
    if job.evidence.begins and status is not None and status.signal:
        # Nothing can be written by a script that is killed so.
        text = f"Its script was killed by {signal_name(status.signal)} on {where}."
        fix = f"slurm logs {job.bare}: what it printed until then"
    elif job.evidence.begins:
        text, fix = over, f"check that {where} still sees its directory"
    elif logs:
        text = f"Its log {logs[0]} could not be opened on {where}. {over}"
        fix = "check output= and error=: their directories have to be there, and yours to write"
    else:
        text = f"It could not open its log on {where}, or its directory is not seen there. {over}"
        fix = "check that the directory can be written on that node"
    return Why(job.reason, text, False, fixes=[Fix("", fix)])


def _fine(job: Any) -> Why:
    if job.settled:
        return Why("", "It succeeded.", False)
    silent = f" {job.reason}." if job.notes.silent_since else ""
    text = f"It runs on {job.node or 'its node'}.{silent}"
    return Why(job.reason, text, False, fixes=[Fix(f"slurm logs {job.bare} -f", "follows it")])


def _ended(opened: Opened, job: Any) -> Ended:
    error = job.outcome()[1]
    last = job.history[-1]
    # Who only looks has the text of the function's own exception, not the exception.
    ours = isinstance(error, SlurmError) and not isinstance(error, RemoteError)
    raised = f"{job.name} raised {type(error).__name__}: {error}"
    if isinstance(error, RemoteError):
        raised = error.message.replace(f" (job {job.id})", "", 1)
    message = error.message if ours and isinstance(error, SlurmError) else raised
    code = job.exit_code
    evidence = tuple(error.evidence) if ours else ()
    return Ended(
        run=opened.run,
        job_id=job.bare,
        kind=last.kind or "",
        error=type(error).__name__ if ours else "",
        message=message,
        hint=error.hint if ours else None,
        options=job.options,
        exit_code=code,
        signal=getattr(error, "signal", None) or (code - 128 if code and code > 128 else None),
        peak=_peak(job),
        elapsed=job.timings.elapsed,
        last_lines=evidence or tuple(last_lines(job, 3, True) or last_lines(job, 3)),
    )


def _peak(job: Any) -> int | None:
    """The most memory that the job was seen to use: by its script's end, or by itself."""
    end = job.evidence.last_exit()
    return (end.number("peak") or None) if end is not None else None
