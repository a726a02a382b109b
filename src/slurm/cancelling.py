"""How jobs are cancelled: with what would follow them, in few round trips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.job import Job


def cancel(cluster: Cluster, jobs: Sequence[Job[Any]], children: bool) -> int:
    """Ask the scheduler to end jobs, and with `children` what workflows submitted; how many."""
    for job in jobs:
        job.sent()
    asked = [job for job in jobs if not job.settled]
    above = [job for job in asked if job.is_workflow and children]
    # First what would submit more, then what it has submitted.
    for job in above:
        cluster.backend.stop_workflow(job.run, job.index)
    _stop_retries(cluster, asked)
    for job in asked:
        job.watch()
    unsent = _stop_unsent(cluster, asked)
    known = [job.key for job in asked if job.key is not None]
    count = len(cluster.backend.request("cancel", known)) if known else 0
    count += sum(cluster.backend.cancel_below(job.run, job.index) for job in above)
    for job in asked:
        if job.key is not None:
            cluster._watcher.ask(job)
    for job in unsent:
        job.give_up()
    return count + len(unsent)


def _stop_unsent(cluster: Cluster, jobs: Sequence[Job[Any]]) -> list[Job[Any]]:
    """Cancel those whose part of a long map is not submitted yet; the others of it go on."""
    runs: dict[str, list[Job[Any]]] = {}
    for job in jobs:
        if job.key is None:
            runs.setdefault(job.run, []).append(job)
    for run, unsent in runs.items():
        ids = cluster.backend.stop_parts(run, [job.index for job in unsent])
        for job in unsent:
            sent = ids.get(job.part.number if job.part is not None else 0)
            if sent is not None and job.key is None:  # it went out meanwhile
                job.assign(sent)
    return [job for unsent in runs.values() for job in unsent if job.key is None]


def _stop_retries(cluster: Cluster, jobs: Sequence[Job[Any]]) -> None:
    returning = [job for job in jobs if job.again is not None]
    if returning:
        cluster.backend.stop_retry([(job.run, job.index) for job in returning])
    for job in returning:
        job.again.stopped = True  # type: ignore[union-attr]
    for run in {job.run for job in returning}:
        cluster._watcher.refresh_run(run)  # a retry may have been submitted meanwhile
