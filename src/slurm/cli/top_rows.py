"""What `slurm top` shows, as plain rows: jobs with their arrays folded, and nodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm.callbacks.progress import clock

if TYPE_CHECKING:
    from slurm.api.slurm_commands import JobStatus
    from slurm.cluster import Cluster


@dataclass(frozen=True)
class JobRow:
    """One line of the list of jobs: a job, an element of an array, or a folded array."""

    job_id: str
    name: str
    state: str
    time: str
    nodes: str
    reason: str
    #: The folder of the run; "" where the job is not one of ours.
    run: str
    is_array: bool = False
    is_element: bool = False


@dataclass(frozen=True)
class NodeRow:
    """One line of the list of nodes."""

    name: str
    state: str
    cpus: str
    memory: str
    gpus: str
    reason: str


@dataclass(frozen=True)
class Look:
    """What was seen at one moment; `trouble` says why it is old or empty."""

    jobs: Sequence[JobStatus] = ()
    nodes: Sequence[NodeRow] = ()
    trouble: str = ""


def look(cluster: Cluster) -> Look:
    """Ask the scheduler once for the jobs and once for the nodes."""
    return Look(cluster.queue(), [node_row(node) for node in cluster.backend.nodes()])


def job_rows(
    jobs: Iterable[JobStatus], unfolded: Collection[str] = (), now: float | None = None
) -> list[JobRow]:
    """The lines of the list: an array is one line, and its elements where it is unfolded."""
    present = time.time() if now is None else now
    arrays: dict[str, list[JobStatus]] = {}
    for job in jobs:
        arrays.setdefault(job.job_id.partition("_")[0], []).append(job)
    rows: list[JobRow] = []
    for number, members in sorted(arrays.items(), key=lambda item: -_number(item[0])):
        if len(members) == 1 and "_" not in members[0].job_id:
            rows.append(_row(members[0], present))
            continue
        rows.append(_folded(number, members, present))
        if number in unfolded:
            members.sort(key=lambda one: _number(one.job_id.partition("_")[2]))
            rows += [_row(one, present, is_element=True) for one in members]
    return rows


def _row(job: JobStatus, now: float, is_element: bool = False) -> JobRow:
    return JobRow(
        job_id=job.job_id,
        name=job.name,
        state=job.state,
        time=clock(now - job.start) if job.start else "",
        nodes=job.nodes,
        reason=job.reason,
        run=job.work_dir,
        is_element=is_element,
    )


def _folded(number: str, members: Sequence[JobStatus], now: float) -> JobRow:
    counts = Counter(one.state for one in members)
    starts = [one.start for one in members if one.start]
    first = members[0]
    return JobRow(
        job_id=number,
        name=first.name,
        state=", ".join(f"{n} {state.lower()}" for state, n in counts.most_common()),
        time=clock(now - min(starts)) if starts else "",
        nodes=str(len({one.nodes for one in members if one.nodes}) or ""),
        reason=next((one.reason for one in members if one.reason), ""),
        run=first.work_dir,
        is_array=True,
    )


def node_row(node: Mapping[str, Any]) -> NodeRow:
    """A node as the scheduler describes it, in a few letters."""
    used, memory = node.get("allocated_memory") or 0, node.get("memory") or 0
    return NodeRow(
        name=str(node["name"]),
        state=str(node["state"]),
        cpus=f"{node.get('allocated_cpus', 0)}/{node.get('cpus', 0)}",
        memory=f"{used / 1024:.1f}/{memory / 1024:.1f} GiB",
        gpus=str(node.get("gres") or ""),
        reason=str(node.get("reason") or ""),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
