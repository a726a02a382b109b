"""Batch: calls are collected and go out together, those of one task and layer as one array."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm.job import Job
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.function import context_parameter

if TYPE_CHECKING:
    from slurm.submission import Submitter


@dataclass(frozen=True)
class _Pending:
    """A call that was made and not submitted yet, and the jobs whose values it needs."""

    submitter: Submitter[..., Any]
    call: Call
    job: Job[Any]
    upstream: tuple[Job[Any], ...]


class Batch:
    """The calls of a `with cluster.batch():` block, or of a workflow until its first wait."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pending: list[_Pending] = []

    def add(self, submitter: Submitter[..., Any], call: Call) -> Job[Any]:
        """Keep a call for later; what cannot be sent is refused now."""
        function = submitter.task.unwrapped
        shipped = ship_arguments(function, [call], context_parameter(function))
        waits = [job for condition in submitter.after for job in condition.elements()]
        upstream = (*_elements(shipped.upstream), *waits)
        job: Job[Any] = Job(
            submitter.cluster,
            run="",
            job_id=None,
            name=submitter.task.name,
            options=dict(submitter.options),
            submitted=0.0,
            dependency=bool(upstream),
        )
        with self._lock:
            self._pending.append(_Pending(submitter, call, job, upstream))
        return job

    def send(self) -> None:
        """Submit all that was collected: layer by layer, so that each knows what it waits for."""
        with self._lock:
            pending, self._pending = self._pending, []
            for group in groups(pending):
                first = group[0].submitter
                same = len({frozenset(map(id, item.upstream)) for item in group}) == 1
                calls = [item.call if same else _strict(item) for item in group]
                first.send_calls(calls, [item.job for item in group], same)

    def give_up(self) -> None:
        """Submit nothing of it: the block raised."""
        with self._lock:
            pending, self._pending = self._pending, []
        for item in pending:
            item.job.give_up()


def groups(pending: list[_Pending]) -> list[list[_Pending]]:
    """The calls of one task, with the same options and in the same layer, together."""
    layers = _layers(pending)
    found: dict[str, list[_Pending]] = {}
    for item in pending:
        one = item.submitter
        key = (
            layers[id(item.job)],
            id(one.task.unwrapped),
            repr(sorted(one.options.items(), key=str)),
            one.packaging,
            # Only afterok can be judged by each element for itself.
            [(c.kind, c.minutes, id(item)) for c in one.after if c.kind != "afterok"],
        )
        found.setdefault(repr(key), []).append(item)
    return sorted(found.values(), key=lambda group: layers[id(group[0].job)])


def _layers(pending: list[_Pending]) -> dict[int, int]:
    """Each job's layer: one more than the highest layer it waits for within the batch.

    A call can only name jobs that were made before it, so one pass in order is enough and there
    can be no circle.
    """
    layers: dict[int, int] = {}
    for item in pending:
        below = [layers[id(job)] for job in item.upstream if id(job) in layers]
        layers[id(item.job)] = 1 + max(below, default=-1)
    return layers


def _strict(item: _Pending) -> Call:
    """The call with all that must have succeeded before it, for its element to look after."""
    waits = tuple(job for condition in item.submitter.after for job in condition.elements())
    return Call(item.call.args, item.call.kwargs, waits)


def _elements(jobs: Iterable[Any]) -> Iterable[Job[Any]]:
    for job in jobs:
        yield from job if not isinstance(job, Job) else (job,)
