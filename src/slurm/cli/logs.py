"""`slurm logs RUN`: what a job printed, or prints, here or on a cluster behind ssh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.frame import COMMON, COUNT, Answer, Common, Run
from slurm.cli.opened import look_at
from slurm.cli.screen import Screen


@dataclass(frozen=True)
class LogLine(Answer):
    """One line of a log; with --json each line is one object."""

    job_id: Annotated[str, "The job that printed it."]
    stream: Annotated[str, "`out` or `err`."]
    line: Annotated[str, "The line, without its end."]

    def lines(self, screen: Screen) -> list[str]:
        """The line with its colours."""
        return [screen.log(self.line)]


def logs(
    run: Run,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative="", help="Until the job is over.")
    ] = False,
    lines: Annotated[
        int, Parameter(name=["--lines", "-n"], help="How many last lines.", validator=COUNT)
    ] = 10,
    stderr: Annotated[bool, Parameter(negative="", help="The other stream.")] = False,
    task: Annotated[
        int | None, Parameter(help="Of an array: the one with this number.", validator=COUNT)
    ] = None,
    rank: Annotated[
        int | None, Parameter(help="Of a job with ranks: this one's lines.", validator=COUNT)
    ] = None,
    common: Common = COMMON,
) -> Iterator[LogLine]:
    """Print the last lines of a job's log; with --follow each new one as it comes."""
    job = look_at(common, run, ask=False).of_task(task).one("logs")
    stream = "err" if stderr else "out"
    for line in job.log_lines(lines, follow=follow, stderr=stderr, rank=rank, labels=True):
        yield LogLine(job.id, stream, line)
