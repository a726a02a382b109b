"""`slurm wait RUN...`: until runs are over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.opened import open_run
from slurm.cli.screen import Screen
from slurm.errors import UsageError
from slurm.model.units import parse_duration


@dataclass(frozen=True)
class Waited(Answer):
    """How one run ended; with --json each is one object in one line."""

    run: Annotated[str, "Its name."]
    job_id: Annotated[str, "Its job; of an array the first one's."]
    state: Annotated[str, "The state of the whole."]
    states: Annotated[dict[str, int], "How many of its jobs are in which state."]
    over: Annotated[bool, "Whether it is over; false: the time was up before."]

    @property
    def exit_code(self) -> int:
        """1 where something failed, or is not over in time."""
        return DONE if self.state == "COMPLETED" and self.over else TASK_FAILED

    def lines(self, screen: Screen) -> list[str]:
        """One line."""
        some = ", ".join(f"{n} {state}" for state, n in sorted(self.states.items()))
        text = some if len(self.states) > 1 else screen.state(self.state)
        return [f"{self.run}: {text}" + ("" if self.over else " (not over in time)")]


def wait(
    *runs: Run,
    timeout: Annotated[
        str | None, Parameter(help="Wait no longer than this: 90, 10min, 2h.")
    ] = None,
    common: Common = COMMON,
) -> Iterator[Waited]:
    """Wait until runs are over. Exit code 1: one of them failed, or is not over in time."""
    if not runs:
        raise UsageError("no run was named", hint="slurm wait last")
    limit = None if timeout is None else parse_duration(timeout, "--timeout")
    until = None if limit is None else time.monotonic() + limit
    opened = [open_run(common, run, ask=False) for run in runs]
    for one in opened:
        for job in one.jobs:
            job.wait(None if until is None else max(0.0, until - time.monotonic()))
        yield Waited(one.run, one.jobs[0].id, one.state, one.states, one.over)
