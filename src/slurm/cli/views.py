"""`slurm queue`, `slurm nodes`, `slurm partitions`: the whole cluster at a glance."""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from slurm.api.looking import Looking
from slurm.cli.frame import COMMON, Answer, Common
from slurm.cli.screen import Column, Screen, bar, span, table

Row = TypeVar("Row")


def _rows(kind: type[Row], found: list[dict[str, Any]]) -> list[Row]:
    """The rows of an answer, out of the agent's dictionaries; what we do not show is left out."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return [kind(**{name: row.get(name) for name in names}) for row in found]


@dataclass(frozen=True)
class QueueRow:
    """One job in the queue; the waiting rest of an array is one row."""

    job_id: Annotated[str, "Its id."]
    state: Annotated[str, "Its state."]
    user: Annotated[str, "Whose it is."]
    partition: Annotated[str, "Where it is."]
    cpus: Annotated[int | None, "CPUs that it has or asks for."]
    nodes: Annotated[int, "Nodes that it has or asks for."]
    elapsed: Annotated[int, "Seconds that it has run."]
    time_limit: Annotated[int | None, "Seconds that it may run; null: no limit."]
    priority: Annotated[int | None, "Its priority."]
    where: Annotated[str, "Its nodes, or the reason why it waits."]
    name: Annotated[str, "Its name."]


@dataclass(frozen=True)
class QueueShown(Answer):
    """The jobs in the queue."""

    jobs: Annotated[list[QueueRow], "The jobs, running ones first."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """A table and a sum."""
        columns = (
            Column("JOB"),
            Column("STATE", is_state=True),
            Column("USER", spare=2),
            Column("NAME", spare=1),
            Column("PARTITION", spare=5),
            Column("CPUS", right=True, spare=3),
            Column("TIME", right=True, spare=4),
            Column("LEFT", right=True, spare=6),
            Column("WHERE OR WHY", spare=7),
        )
        rows = [
            (
                job.job_id,
                job.state,
                job.user,
                job.name,
                job.partition,
                job.cpus,
                span(job.elapsed) if job.elapsed else "",
                span(job.time_limit - job.elapsed) if job.time_limit and job.elapsed else "",
                job.where,
            )
            for job in self.jobs
        ]
        if rows:
            yield from table(columns, rows, screen)
        counts = Counter(job.state for job in self.jobs)
        total = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
        yield screen.paint(total or "the queue is empty", "grey")


def queue(
    *,
    mine: Annotated[bool, Parameter(negative="", help="Only my own jobs.")] = False,
    partition: Annotated[str | None, Parameter(help="Only this partition.")] = None,
    common: Common = COMMON,
) -> QueueShown:
    """Show the jobs in the queue, everybody's, running ones first."""
    backend = common.backend()
    jobs = _rows(QueueRow, backend.all_jobs())
    user = _user_of(backend) if mine else None
    kept = [
        job
        for job in jobs
        if user in (None, job.user) and partition in (None, *job.partition.split(","))
    ]
    kept.sort(key=lambda job: (job.state != "RUNNING", -(job.priority or 0)))
    return QueueShown(kept)


def _user_of(backend: Looking) -> str:
    """Who I am there."""
    if backend.kind != "ssh":
        return getpass.getuser()
    return str(backend.hello()["user"])


@dataclass(frozen=True)
class NodeRow:
    """One node."""

    name: Annotated[str, "Its name."]
    state: Annotated[str, "Slurm's words for its state."]
    cpus: Annotated[int, "CPUs that it has."]
    allocated_cpus: Annotated[int, "CPUs that jobs have."]
    memory: Annotated[int, "MiB that it has."]
    allocated_memory: Annotated[int, "MiB that jobs have."]
    gres: Annotated[str, "GPUs and other devices."]
    partitions: Annotated[list[str], "Its partitions."]
    reason: Annotated[str, "Why it is drained or down."]


@dataclass(frozen=True)
class NodesShown(Answer):
    """The nodes of the cluster."""

    nodes: Annotated[list[NodeRow], "The nodes."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """A table."""
        columns = (
            Column("NODE"),
            Column("STATE"),
            Column("CPUS", spare=2),
            Column("MEMORY", spare=3),
            Column("GPUS", spare=4),
            Column("PARTITIONS", spare=5),
            Column("REASON", spare=1),
        )
        rows = [
            (
                node.name,
                node.state.lower(),
                f"{bar(node.allocated_cpus, node.cpus)} {node.allocated_cpus}/{node.cpus}",
                f"{bar(node.allocated_memory, node.memory)} "
                f"{node.allocated_memory / 1024:.0f}/{node.memory / 1024:.0f}G",
                node.gres,
                ",".join(node.partitions),
                node.reason,
            )
            for node in self.nodes
        ]
        yield from table(columns, rows, screen)


def nodes(*, common: Common = COMMON) -> NodesShown:
    """Show the nodes: how full they are, and why some are not there."""
    return NodesShown(_rows(NodeRow, common.backend().nodes()))


@dataclass(frozen=True)
class PartitionRow:
    """One partition."""

    name: Annotated[str, "Its name."]
    default: Annotated[bool, "Whether jobs go there that name none."]
    available: Annotated[str, "up, down, drain or inact."]
    time_limit: Annotated[str, "The longest time of a job, in Slurm's form."]
    default_time: Annotated[str, "What a job gets that asks for none; empty: the limit."]
    nodes: Annotated[int, "Nodes that it has."]
    idle_nodes: Annotated[int, "Nodes that are free."]
    other_nodes: Annotated[int, "Nodes that are down or drained."]
    cpus: Annotated[int, "CPUs that it has."]
    allocated_cpus: Annotated[int, "CPUs that jobs have."]
    idle_cpus: Annotated[int, "CPUs that are free."]


@dataclass(frozen=True)
class PartitionsShown(Answer):
    """The partitions of the cluster."""

    partitions: Annotated[list[PartitionRow], "The partitions."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """A table."""
        columns = (
            Column("PARTITION"),
            Column("STATE"),
            Column("CPUS", spare=1),
            Column("FREE", right=True, spare=2),
            Column("NODES FREE", right=True, spare=3),
            Column("TIME LIMIT", right=True, spare=4),
        )
        rows = [
            (
                one.name + ("*" if one.default else ""),
                one.available,
                f"{bar(one.allocated_cpus, one.cpus)} {one.allocated_cpus}/{one.cpus}",
                one.idle_cpus,
                f"{one.idle_nodes}/{one.nodes}",
                one.time_limit,
            )
            for one in self.partitions
        ]
        yield from table(columns, rows, screen)


def partitions(*, common: Common = COMMON) -> PartitionsShown:
    """Show the partitions: how full they are, and their limits."""
    return PartitionsShown(_rows(PartitionRow, common.backend().partitions()))
