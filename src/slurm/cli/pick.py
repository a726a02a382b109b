"""Which job is meant where a verb needs exactly one."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from slurm import ArrayJob, Job
from slurm.errors import UsageError

#: One of the nodes of a job.
Node = Annotated[str | None, Parameter(help="A node of the job; the first when left out.")]


def one_job(found: Any, run: str, verb: str, *, failed: bool = False) -> Job[Any]:
    """The job of a run; of an array the only one that fits, else a hint at how to name one.

    Those that fit run now, or with `failed` have failed.
    """
    if not isinstance(found, ArrayJob):
        job: Job[Any] = found
        return job
    if failed:
        fit = list(found.failed)
    else:
        fit = [job for job in found.members if job.state.phase == "active"]
    if len(fit) == 1:
        return fit[0]
    what = "have failed" if failed else "run now"
    example = (fit or list(found[:1]))[0].id
    raise UsageError(
        f"{run} is an array of {len(found)} jobs, of which {len(fit)} {what}",
        hint=f"name one of them: slurm {verb} {example}",
    )
