"""`slurm ls`: the runs of a cluster, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.frame import COMMON, ONE_OR_MORE, Answer, Common
from slurm.cli.screen import Column, Screen, ago, span, table
from slurm.runlist import ListedRun, RunList


@dataclass(frozen=True)
class ListRow:
    """One run of the list."""

    run: Annotated[str, "Its name."]
    task: Annotated[str, "The task's name."]
    kind: Annotated[str, "job, array, packed or workflow."]
    job_id: Annotated[str, "Its first job; empty: none was accepted yet."]
    state: Annotated[str, "The state of the whole, in Slurm's words."]
    states: Annotated[dict[str, int], "How many of its jobs are in which state."]
    jobs: Annotated[int, "How many jobs it has."]
    done: Annotated[int, "How many of them have ended well."]
    submitted: Annotated[float, "When it was submitted, in seconds since the epoch."]
    started: Annotated[float | None, "When its first job began."]
    ended: Annotated[float | None, "When its last job ended; null while it is not over."]
    reason: Annotated[str, "Why it waits, in Slurm's words."]
    nodes: Annotated[str, "Where it runs or ran, as far as the scheduler remembers."]


@dataclass(frozen=True)
class RunsListed(Answer):
    """The runs of a cluster."""

    base: Annotated[str, "The directory of all runs."]
    total: Annotated[int, "How many runs there are, listed or not."]
    runs: Annotated[list[ListRow], "The runs, newest first."]
    problem: Annotated[str, "Why states may be old: a scheduler that did not answer; else empty."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """A table."""
        if not self.runs:
            none = "no runs" if not self.total else f"none of {self.total} runs is such a run"
            yield f"{none} in {self.base}"
            return
        if self.problem:
            yield from screen.wrap(f"states are those of the files: {self.problem}")
        now = time.time()
        columns = (
            Column("RUN"),
            Column("STATE", is_state=True),
            Column("DONE", right=True, spare=2),
            Column("JOB", right=True, spare=1),
            Column("TIME", right=True, spare=3),
            Column("AGE", right=True, spare=4),
            Column("WHERE OR WHY", spare=5),
        )
        rows = [
            (
                row.run,
                row.state,
                f"{row.done}/{row.jobs}" if row.jobs > 1 else "",
                row.job_id.partition(";")[0],
                span((row.ended or now) - row.started) if row.started else "",
                ago(row.submitted, now),
                row.nodes or row.reason or ("" if row.job_id else "no job was accepted"),
            )
            for row in self.runs
        ]
        yield from table(columns, rows, screen)
        if len(self.runs) < self.total:
            yield screen.paint(f"{len(self.runs)} of {self.total} runs; --all shows all", "grey")


def ls(
    *,
    all: Annotated[bool, Parameter(name=["--all", "-a"], negative="", help="All runs.")] = False,
    number: Annotated[
        int, Parameter(name=["--number", "-n"], help="How many of them.", validator=ONE_OR_MORE)
    ] = 20,
    task: Annotated[str | None, Parameter(help="Only runs of this task.")] = None,
    state: Annotated[str | None, Parameter(help="Only runs in this state, such as FAILED.")] = None,
    common: Common = COMMON,
) -> RunsListed:
    """List the runs of a cluster, newest first, with their states."""
    backend = common.backend()
    filtered = task is not None or state is not None
    limit = 0 if all or filtered else number
    runs = RunList(backend.target)
    found, total = runs.look(backend, limit)
    kept = [one for one in found if _fits(one, task, state)]
    rows = [_row(one) for one in (kept if all else kept[:number])]
    return RunsListed(str(backend.hello()["base"]), total, rows, runs.problem)


def _fits(run: ListedRun, task: str | None, state: str | None) -> bool:
    if task is not None and run.task != task:
        return False
    return state is None or state.upper() in (run.state, *run.states)


def _row(run: ListedRun) -> ListRow:
    return ListRow(
        run=run.run,
        task=run.task,
        kind=run.kind,
        job_id=run.job_id,
        state=run.state,
        states=dict(run.states),
        jobs=run.jobs,
        done=run.done,
        submitted=run.submitted,
        started=run.started,
        ended=run.ended if run.over else None,
        reason=run.reason,
        nodes=run.nodes,
    )
