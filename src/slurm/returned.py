"""The jobs that a workflow returned: its future waits for them and takes their values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slurm import locks, rundir
from slurm.model.ids import collapse_array_spec, expand_array_spec
from slurm.runner.values import loads
from slurm.threads import begin

if TYPE_CHECKING:
    from slurm.job import Job

#: The field of a value's record that names the jobs whose values belong into it.
WAITS = "waits"


# ---- in the workflow ----------------------------------------------------------------------------


def pack(value: Any) -> tuple[dict[str, Any], rundir.Content]:
    """The header and the payload of a workflow's value; Jobs in it stand as references."""
    from slurm.packaging.arguments import pickle_with_references

    payload, jobs = pickle_with_references(value)
    indexes: dict[str, list[int]] = {}
    for job in elements(jobs):
        indexes.setdefault(job.run, []).append(job.index)
    waits = {run: collapse_array_spec(found) for run, found in indexes.items()}
    # An array of no calls is waited for as well, if only to be put in its place.
    return ({WAITS: waits} if jobs else {}), payload


def elements(jobs: Any) -> list[Job[Any]]:
    """Every single job of jobs and arrays."""
    from slurm.job import Job

    return [one for job in jobs for one in ((job,) if isinstance(job, Job) else job)]


def resolve(value: Any) -> Any:
    """The value with each Job in it, at any depth, replaced by its own value; waits for them."""
    from slurm.packaging.arguments import pickle_with_references

    payload, jobs = pickle_with_references(value)
    if not jobs:
        return value
    by_place = {(job.run, job.index): job for job in elements(jobs)}
    return load(payload, lambda run, index: by_place[run, index].result())


def load(payload: Any, find: Callable[[str, int], Any], own: bool = False) -> Any:
    """Unpickle a value; `find` gives the value of the call `index` of a run."""

    def place(pid: Any) -> Any:
        if pid[0] == "job":
            return find(pid[1], pid[2])
        if pid[0] == "array":
            return [find(run, index) for run, index in pid[1]]
        raise pickle.UnpicklingError(f"unknown reference {pid[0]!r} in a workflow's value")

    return loads(payload, find=place, own=own)


# ---- in the client ------------------------------------------------------------------------------


class Returned:
    """Follows the jobs that a workflow returned until all are over."""

    def __init__(self, job: Job[Any], waits: Mapping[str, str]) -> None:
        self._job = job
        self._waits = waits
        self._lock = locks.lock("returned")
        self._open = 1  # one for the search itself
        self._trouble: BaseException | None = None
        self.complete = False
        self.jobs: dict[tuple[str, int], Job[Any]] = {}

    def follow(self) -> None:
        """Find the jobs and be told of their ends, on a thread of its own: this asks the backend,
        and whoever calls holds the watcher's lock."""
        begin(self._search, "slurm-returned")

    def look(self) -> None:
        """Read the runs of those that are not over."""
        for job in list(self.jobs.values()):
            job.done()

    def _search(self) -> None:
        from slurm.attaching import jobs_of_run

        try:
            for run, spec in self._waits.items():
                wanted = set(expand_array_spec(spec))
                found = [j for j in jobs_of_run(self._job.cluster, run) if j.index in wanted]
                self.jobs.update({(job.run, job.index): job for job in found})
                with self._lock:
                    self._open += len(found)
                for job in found:
                    job.when_settled(self._one_is_over)
                    job.watch()
            self.complete = True
        except Exception as error:  # noqa: BLE001 - it becomes what result() raises
            self._trouble = error
        self._one_is_over()

    def _one_is_over(self) -> None:
        with self._lock:
            self._open -= 1
            over = self._open == 0
        if over:
            self._job.finish(self.succeeded)

    @property
    def succeeded(self) -> bool:
        """Whether all have a value."""
        return self._trouble is None and all(job.succeeded for job in self.jobs.values())

    def error(self) -> BaseException | None:
        """What the first that has no value raises."""
        if self._trouble is not None:
            return self._trouble
        for job in self.jobs.values():
            error = job.outcome()[1]
            if error is not None:
                return error
        return None

    def loads(self, payload: Any, own: bool = False) -> Any:
        """The workflow's value with theirs in it; none of them may have failed."""
        return load(payload, lambda run, index: self.jobs[run, index].outcome()[0], own)
