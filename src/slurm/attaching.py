"""The jobs of a run of before, made anew out of its directory, from any process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir
from slurm.callbacks.following import follow
from slurm.handles import make_array, make_jobs
from slurm.metadata import read_metadata

if TYPE_CHECKING:
    from slurm.api.backend import JobKey
    from slurm.api.slurm_commands import JobStatus
    from slurm.cluster import Cluster
    from slurm.job import Job


#: The id of an element, of a part of a heterogeneous job, or of a step.
_OF_ONE = re.compile(r"\d+[_+.]")


def attach(cluster: Cluster, wanted: str) -> Any:
    """The job or array of a run, by run name, path or job id; watched, and read once."""
    run = cluster.backend.find_run(wanted)
    metadata = read_metadata(cluster.backend.read(run, rundir.METADATA))
    parts = range(len(metadata.get("parts") or (0,)))
    found = {part: cluster.backend.find_job(run, part) for part in parts}
    ids = {part: job for part, job in found.items() if job is not None}
    if 0 not in ids:
        raise errors.JobLost(
            f"{run} was prepared, but no job of it was ever accepted by the scheduler",
            hint="submit it again",
        )
    if "." in ids[0] and not cluster._steps:
        from slurm.allocation import Allocation

        return Allocation.of_step(cluster, run, ids[0]).attach(run)
    jobs = make_jobs(cluster, run, metadata, ids)
    follow(cluster, jobs)
    for job in jobs:
        job.found = True
        job.watch()
    cluster._watcher.refresh_run(run)
    if not metadata.get("parts"):
        return jobs[0]
    bare = wanted.partition(";")[0]
    element = next((job for job in jobs if bare in _ids_of(job)), None)
    if element is None and _OF_ONE.match(bare):
        # Never the whole array instead: it may be what is to be cancelled.
        raise errors.RunNotFound(
            f"the array {run} has no job {wanted}",
            hint=f"its jobs are {jobs[0].bare} to {jobs[-1].bare or 'those that wait to go out'}",
        )
    return element or make_array(cluster, run, str(metadata.get("task", run)), jobs)


def _ids_of(job: Job[Any]) -> list[str]:
    """The id of a job, and those of its earlier attempts."""
    earlier = job.again.attempts if job.again is not None else ()
    return [job.bare, *(attempt.job_id for attempt in earlier)]


def jobs_of_run(cluster: Cluster, run: str) -> list[Job[Any]]:
    """The jobs of a run, unwatched; those of parts that wait have no id yet."""
    metadata = read_metadata(cluster.backend.read(run, rundir.METADATA))
    ids = dict(cluster.backend.read_run(run, {}, parts=True)["parts"])
    if not ids and not metadata.get("parts"):
        found = cluster.backend.find_job(run)
        ids = {0: found} if found else {}
    jobs = make_jobs(cluster, run, metadata, ids)
    return jobs if jobs[0].packed is None else list(jobs[0].packed.array())


def told_of(cluster: Cluster, keys: Sequence[JobKey]) -> dict[str, JobStatus]:
    """The scheduler's word on jobs; steps it does not know, but the allocation that holds them."""
    from slurm.allocation import StepBackend

    steps: dict[tuple[str, str], list[JobKey]] = {}
    for key in keys:
        if "." in key.bare:
            held = key.run.rpartition(f"/{rundir.TASKS}/")[0], key.bare.partition(".")[0]
            steps.setdefault(held, []).append(key)
    plain = [key for key in keys if "." not in key.bare]
    found = cluster.backend.status(plain) if plain else {}
    for (run, raw), mine in steps.items():
        jobs = jobs_of_run(cluster, run)
        holder = next((job for job in jobs if job.bare == raw), jobs[0])
        found.update(StepBackend(cluster.backend, holder, raw).status(mine))
    return found
