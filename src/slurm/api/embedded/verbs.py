"""Carries out one request of a client on the scheduler: a JSON object in, a JSON value out."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Any

from slurm.api.embedded.environment import CLUSTER, PARTITION, node_list
from slurm.api.embedded.queue import KEEP_FINISHED_S, Batch, Job
from slurm.api.embedded.request import make_request
from slurm.api.embedded.scheduler import Scheduler
from slurm.api.embedded.waiting import NO_REASON
from slurm.api.sbatch_lines import BadRequest
from slurm.api.sbatch_values import MAX_ARRAY_SIZE

Message = dict[str, Any]

# How long an ended job stays in a status that names no job.
_RECENTLY_S = 3600


class Refused(Exception):
    """A request that is not carried out: the name of the client's error class, text and fix."""

    def __init__(self, error: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.hint = hint


def carry_out(scheduler: Scheduler, message: Message) -> Any:
    """Do what the message asks; raises Refused."""
    verb = VERBS.get(message.get("verb", ""))
    if verb is None:
        raise Refused("CommandRefused", f"unknown request {message.get('verb')!r}")
    return verb(scheduler, message)


def _submit(scheduler: Scheduler, message: Message) -> str:
    try:
        job_id = scheduler.submit(
            message["key"],
            message["script"],
            message["name"],
            message["environ"],
            message["cwd"],
            message["umask"],
        )
    except BadRequest as problem:
        there = scheduler.machine
        hint = (
            f"this machine gives {there.cpus} CPUs, {there.memory_mb} MiB of memory and "
            f"{there.gpus} GPUs; ask for less, or let it count as more when its scheduler starts: "
            "SLURM_SDK_EMBEDDED_CPUS=8 (_MEMORY_MB, _GPUS); or send the job to a cluster"
            if "not available" in str(problem)
            else None
        )
        raise Refused("SubmitRefused", str(problem), hint) from problem
    except (OSError, sqlite3.Error) as problem:
        raise Refused(
            "SubmitRefused",
            f"the job cannot be stored: {problem}",
            f"make room in {scheduler.files.directory}",
        ) from problem
    return str(job_id)


def _status(scheduler: Scheduler, message: Message) -> list[list[Any]]:
    wanted = [_parse_id(text) for text in message["ids"]]
    if not wanted:
        recent = scheduler.queue.ended_since(time.time() - _RECENTLY_S)
        wanted = [(batch, None) for batch in sorted({*scheduler.live, *recent})]
    live: dict[int, Job] = {}
    stored: list[tuple[int, int | None]] = []
    for job_id, index in wanted:
        found = _live_jobs(scheduler, job_id, index)
        live.update((job.id, job) for job in found)
        if not found:
            stored.append((job_id, index))
    head = scheduler.lanes.head()
    rows = [_live_row(scheduler, job, head) for job in live.values()]
    return rows + _stored_rows(scheduler, stored)


def _stored_rows(scheduler: Scheduler, wanted: list[tuple[int, int | None]]) -> list[list[Any]]:
    """Rows of batches that have ended altogether, in one go."""
    ids = sorted({job_id for job_id, _ in wanted})
    everything = {job_id for job_id, index in wanted if index is None}
    elements = set(wanted)
    jobs = {
        job.id: job
        for job in [*scheduler.queue.jobs_of(ids), *scheduler.queue.jobs(ids)]
        if job.batch in everything or job.id in everything or (job.batch, job.index) in elements
    }
    batches = {b.id: b for b in scheduler.queue.batches(sorted({j.batch for j in jobs.values()}))}
    nodes = {b.id: make_request(b.options, b.script_name, b.submit).nodes for b in batches.values()}
    return [
        _row(job, batches[job.batch], nodes[job.batch], job.reason)
        for job in jobs.values()
        if job.batch in batches
    ]


def _queue(scheduler: Scheduler, message: Message) -> list[list[Any]]:
    head = scheduler.lanes.head()
    return [
        _live_row(scheduler, job, head)
        for live in scheduler.live.values()
        for job in live.jobs.values()
        if job.end is None
    ]


def _live_row(scheduler: Scheduler, job: Job, head: int | None) -> list[Any]:
    live = scheduler.live[job.batch]
    reason = job.reason
    if job.id in scheduler.lanes:
        reason = "Resources" if job.id == head else "Priority"
        if live.full:
            reason = "JobArrayTaskLimit"
    return _row(job, live.batch, live.request.nodes, reason)


def _row(job: Job, batch: Batch, nodes: int, reason: str) -> list[Any]:
    """The fields of a JobStatus."""
    return [
        str(job.id) if job.index is None else f"{job.batch}_{job.index}",
        job.state,
        "" if reason == NO_REASON else reason,
        node_list(job.node, nodes) if job.node else "",
        job.exit_code,
        job.signal or None,
        batch.submit,
        job.start,
        job.end,
        job.restarts,
        batch.work_dir,
        batch.name,
    ]


def _cancel(scheduler: Scheduler, message: Message) -> None:
    scheduler.end_jobs(_unfinished(scheduler, message["ids"]), "CANCELLED", time.time())


def _signal(scheduler: Scheduler, message: Message) -> None:
    for job in _chosen(scheduler, message, "running", lambda job: job.state == "RUNNING"):
        scheduler.signal_job(job, int(message["signal"]), message["scope"])


def _requeue(scheduler: Scheduler, message: Message) -> None:
    jobs = _chosen(scheduler, message, "running", lambda job: job.pid is not None)
    for job in jobs:
        if not scheduler.live[job.batch].request.requeue:
            raise Refused(
                "CommandRefused",
                f"job {job.id} was submitted with --no-requeue",
                "submit it with --requeue (requeue=True)",
            )
    scheduler.end_jobs(jobs, "REQUEUED", time.time())


def _hold(scheduler: Scheduler, message: Message) -> None:
    for job in _chosen(scheduler, message, "pending", lambda job: job.state == "PENDING"):
        job.held = True
        scheduler.lanes.remove(job.id)
        scheduler.waiting.consider(job, time.time())


def _release(scheduler: Scheduler, message: Message) -> None:
    for job in _chosen(scheduler, message, "pending", lambda job: job.state == "PENDING"):
        job.held = False
        scheduler.lanes.remove(job.id)
        scheduler.waiting.consider(job, time.time())
        scheduler.queue.changed(job)


def _nodes(scheduler: Scheduler, message: Message) -> list[Message]:
    """One row with the keys of a Slurm node's, and the GPUs as numbers."""
    there, free = scheduler.machine, scheduler.free
    taken = min(there.cpus, there.cpus - free.cpus)
    return [
        {
            "name": scheduler.node,
            "state": "IDLE" if not taken else "MIXED" if free.cpus > 0 else "ALLOCATED",
            "cpus": there.cpus,
            "allocated_cpus": taken,
            "memory": there.memory_mb,
            "allocated_memory": there.memory_mb - free.memory_mb,
            "gres": f"gpu:{there.gpus}" if there.gpus else "",
            "features": [],
            "partitions": [PARTITION],
            "reason": "",
            "gpus": there.gpus,
            "allocated_gpus": there.gpus - free.gpus,
        }
    ]


def _partitions(scheduler: Scheduler, message: Message) -> list[Message]:
    """One row with the keys of a Slurm partition's."""
    there, free = scheduler.machine, scheduler.free
    busy = free.cpus < there.cpus
    return [
        {
            "name": PARTITION,
            "default": True,
            "available": "up",
            "time_limit": "infinite",
            "default_time": "",
            "allocated_nodes": int(busy),
            "idle_nodes": int(not busy),
            "other_nodes": 0,
            "nodes": 1,
            "allocated_cpus": min(there.cpus, there.cpus - free.cpus),
            "idle_cpus": max(0, free.cpus),
            "other_cpus": 0,
            "cpus": there.cpus,
        }
    ]


def _limits(scheduler: Scheduler, message: Message) -> Message:
    """Settings under their names in slurm.conf, as text."""
    return {
        "ClusterName": CLUSTER,
        "MaxArraySize": str(MAX_ARRAY_SIZE),
        "KillWait": f"{scheduler.kill_wait:g} sec",
        "MinJobAge": f"{KEEP_FINISHED_S} sec",
        "Instance": scheduler.queue.instance,
    }


def _chosen(
    scheduler: Scheduler, message: Message, state: str, fits: Callable[[Job], bool]
) -> list[Job]:
    """The jobs a request names that are in the right state; refused for an id without any."""
    chosen: list[Job] = []
    for text in message["ids"]:
        jobs = [job for job in _unfinished(scheduler, [text]) if fits(job)]
        if not jobs:
            raise Refused("CommandRefused", f"job {text} is not {state}")
        chosen += jobs
    return chosen


def _unfinished(scheduler: Scheduler, texts: Iterable[str]) -> list[Job]:
    jobs: dict[int, Job] = {}
    for text in texts:
        found = _live_jobs(scheduler, *_parse_id(text))
        jobs.update((job.id, job) for job in found if job.end is None)
    return list(jobs.values())


def _live_jobs(scheduler: Scheduler, job_id: int, index: int | None) -> list[Job]:
    live = scheduler.live.get(job_id)
    if live is None:
        job = scheduler.jobs.get(job_id)
        return [job] if job is not None and index is None else []
    if index is None:
        return list(live.jobs.values())
    return [live.jobs[index]] if index in live.jobs else []


def _parse_id(text: str) -> tuple[int, int | None]:
    match = re.fullmatch(r"(\d{1,18})(?:_(\d{1,9}))?(?:;\w+)?", str(text), re.ASCII)
    if match is None:
        raise Refused("CommandRefused", f"{text!r} is not a job id", "such as 17 or 17_3")
    return int(match[1]), None if match[2] is None else int(match[2])


VERBS: dict[str, Callable[[Scheduler, Message], Any]] = {
    "submit": _submit,
    "status": _status,
    "queue": _queue,
    "cancel": _cancel,
    "signal": _signal,
    "requeue": _requeue,
    "hold": _hold,
    "release": _release,
    "nodes": _nodes,
    "partitions": _partitions,
    "limits": _limits,
}
