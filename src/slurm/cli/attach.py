"""`slurm attach RUN`: follow a run until it is over; Ctrl-C leaves it alone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import COMMON, COUNT, Answer, Common, Run
from slurm.cli.opened import Opened, open_run
from slurm.cli.screen import Screen
from slurm.model.states import parse_state

#: How often a job that waits or runs is looked at.
LOOK = 1.0


@dataclass(frozen=True)
class Seen(Answer):
    """What happened to a run; with --json each is one object in one line."""

    kind: Annotated[str, "state, log, progress or end."]
    run: Annotated[str, "The run."]
    job_id: Annotated[str, "The job."]
    state: Annotated[str, "Its state now; of an array that of the whole."]
    text: Annotated[str, "The line of the log, the reason why it waits, or how far it is."]

    @property
    def aside(self) -> bool:  # type: ignore[override]
        """Only the log is what the run printed."""
        return self.kind != "log"

    @property
    def exit_code(self) -> int:
        """1 where the end is a bad one."""
        bad = self.kind == "end" and not parse_state(self.state).succeeded
        return TASK_FAILED if bad else DONE

    def lines(self, screen: Screen) -> list[str]:
        """A line of the log as it is; all else says what it is about."""
        if self.kind == "log":
            return [self.text]
        more = f" ({self.text})" if self.text else ""
        return [screen.paint(f"[{self.job_id} {self.state}{more}]", "grey")]


def attach(
    run: Run,
    *,
    lines: Annotated[
        int, Parameter(name=["--lines", "-n"], help="How many last lines.", validator=COUNT)
    ] = 10,
    stderr: Annotated[bool, Parameter(negative="", help="The other stream of its log.")] = False,
    common: Common = COMMON,
) -> Iterator[Seen]:
    """Follow a run until it is over: its states and its log, or how far an array is.

    Ctrl-C ends the following, never the run. Exit code 1: the run failed.
    """
    return follow(open_run(common, run), lines, stderr)


def follow(opened: Opened, lines: int = 10, stderr: bool = False) -> Iterator[Seen]:
    """What happens to a run until it is over."""
    if opened.array is None:
        yield from _follow_job(opened.jobs[0], lines, stderr)
    else:
        yield from _follow_array(opened)
    first = opened.jobs[0]
    yield Seen("end", opened.run, first.id, opened.state, _how_it_ended(opened))


def _how_it_ended(opened: Opened) -> str:
    failed = opened.failed
    if not failed:
        return ""
    if opened.array is None:
        last = failed[0].history[-1]
        return last.error.splitlines()[0] if last.error else last.kind or ""
    return f"{len(failed)} of {len(opened.jobs)} failed"


def _follow_job(job: Any, lines: int, stderr: bool) -> Iterator[Seen]:
    """A log grows in a thread of its own: a job may print for hours without a change of state."""
    told: queue.SimpleQueue[Seen | None] = queue.SimpleQueue()

    def read() -> None:
        try:
            for line in job.log_lines(lines, follow=True, stderr=stderr, labels=True):
                told.put(Seen("log", job.run, job.id, job.known_state.value, line))
        finally:
            told.put(None)

    threading.Thread(target=read, name="slurm-attach", daemon=True).start()
    shown = ("", "")
    while True:
        state = job.state.value
        reason = job.reason if parse_state(state).phase == "pending" else job.node or ""
        if (state, reason) != shown and not job.settled:
            shown = (state, reason)
            yield Seen("state", job.run, job.id, state, reason)
        try:
            while (one := told.get(timeout=LOOK)) is not None:
                yield one
            return
        except queue.Empty:
            continue


def _follow_array(opened: Opened) -> Iterator[Seen]:
    array = opened.array
    assert array is not None
    shown = -1
    over = threading.Event()
    while not over.is_set():
        progress = array.progress
        if progress.done != shown:
            shown = progress.done
            yield Seen("progress", opened.run, opened.jobs[0].id, opened.state, str(progress))
        if progress.done == progress.total:
            return
        over.wait(LOOK)
