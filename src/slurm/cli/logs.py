"""`slurm logs RUN`: what a job printed, or prints, here or on a cluster behind ssh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from slurm import ArrayJob
from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.screen import Screen
from slurm.errors import UsageError


@dataclass(frozen=True)
class LogLine(Answer):
    """One line of a log; with --json each line is one object."""

    job_id: Annotated[str, "The job that printed it."]
    stream: Annotated[str, "`out` or `err`."]
    line: Annotated[str, "The line, without its end."]

    def lines(self, screen: Screen) -> list[str]:
        """The line as it is."""
        return [self.line]


def logs(
    run: Run,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative="", help="Until the job is over.")
    ] = False,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], help="How many last lines.")] = 10,
    stderr: Annotated[bool, Parameter(negative="", help="The other stream.")] = False,
    common: Common = COMMON,
) -> Iterator[LogLine]:
    """Print the last lines of a job's log; with --follow each new one as it comes."""
    job = common.attach(run)
    if isinstance(job, ArrayJob):
        raise UsageError(
            f"{run} is an array of {len(job)} jobs, each with a log of its own",
            hint=f"name one of them: slurm logs {job[0].id}",
        )
    stream = "err" if stderr else "out"
    for line in job.tail(lines, follow=follow, stderr=stderr):
        yield LogLine(job.id, stream, line)
