"""`slurm logs RUN`: what a job printed, or prints, here or on a cluster behind ssh."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from slurm import ArrayJob, Cluster
from slurm.cli import DONE
from slurm.errors import UsageError

app = App(
    name="logs",
    help="Show what a job printed, or follow it while it runs.",
    help_format="plaintext",
)


@app.default
def logs(
    run: Annotated[str, Parameter(help="A run or a job id; of an array such as 123_4.")],
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative="", help="Until the job is over.")
    ] = False,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], help="How many last lines.")] = 10,
    stderr: Annotated[bool, Parameter(negative="", help="The other stream.")] = False,
    cluster: Annotated[str | None, Parameter(help="A profile of the Slurmfile.")] = None,
    hostname: Annotated[str | None, Parameter(help="A login node, reached by ssh.")] = None,
    base: Annotated[
        str | None, Parameter(name="--job-base-dir", help="The directory of all runs.")
    ] = None,
) -> int:
    """Print the last lines of a job's log; with --follow each new one as it comes."""
    place = (
        Cluster.from_env(cluster)
        if cluster is not None
        else Cluster(hostname=hostname, job_base_dir=base)
    )
    job = place.attach(run)
    if isinstance(job, ArrayJob):
        raise UsageError(
            f"{run} is an array of {len(job)} jobs, each with a log of its own",
            hint=f"name one of them: slurm logs {job[0].id}",
        )
    for line in job.tail(lines, follow=follow, stderr=stderr):
        print(line, flush=True)
    return DONE
