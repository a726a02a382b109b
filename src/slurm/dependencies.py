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
    "afternotok": "each has failed; of an array at least one element, when all are over",
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
        most = 10_000_000
        if self.minutes is not None and not (
            type(self.minutes) is int and 0 <= self.minutes <= most
        ):
            raise errors.OptionError(
                f"minutes={self.minutes!r} is not a whole number from 0 to {most}",
                hint="write how many minutes after the beginning of the others: minutes=5",
            )

    @property
    def runs(self) -> set[str]:
        """The runs that these jobs belong to."""
        members = (job.members if isinstance(job, ArrayJob) else (job,) for job in self.jobs)
        return {one.run for found in members for one in found}

    def given(self) -> Iterator[Job[Any]]:
        """Every single job, or item of a packed map, as it was given."""
        for job in self.jobs:
            yield from _each(job)

    def elements(self) -> Iterator[Job[Any]]:
        """Every single job; a workflow that has ended stands for those that it returned."""
        for job in self.jobs:
            yield from self.elements_of(job)

    def elements_of(self, job: Job[Any] | ArrayJob[Any]) -> Iterator[Job[Any]]:
        """Those of one of its jobs or arrays."""
        for one in _each(job):
            below = one.returned
            if below is None or not below.complete or self.kind not in _ENDS:
                yield one
            else:
                yield from below.jobs.values()


#: Kinds that ask for the end of a job, not of its first Slurm job.
_ENDS = ("afterok", "afterany", "afternotok")


def _each(job: Job[Any] | ArrayJob[Any]) -> Sequence[Job[Any]]:
    return job.awaited if isinstance(job, ArrayJob) else (job,)


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
        suffix = f"+{condition.minutes}" if condition.minutes else ""
        for kind, jobs in _told(condition, size):
            ids = _open_ids(jobs)
            if ids:
                texts[f"{kind}:" + ":".join(f"{i}{suffix}" for i in ids)] = None
    return ",".join(texts) or None


def _told(condition: Dependency, size: int | None) -> Iterator[tuple[str, list[Job[Any]]]]:
    """The dependencies given to the scheduler; for some jobs only their ends, see `promised`."""
    kind = condition.kind
    if kind == "afternotok":
        for job in condition.jobs:
            yield "afternotok" if _fails_as_one(job) else "afterany", [*condition.elements_of(job)]
        return
    if kind == "aftercorr" and not all(_same_numbers(one, size) for one in condition.jobs):
        kind = "afterany"  # each element looks for the value of its counterpart, see `pair`
    unsure = condition.kind == "afterok"
    yield kind, [job for job in condition.elements() if not (unsure and _may_go_on(job))]
    yield "afterany", [job for job in condition.elements() if unsure and _may_go_on(job)]


def _fails_as_one(job: Job[Any] | ArrayJob[Any]) -> bool:
    """Whether Slurm's own `afternotok` is right: of a whole array it asks whether any has failed,
    and it may have forgotten elements that did so long ago."""
    members = job.members if isinstance(job, ArrayJob) else (job,)
    first = members[0] if members else None
    if first is None or (isinstance(job, ArrayJob) and len(job) != _length(first)):
        return False
    return all(
        one.run == first.run
        and one.key is not None
        and not _may_go_on(one)
        and not (one.settled and not one.succeeded)
        for one in members
    )


def _length(first: Job[Any]) -> int:
    """How many calls the Slurm array of a job has."""
    if first.packed is not None:
        whole = first.part is not None and first.part.size == len(first.packed.packs)
        return len(first.packed.states) if whole else -1
    return first.part.size if first.part is not None else 1


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
    if condition.kind == "afternotok":
        for job in condition.jobs:
            some = not isinstance(job, ArrayJob) or len(job) > 0
            if some and all(one.settled and one.succeeded for one in condition.elements_of(job)):
                raise _never(job, condition.kind, "succeeded", None)
    for element in condition.elements() if condition.kind == "afterok" else ():
        if element.settled and not element.succeeded:
            raise _never(element, condition.kind, "did not succeed", element.id)


def _never(
    job: Job[Any] | ArrayJob[Any], kind: str, ended: str, job_id: str | None
) -> errors.UpstreamFailed:
    return errors.UpstreamFailed(
        f"{job!r} {ended}, so a job that waits for it with {kind} can never run",
        hint="job.exception() says why" if kind == "afterok" else None,
        job_id=job_id,
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
    """Whether a job that looks what became of these may have to go behind another job: a retry of
    one, or what a workflow among them returned."""
    needs = condition.kind in (*_ENDS, "aftercorr")
    jobs = condition.elements() if needs else ()
    return any(job.carrier.again is not None or job.is_workflow for job in jobs)


def _may_go_on(job: Job[Any]) -> bool:
    """Whether the end of the Slurm job may not be the last word about a call.

    It may be retried, a workflow may have returned jobs that still run, and the job of an item of
    a packed map fails with any of its items.
    """
    again = job.again is not None or job.is_workflow or job.carrier is not job
    return again and not job.settled


def promised(conditions: Sequence[Dependency]) -> tuple[list[Job[Any]], list[Failed]]:
    """What the runner looks for because the scheduler cannot be sure of it: jobs that must have a
    value, and jobs and arrays of which one must have none.

    It is the same whatever became of them by now: a workflow's next attempt asks again.
    """
    for condition in conditions:
        for job in condition.given():
            job.sent()
    values = [
        job
        for condition in conditions
        if condition.kind == "afterok"
        for job in condition.given()
        if job.again is not None or job.is_workflow or job.carrier is not job
    ]
    failures = [
        Failed(tuple(_each(job)))
        for condition in conditions
        if condition.kind == "afternotok"
        for job in condition.jobs
        if _each(job)
    ]
    return values, failures


@dataclass(frozen=True)
class Failed:
    """Jobs of which at least one must have failed."""

    jobs: tuple[Job[Any], ...]
    #: The scheduler gets a weaker condition.
    paired = True

    def __slurm_reference__(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The runner looks whether any of these calls has no value, and none to come."""
        indexes: dict[str, list[int]] = {}
        for job in self.jobs:
            packed = job.packed
            items = (job.index,) if packed is None else packed.pack.items_of(job.index)
            indexes.setdefault(job.run, []).extend(items)
        return "failed", tuple((run, collapse_array_spec(some)) for run, some in indexes.items())


def _open_ids(jobs: Sequence[Job[Any]]) -> list[str]:
    """The ids to wait for: one per array where all of it is meant, not one per element."""
    ids: dict[str, None] = {}
    unsent: dict[str, list[int]] = {}
    arrays: dict[str, dict[int, Job[Any]]] = {}
    # Items of a packed map are waited for as the job that works on them.
    carriers = [job.carrier for job in jobs if job.carrier is job or not job.settled]
    for element in dict.fromkeys(carriers):
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
