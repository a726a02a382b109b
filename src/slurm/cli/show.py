"""`slurm show RUN`: one run with its jobs, times, options and last words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.opened import Opened, last_lines, look_at
from slurm.cli.screen import Column, Screen, ago, span, table
from slurm.cli.why import unwritten
from slurm.model.states import parse_state
from slurm.model.units import format_duration, format_memory

#: How many failed jobs are shown one by one.
SHOWN = 10


@dataclass(frozen=True)
class FailedCall:
    """One call that failed."""

    task: Annotated[int, "Its number in the array."]
    job_id: Annotated[str, "Its job."]
    state: Annotated[str, "How it ended, in Slurm's words."]
    kind: Annotated[str, "raised, exited, died, oom, timeout, preempted, node_fail or cancelled."]
    error: Annotated[str, "What happened, in a line."]
    node: Annotated[str | None, "Where it ran."]


@dataclass(frozen=True)
class RunShown(Answer):
    """All that is known about a run."""

    run: Annotated[str, "Its name."]
    task: Annotated[str, "The task's name."]
    job_id: Annotated[str, "Its job; of an array the first one's."]
    state: Annotated[str, "The state of the whole."]
    states: Annotated[dict[str, int], "How many of its jobs are in which state."]
    reason: Annotated[str, "Why it waits or ended, in Slurm's words."]
    node: Annotated[str | None, "Where it runs or ran; of an array null."]
    submitted: Annotated[float, "Seconds since the epoch."]
    started: Annotated[float | None, "When the first of its jobs began."]
    ended: Annotated[float | None, "When the last of its jobs ended; null while it is not over."]
    exit_code_of_job: Annotated[int | None, "The exit code of a single job's script."]
    attempts: Annotated[int, "How often a single call was submitted or requeued."]
    path: Annotated[str, "The run directory on the cluster."]
    options: Annotated[dict[str, Any], "What was asked for."]
    failed: Annotated[list[FailedCall], "The calls that failed, at most the first ten."]
    stdout: Annotated[list[str], "The last lines of a single job's log."]
    stderr: Annotated[list[str], "The same of standard error."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """The facts, then what failed, then the last words."""
        yield f"{screen.paint(self.run, 'bold')}  {screen.state(self.state)}"
        for name, value in self._facts():
            yield from screen.wrap(value, indent=" " * 12, first=f"  {name:<10}")
        if self.failed:
            yield ""
            columns = (
                Column("TASK", right=True),
                Column("JOB", spare=1),
                Column("STATE", is_state=True),
                Column("NODE", spare=2),
                Column("ERROR"),
            )
            rows = [(f.task, f.job_id, f.state, f.node, f.error) for f in self.failed]
            yield from table(columns, rows, screen)
        for title, words in (("log", self.stdout), ("standard error", self.stderr)):
            if words:
                yield ""
                yield screen.paint(f"last lines of its {title}:", "grey")
                yield from (f"  | {line}" for line in words)

    def _facts(self) -> Iterator[tuple[str, str]]:
        now = time.time()
        yield "job", self.job_id or "not accepted yet"
        if len(self.states) > 1 or sum(self.states.values()) > 1:
            yield "calls", ", ".join(f"{n} {state}" for state, n in sorted(self.states.items()))
        if self.reason:
            yield "reason", self.reason
        if self.node:
            yield "node", self.node
        yield "submitted", f"{ago(self.submitted, now)} ago"
        if self.started:
            ran = span((self.ended or now) - self.started)
            over = parse_state(self.state).phase == "finished"
            if self.ended or not over:
                yield "ran" if self.ended else "runs for", ran
        if self.attempts > 1:
            yield "attempts", str(self.attempts)
        yield "asked for", ", ".join(f"{k}={v}" for k, v in sorted(self.options.items())) or "-"
        yield "directory", self.path


def show(run: Run, *, common: Common = COMMON) -> RunShown:
    """Show a run: its jobs, times, options, what failed and its last words."""
    return described(look_at(common, run))


def described(opened: Opened) -> RunShown:
    """All that is known about an opened run."""
    jobs, first = opened.jobs, opened.jobs[0]
    single = first if len(jobs) == 1 else None
    times = [job.timings for job in jobs]
    begins = [t.started for t in times if t.started]
    ends = [t.ended for t in times if t.ended]
    over = all(job.settled or job.known_state.phase == "finished" for job in jobs)
    return RunShown(
        run=opened.run,
        task=opened.name,
        job_id=first.id,
        state=opened.state,
        states=opened.states,
        reason=next((job.reason for job in jobs if not job.settled and job.reason), ""),
        node=single.node if single else None,
        submitted=first.submitted,
        started=min(begins, default=None),
        ended=max(ends, default=None) if over else None,
        exit_code_of_job=single.exit_code if single and single.settled else None,
        attempts=len(single.history) if single else 1,
        path=first.path,
        options=_plain(first.options),
        failed=[_failed(job) for job in opened.ended_badly[:SHOWN]],
        stdout=last_lines(single, 5) if single else [],
        stderr=last_lines(single, 5, True) if single else [],
    )


def _failed(job: Any) -> FailedCall:
    last = job.history[-1]
    error = last.error.splitlines()[0] if last.error else ""
    if not job.settled:
        error = unwritten(job).text
    return FailedCall(job.index, job.id, job.known_state.value, last.kind or "", error, job.node)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, times and memory as sbatch takes them."""
    forms = {"time": format_duration, "mem": format_memory, "mem_per_cpu": format_memory}
    return {
        name: forms[name](value) if name in forms and isinstance(value, int) else value
        for name, value in options.items()
        if value is not None
    }
