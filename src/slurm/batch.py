"""Batch: calls are collected and go out together, those of one task and layer as one array."""

from __future__ import annotations

import contextvars
import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from slurm import errors, locks
from slurm.cache import Draft, draft_of
from slurm.content.premises import Premises, all_of
from slurm.job import Job
from slurm.kept import KeptCall
from slurm.packaging.arguments import Call
from slurm.recall import name_call, name_of, recall_call, target_name
from slurm.threads import begin

if TYPE_CHECKING:
    from slurm.submission import Submitter
    from slurm.target import Target

#: What a workflow has collected goes out when so many seconds have passed without another call,
#: or since the first one: its function may wait in a way that nobody can see.
QUIET, LONGEST = 0.5, 10.0

log = logging.getLogger("slurm")


@dataclass(frozen=True)
class _Pending:
    """A call that was made and not submitted yet, and the jobs whose values it needs."""

    submitter: Submitter[..., Any]
    kept: KeptCall
    job: Job[Any]
    upstream: tuple[Job[Any], ...]
    #: The key of the call as it was made, and the files that it speaks of.
    draft: Draft | None
    premises: Premises


class Batch:
    """The calls of a `with cluster.batch():` block, or of a workflow until its first wait.

    `patient=False` is for workflows: what was collected goes out after a while by itself.
    """

    def __init__(self, *, patient: bool = True) -> None:
        #: Guards what follows; never held during a submission.
        self._lock = locks.lock("batch")
        #: Whether its block is over, or belongs to the process that this one was forked from.
        self.closed = False
        self._pending: list[_Pending] = []
        self._prepared: dict[Any, tuple[Any, Submitter[..., Any]]] = {}
        self._patient = patient
        self._timer: threading.Thread | None = None
        self._first = self._last = 0.0
        self._turn = locks.rlock("batch.turn")  # held by the thread that submits
        self._sending = False

    def add(self, submitter: Submitter[..., Any], call: Call) -> Job[Any] | None:
        """Keep a call for later; what cannot be sent is refused now.

        None where the block was over meanwhile, in another thread or task.
        """
        cluster = submitter.cluster
        code = submitter.ship_function(self._prepare(submitter))
        draft, premises = draft_of(submitter, call, code.prepared)
        kept = KeptCall(submitter, call, code, lambda job: name_of(cluster, job))
        waits = [job for condition in submitter.after for job in condition.elements()]
        upstream = (*kept.upstream, *waits)
        job: Job[Any] = Job(
            cluster,
            run="",
            job_id=None,
            name=submitter.task.name,
            options=dict(submitter.options),
            submitted=0.0,
            dependency=bool(upstream),
            workflow=submitter.task.is_workflow,
        )
        if cluster._journal is not None:
            target = target_name(submitter.task.unwrapped, kept.code.function.target)
            job.call_name = name_call(cluster, target, kept.content)
        job.kept = self
        with self._lock:
            if self.closed:
                return None
            self._last = time.monotonic()
            self._first = self._first if self._pending else self._last
            self._pending.append(_Pending(submitter, kept, job, upstream, draft, premises))
            if self._timer is None and not self._patient:
                self._timer = begin(self._send_in_time, "slurm-batch")
        return job

    def send(self) -> None:
        """Submit all that was collected: layer by layer, so that each knows what it waits for.

        The jobs of a group that is refused end with the refusal; the first one is raised here,
        after all others were submitted.
        """
        trouble: Exception | None = None
        with self._turn:
            if self._sending:
                return  # the submission itself looks at a job
            self._sending = True
            try:
                for group in self._take():
                    try:
                        _send_group(group)
                    except Exception as error:  # noqa: BLE001 - raised below, when all are through
                        trouble = trouble or error
                        for item in group:
                            item.job.refuse(error)
            finally:
                self._sending = False
        if trouble is not None:
            raise trouble

    def _take(self) -> list[list[_Pending]]:
        with self._lock:
            pending, self._pending = self._pending, []
            self._prepared = {}
        return groups(pending)

    def _prepare(self, submitter: Submitter[..., Any]) -> Any:
        """How Python starts for a call: the same for all calls of a task, and slow to find out."""
        key = (id(submitter.cluster), id(submitter.task.unwrapped), _shape(submitter))
        with self._lock:
            found = self._prepared.get(key)
        if found is None:
            # The submitter keeps alive what the key is made of.
            found = (submitter.prepare(), submitter)
            with self._lock:
                self._prepared[key] = found
        return found[0]

    def _send_in_time(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._timer = None
                    return
                due = min(self._last + QUIET, self._first + LONGEST) - time.monotonic()
            if due > 0:
                time.sleep(due)
                continue
            try:
                self.send()
            except Exception as error:  # noqa: BLE001 - the jobs themselves raise it where they are
                log.warning("slurm: calls could not be submitted: %s", error)

    def close(self) -> None:
        """Take no more calls."""
        with self._lock:
            self.closed = True

    def give_up(self) -> None:
        """Submit nothing of it: the block raised."""
        with self._lock:
            pending, self._pending = self._pending, []
        for item in pending:
            item.job.give_up()

    def forget(self) -> None:
        """In a forked child: what was collected is the parent's to submit."""
        self.closed, self._timer, self._sending = True, None, False
        pending, self._pending = self._pending, []
        for item in pending:
            item.job.refuse(
                errors.UsageError(
                    f"{item.job.name} was collected in a batch of the process that forked this "
                    "one, and is submitted there",
                    hint="fork before the batch or after it",
                )
            )


# ---- the batches of `with cluster.batch():` -----------------------------------------------------

#: The open blocks around this code; other threads and tasks have their own.
_blocks: contextvars.ContextVar[tuple[tuple[Target, Batch], ...]] = contextvars.ContextVar(
    "slurm-batches", default=()
)
#: What a forked child must not submit once more.
_open: WeakSet[Batch] = WeakSet()


def open_batch(cluster: Target) -> Batch | None:
    """The batch of this cluster that this code is in."""
    for owner, batch in _blocks.get():
        if owner is cluster and not batch.closed:
            return batch
    return None


@contextmanager
def collected(cluster: Target) -> Iterator[None]:
    """Collect the calls that the block makes to a cluster, and submit them at its end."""
    batch = Batch()
    _open.add(batch)
    _blocks.set((*_blocks.get(), (cluster, batch)))
    try:
        yield
    except BaseException:  # raised again; nothing of the block is submitted
        batch.close()
        batch.give_up()
        raise
    else:
        batch.close()
        batch.send()
    finally:
        _blocks.set(tuple(one for one in _blocks.get() if one[1] is not batch))


def _forget_after_fork() -> None:
    for batch in list(_open):
        batch.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


# ---- groups -------------------------------------------------------------------------------------


def _send_group(group: list[_Pending]) -> None:
    # What an earlier attempt of the workflow has submitted is there, whatever group it went in.
    group = [item for item in group if not recall_call(item.job)]
    if not group:
        return
    first, large = group[0], dict[str, Any]()
    same = len({frozenset(map(id, item.upstream)) for item in group}) == 1
    calls = [item.kept.call(large) for item in group]
    if not same:
        calls = [_strict(item, call) for item, call in zip(group, calls, strict=True)]
    keys = [item.draft and item.draft.key for item in group]
    premises = all_of(item.premises for item in group)
    jobs = [item.job for item in group]
    first.submitter.send_calls(calls, jobs, same, first.kept.code, (keys, premises))


def groups(pending: list[_Pending]) -> list[list[_Pending]]:
    """The calls of one task, with the same options and in the same layer, together."""
    layers = _layers(pending)
    found: dict[str, list[_Pending]] = {}
    for item in pending:
        one = item.submitter
        key = (
            layers[id(item.job)],
            id(one.cluster),
            hashlib.blake2b(item.kept.code.function.data).hexdigest(),
            _shape(one),
            item.premises,
            # Only afterok can be judged by each element for itself.
            [(c.kind, c.minutes, id(item)) for c in one.after if c.kind != "afterok"],
        )
        found.setdefault(repr(key), []).append(item)
    return sorted(found.values(), key=lambda group: layers[id(group[0].job)])


def _shape(submitter: Submitter[..., Any]) -> str:
    """What the calls of one array have in common besides the function."""
    return repr((submitter.packaging, sorted(submitter.options.items(), key=str)))


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


def _strict(item: _Pending, call: Call) -> Call:
    """The call with all that must have succeeded before it, for its element to look after."""
    waits = tuple(job for condition in item.submitter.after for job in condition.elements())
    return Call(call.args, call.kwargs, waits)
