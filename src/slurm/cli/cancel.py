"""`slurm cancel RUN...`: ask the scheduler to end jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.opened import open_run
from slurm.cli.screen import Screen
from slurm.errors import UsageError


@dataclass(frozen=True)
class Cancelled(Answer):
    """What became of the request; with --json each run is one object in one line."""

    run: Annotated[str, "The run."]
    asked: Annotated[int, "How many jobs the scheduler was asked to end."]
    over: Annotated[int, "How many were over already."]

    def lines(self, screen: Screen) -> list[str]:
        """One line."""
        told = f"{self.asked} job{'' if self.asked == 1 else 's'} cancelled"
        if not self.asked:
            told = "nothing to cancel, it is over"
        elif self.over:
            told += f", {self.over} were over already"
        return [f"{self.run}: {told}"]


def cancel(
    *runs: Run,
    children: Annotated[
        bool, Parameter(negative="--no-children", help="With a workflow's children.")
    ] = True,
    common: Common = COMMON,
) -> Iterator[Cancelled]:
    """Cancel runs, or single jobs of them; what is over stays as it is."""
    if not runs:
        raise UsageError("no run was named", hint="slurm ls shows them; slurm cancel last")
    for run in runs:
        opened = open_run(common, run)
        over = sum(job.settled for job in opened.jobs)
        asked = opened.cluster.cancel(opened.jobs, children=children)
        yield Cancelled(opened.run, asked, over)
