"""The embedded scheduler as a source: the same snapshots, out of its own lists."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from slurm.api.looking import Looking
from slurm.api.slurm_commands import JobStatus
from slurm.api.slurm_site import PartitionStatus
from slurm.model.states import parse_state
from slurm.monitor.nodes import Gres, NodeRow
from slurm.monitor.nodes import parse_state as parse_node_state
from slurm.monitor.queue import JobRow
from slurm.monitor.sharing import Sharing
from slurm.monitor.snapshot import Snapshot

#: So many seconds a job that has ended stays: Slurm's MinJobAge.
ENDED = 300


class EmbeddedSource:
    """Asks the embedded scheduler, which has none of Slurm's commands."""

    def __init__(self, backend: Looking) -> None:
        self._backend = backend
        self._user = _user()
        self.calls = 0

    def often(self, before: Snapshot | None) -> Snapshot:
        """Jobs, this machine as a node, and its one partition."""
        self.calls += 3
        parts = tuple(PartitionStatus(**part) for part in self._backend.partitions())
        name, now = parts[0].name, time.time()
        return Snapshot(
            taken=now,
            rows={repr(job): job_row(job, self._user, name) for job in shown(self._backend, now)},
            nodes=tuple(node_row(node) for node in self._backend.nodes()),
            partitions=parts,
        )

    def seldom(self, snapshot: Snapshot) -> Sharing:
        """Nobody shares it."""
        return Sharing()


def shown(backend: Looking, now: float) -> list[JobStatus]:
    """What Slurm's queue would show: open jobs and what ended just now; of an array all or none."""
    jobs = backend.recent()
    live = {_batch(job) for job in jobs if job.end is None or job.end >= now - ENDED}
    return [job for job in jobs if _batch(job) in live]


def _batch(job: JobStatus) -> str:
    return job.job_id.partition("_")[0]


def job_row(job: JobStatus, user: str, partition: str) -> JobRow:
    """A job of the embedded scheduler as the queue shows it."""
    state = parse_state(job.state)
    waits = state.phase == "pending"
    return JobRow(
        job_id=job.job_id,
        state=state.value,
        phase=state.phase,
        reason=job.reason if waits else "",
        user=user,
        account="",
        partition=partition,
        qos="",
        cpus=0,
        nodes=0 if waits else 1,
        memory=0,
        gpus=0,
        submit=_whole(job.submit),
        eligible=None,
        start=_whole(job.start),
        end=_whole(job.end),
        limit=None,
        priority=0,
        restarts=job.restarts,
        node_list=job.nodes,
        name=job.name,
        tasks=1,
    )


def node_row(node: Mapping[str, Any]) -> NodeRow:
    """This machine as a node."""
    state, flags = parse_node_state(str(node["state"]))
    cards, used = int(node.get("gpus") or 0), int(node.get("allocated_gpus") or 0)
    return NodeRow(
        name=str(node["name"]),
        state=state,
        flags=flags,
        cpus=int(node["cpus"]),
        allocated_cpus=int(node["allocated_cpus"]),
        idle_cpus=int(node["cpus"]) - int(node["allocated_cpus"]),
        load=None,
        memory=int(node["memory"]) << 20,
        allocated_memory=int(node["allocated_memory"]) << 20,
        free_memory=None,
        gres=(Gres("gpu", "", cards, used),) if cards else (),
        version="",
        reason=str(node.get("reason") or ""),
        since=None,
        partitions=tuple(node.get("partitions") or ()),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _user() -> str:
    import getpass

    try:
        return re.sub(r"\s", "_", getpass.getuser())
    except (KeyError, OSError):
        return ""
