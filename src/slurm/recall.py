"""Finds what an earlier attempt of a workflow has submitted: no call goes out twice, none is lost.

Each call has a name that the next attempt gives it again: the task, the content of the arguments,
and its number among equal calls. The journal says in which run the call of a name went out. So it
does not matter which calls went out together then, and which would today.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.job import Job
from slurm.metadata import read_metadata

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.journal import Entry, Journal
    from slurm.packaging.arguments import Call
    from slurm.packed_run import PackedRun


#: In a pickle that holds classes or functions by value: classes get random ids there.
_BY_VALUE = b"cloudpickle"


def target_name(function: Any, target: str) -> str:
    """What stands for the function in the name of a call: a closure and an object have content."""
    if isinstance(function, types.FunctionType) and not function.__closure__:
        return target
    with contextlib.suppress(Exception):  # pickles objects of any class
        return f"{target} {hashlib.blake2b(_steady(function), digest_size=12).hexdigest()}"
    return target


def call_content(
    calls: Sequence[Call],
    common: Mapping[str, Any],
    shipped: Sequence[rundir.Content],
    refer: Callable[[Any], Any] | None = None,
) -> Sequence[rundir.Content]:
    """The bytes that tell calls apart, the same in each process; `shipped` is how they travel.

    `refer` says what stands for a Job.
    """
    if not any(rundir.names(blob, _BY_VALUE) for blob in shipped):
        return shipped
    try:
        values = [(list(call.args), dict(call.kwargs)) for call in calls]
        return (_steady((values, dict(common)), refer),)
    except Exception:  # noqa: BLE001 - pickles objects of any class
        return shipped


def _steady(value: Any, refer: Callable[[Any], Any] | None = None) -> bytes:
    """A value as bytes for comparison only: classes count by their names."""
    from slurm.runner import wrapped

    class Pickler(wrapped.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            find = getattr(type(obj), "__slurm_reference__", None)
            if find is None:
                return None
            return find(obj) if refer is None else refer(obj)

        def reducer_override(self, obj: Any) -> Any:
            made = super().reducer_override(obj)
            if made is NotImplemented or not isinstance(obj, type):
                return made
            return str, (f"{obj.__module__}:{obj.__qualname__}",)

    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def name_call(cluster: Cluster, target: str, content: Iterable[rundir.Content]) -> str | None:
    """The name of a call that is made now; None outside of workflows."""
    journal = cluster._journal
    return None if journal is None else journal.name(target, content)


def name_of(cluster: Cluster, job: Job[Any]) -> str:
    """What stands for a job in the content of another call."""
    if job.call_name is not None:
        return job.call_name
    if job.kept is not None:
        return f"#{id(job)}"  # outside of workflows names last as long as the process
    journal = cluster._journal
    name = None if journal is None else journal.name_at(job.run, job.index)
    return name or f"{job.run}:{job.index}"


def recall_call(job: Job[Any]) -> bool:
    """Let a call that was kept be what an earlier attempt submitted for it, if it did."""
    journal = job.cluster._journal
    place = None if journal is None or job.call_name is None else journal.find(job.call_name)
    if journal is None or place is None:
        return False
    jobs = recall_run(job.cluster, journal, place[0])
    if jobs is None:
        return False
    job.take_place(jobs[place[1]])
    journal.keep_one(job)
    job.watch()
    return True


def recall_each(cluster: Cluster, names: Sequence[str]) -> dict[int, Job[Any]]:
    """The jobs of those calls that an earlier attempt has submitted, by position."""
    journal = cluster._journal
    found: dict[int, Job[Any]] = {}
    for position, name in enumerate(names):
        place = None if journal is None else journal.find(name)
        if journal is None or place is None:
            continue
        jobs = recall_run(cluster, journal, place[0])
        if jobs is not None:
            found[position] = items_of(jobs)[place[1]]
            found[position].watch()
    return found


def recall_places(cluster: Cluster, names: Sequence[str]) -> dict[int, tuple[PackedRun, int]]:
    """The same for items of a packed map: the run of each, and its index there."""
    journal = cluster._journal
    found: dict[int, tuple[PackedRun, int]] = {}
    for position, name in enumerate(names):
        place = None if journal is None else journal.find(name)
        if journal is None or place is None:
            continue
        jobs = recall_run(cluster, journal, place[0])
        if jobs is not None:
            found[position] = (jobs[0].packed, place[1])
    return found


def once(
    cluster: Cluster,
    target: str,
    content: Callable[[], Sequence[rundir.Content]],
    submit: Callable[[Sequence[str]], list[Job[Any]]],
) -> list[Job[Any]]:
    """Submit a map, unless an earlier attempt of the workflow around it has."""
    journal = cluster._journal
    if journal is None:
        return submit(())
    name = journal.name(f"{target}*", content())
    place = journal.find(name)
    jobs = None if place is None else recall_run(cluster, journal, place[0])
    if jobs is None:
        return submit((name,))
    for job in jobs:
        job.watch()
    return jobs


def recall_run(cluster: Cluster, journal: Journal, entry: Entry) -> list[Job[Any]] | None:
    """The jobs of a run that is in the journal; None: its sender died before it was submitted."""
    from slurm.handles import make_jobs

    jobs = journal.jobs(entry.run)
    if jobs is None:
        ids = cluster.backend.recall(entry.run)
        if ids is None:
            journal.strike(entry)
            return None
        metadata = read_metadata(cluster.backend.read(entry.run, rundir.METADATA))
        jobs = make_jobs(cluster, entry.run, metadata, ids)
        journal.keep(entry.run, jobs)
    return jobs


def items_of(jobs: list[Job[Any]]) -> Sequence[Job[Any]]:
    """The calls of a run: of a packed one its items, not the jobs that they share."""
    packed = jobs[0].packed if jobs else None
    return jobs if packed is None else packed.array()
