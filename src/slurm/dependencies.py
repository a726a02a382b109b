"""What a job waits for: other jobs, in the ways that Slurm knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir
from slurm.array import ArrayJob
from slurm.job import Job
from slurm.model.ids import collapse_array_spec

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.packaging.arguments import Call

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

    @property
    def runs(self) -> set[str]:
        """The runs that these jobs belong to."""
        members = (job.members if isinstance(job, ArrayJob) else (job,) for job in self.jobs)
        return {one.run for found in members for one in found}

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


def pair(conditions: Sequence[Dependency], calls: list[Call]) -> list[Call]:
    """Calls of a map that each look for the value of their counterparts, as `aftercorr` asks."""
    arrays = [job for one in conditions if one.kind == "aftercorr" for job in one.jobs]
    for array in arrays:
        if not isinstance(array, ArrayJob) or len(array) != len(calls):
            raise errors.UsageError(
                "aftercorr pairs the elements of two arrays of the same length; "
                f"{array!r} does not fit an array of {len(calls)} elements",
                hint="use kind='afterok', or map over as many items",
            )
    if not arrays:
        return calls
    counterparts = zip(*arrays, strict=True)
    return [replace(call, paired=found) for call, found in zip(calls, counterparts, strict=True)]


def render(
    cluster: Cluster, conditions: Sequence[Dependency], array: bool, size: int | None
) -> str | None:
    """The dependency of a submission as Slurm takes it; what is already met is left out.

    `array` says whether the dependent is one, and `size` is its length where it goes out as one
    Slurm array with an element per item. A condition that can never be met raises
    `UpstreamFailed` here, before anything is submitted.
    """
    texts: dict[str, None] = {}
    for condition in conditions:
        if condition.kind == "singleton":
            texts["singleton"] = None
            continue
        for job in condition.elements():
            job.sent()
        _check(cluster, condition, array)
        back = returning(condition)
        known = set(map(id, back))
        sure = [job for job in condition.elements() if id(job) not in known]
        suffix = f"+{condition.minutes}" if condition.minutes else ""
        told = condition.kind
        if told == "aftercorr" and not all(_same_numbers(one, size) for one in condition.jobs):
            told = "afterany"  # each element looks for the value of its counterpart, see `pair`
        for kind, jobs in ((told, sure), ("afterany", back)):
            ids = _open_ids(jobs)
            if ids:
                texts[f"{kind}:" + ":".join(f"{i}{suffix}" for i in ids)] = None
    return ",".join(texts) or None


def _same_numbers(job: Job[Any] | ArrayJob[Any], size: int | None) -> bool:
    """Whether Slurm's own `aftercorr` pairs right: it knows arrays and the numbers in them, and of
    elements that have ended it may know nothing."""
    members = job.members if isinstance(job, ArrayJob) else (job,)
    first = members[0] if len(members) == size else None
    if first is None or first.part is None or first.part.size != size or first.packed is not None:
        return False
    return all(
        one.run == first.run
        and one.index == number
        and one.key is not None
        and one.again is None
        and not one.settled
        and not one.is_workflow
        for number, one in enumerate(members)
    )


def _check(cluster: Cluster, condition: Dependency, array: bool) -> None:
    if cluster._journal is not None:
        cluster._journal.refuse_circle(condition)
    for job in condition.jobs:
        if job.cluster.backend.target != cluster.backend.target:
            raise errors.UsageError(
                f"{job!r} is a job of another cluster, so nothing here can wait for it",
                hint="pass its result: job.result()",
            )
    if condition.kind == "aftercorr" and not array:
        raise errors.UsageError(
            "aftercorr pairs the elements of two arrays; a single call has none",
            hint="use kind='afterok', or .map() over as many items",
        )
    if condition.kind not in ("afterok", "afternotok", "aftercorr"):
        return
    _look(cluster, condition)
    if condition.kind == "aftercorr":
        return
    for element in condition.elements():
        if element.settled and element.succeeded != (condition.kind == "afterok"):
            ended = "succeeded" if element.succeeded else "did not succeed"
            raise errors.UpstreamFailed(
                f"{element!r} {ended}, so a job that waits for it with {condition.kind} can never "
                "run",
                hint="job.exception() says why" if not element.succeeded else None,
                job_id=element.id,
            )


def _look(cluster: Cluster, condition: Dependency) -> None:
    """Read each run with open jobs once, however many of them are meant."""
    runs = set()
    for job in condition.elements():
        if not job.settled:
            job.watch()
            runs.add(job.run)
            if job.returned is not None:
                job.returned.look()
    for run in runs:
        cluster._watcher.refresh_run(run)


def may_return(condition: Dependency) -> bool:
    """Whether a job that needs values of these may have to go behind another job: a retry of one,
    or what a workflow among them returned."""
    needs = condition.kind in ("afterok", "afterany", "aftercorr")
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
    unsent: dict[str, list[int]] = {}
    arrays: dict[str, dict[int, Job[Any]]] = {}
    for element in jobs:
        if element.key is None and element.settled:
            continue  # it was refused, or given up
        if element.key is None:
            # Its part has no id yet; the agent fills it in once there is one.
            unsent.setdefault(element.run, []).append(element.index)
        else:
            arrays.setdefault(element.bare.partition("_")[0], {})[element.index] = element
    for run, indexes in unsent.items():
        ids[rundir.ids_token(run, collapse_array_spec(indexes))] = None
    for array, members in arrays.items():
        left = [member.bare for member in members.values() if not member.settled]
        part = next(iter(members.values())).part
        whole = part is None or len(members) == part.size
        ids.update(dict.fromkeys([array] if whole and left else left))
    return list(ids)
