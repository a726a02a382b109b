"""What a job waits for: other jobs, in the ways that Slurm knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir
from slurm.array import ArrayJob
from slurm.job import Job

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: Each kind, and what it waits for.
KINDS = {
    "afterok": "all have succeeded",
    "afterany": "all are over",
    "afternotok": "all have failed",
    "aftercorr": "the element of the same number has succeeded",
    "after": "all have begun, or some minutes later",
    "singleton": "no other job of this name and user is left",
}


@dataclass(frozen=True)
class Dependency:
    """One condition: a kind, and the jobs it speaks of."""

    kind: str
    jobs: tuple[Job[Any] | ArrayJob[Any], ...] = ()
    minutes: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            close = errors.nearest(self.kind, KINDS)
            raise errors.OptionError(
                f"dependency kind {self.kind!r} is not known; Slurm has {', '.join(KINDS)}",
                hint=f"did you mean {close!r}?" if close else "leave kind out for afterok",
            )
        for job in self.jobs:
            if not isinstance(job, (Job, ArrayJob)):
                raise errors.UsageError(
                    f"a job can only wait for jobs, not for {job!r}",
                    hint="pass what a task's call or .map() returned",
                )
        if self.jobs and self.kind == "singleton":
            raise errors.UsageError(
                "singleton takes no jobs: it waits for every other job of this name",
                hint='write task.after(kind="singleton")',
            )
        if self.minutes is not None and self.kind != "after":
            raise errors.UsageError("minutes= goes with kind='after' only")

    def elements(self) -> Iterator[Job[Any]]:
        """Every single job."""
        for job in self.jobs:
            for one in job.members if isinstance(job, ArrayJob) else (job,):
                # A workflow that has ended stands for the jobs that it returned.
                below = one.returned
                if below is None or not below.complete or self.kind not in ("afterok", "afterany"):
                    yield one
                else:
                    yield from below.jobs.values()


def render(cluster: Cluster, conditions: Sequence[Dependency], size: int | None) -> str | None:
    """The dependency of a submission as Slurm takes it; what is already met is left out.

    `size` is the length of the dependent's own array. A condition that can never be met raises
    `UpstreamFailed` here, before anything is submitted.
    """
    texts: dict[str, None] = {}
    for condition in conditions:
        if condition.kind == "singleton":
            texts["singleton"] = None
            continue
        for job in condition.elements():
            job.sent()
        _check(cluster, condition, size)
        back = returning(condition)
        known = set(map(id, back))
        sure = [job for job in condition.elements() if id(job) not in known]
        suffix = f"+{condition.minutes}" if condition.minutes else ""
        for kind, jobs in ((condition.kind, sure), ("afterany", back)):
            ids = _open_ids(jobs)
            if ids:
                texts[f"{kind}:" + ":".join(f"{i}{suffix}" for i in ids)] = None
    return ",".join(texts) or None


def _check(cluster: Cluster, condition: Dependency, size: int | None) -> None:
    if cluster._journal is not None:
        cluster._journal.refuse_circle(condition)
    for job in condition.jobs:
        if job.cluster.backend.target != cluster.backend.target:
            raise errors.UsageError(
                f"{job!r} is a job of another cluster, so nothing here can wait for it",
                hint="pass its result: job.result()",
            )
        fits = isinstance(job, ArrayJob) and len(job.members) == size
        if condition.kind == "aftercorr" and not fits:
            raise errors.UsageError(
                "aftercorr pairs the elements of two arrays of the same length; "
                f"{job!r} does not fit an array of {size or 'no'} elements",
                hint="use kind='afterok', or map over as many items",
            )
    if condition.kind not in ("afterok", "afternotok"):
        return
    for element in condition.elements():
        if element.done() and element.succeeded != (condition.kind == "afterok"):
            ended = "succeeded" if element.succeeded else "did not succeed"
            raise errors.UpstreamFailed(
                f"{element!r} {ended}, so a job that waits for it with {condition.kind} can never "
                "run",
                hint="job.exception() says why" if not element.succeeded else None,
                job_id=element.id,
            )


def may_return(condition: Dependency) -> bool:
    """Whether a job that needs values of these may have to go behind another job: a retry of one,
    or what a workflow among them returned."""
    needs = condition.kind in ("afterok", "afterany")
    return needs and any(job.again is not None or job.is_workflow for job in condition.elements())


def returning(condition: Dependency) -> list[Job[Any]]:
    """The jobs of an `afterok` whose end may not be the last word.

    They may be retried, and a workflow may have returned jobs that still run.

    A job that waits for one begins when it is over in any way, and looks for its value itself.
    """
    if condition.kind != "afterok":
        return []
    again = [job for job in condition.elements() if job.again is not None or job.is_workflow]
    return [job for job in again if not job.settled]


def _open_ids(jobs: Sequence[Job[Any]]) -> list[str]:
    """The ids to wait for: one per array where all of it is meant, not one per element."""
    ids: dict[str, None] = {}
    arrays: dict[str, dict[int, Job[Any]]] = {}
    for element in jobs:
        if element.key is None and element.settled:
            continue  # it was refused, or given up
        if element.key is None:
            # Its part has no id yet; the agent fills in those of its run when all have one.
            ids[rundir.ids_token(element.run)] = None
        else:
            arrays.setdefault(element.bare.partition("_")[0], {})[element.index] = element
    for array, members in arrays.items():
        left = [member.bare for member in members.values() if not member.settled]
        part = next(iter(members.values())).part
        whole = part is None or len(members) == part.size
        ids.update(dict.fromkeys([array] if whole and left else left))
    return list(ids)
