"""Snapshot: all that one collection found, as a value; nobody changes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm.api.slurm_site import PartitionStatus
from slurm.monitor.controller import Controller
from slurm.monitor.nodes import NodeRow
from slurm.monitor.queue import JobRow
from slurm.monitor.sharing import Licence, Reservation, Share


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment."""

    #: When it was taken, epoch seconds of this machine: to show, never to reckon with.
    taken: float
    #: By the text they came as, so that the next collection finds what has not changed.
    rows: Mapping[str, JobRow] = field(default_factory=dict, repr=False)
    nodes: tuple[NodeRow, ...] = ()
    partitions: tuple[PartitionStatus, ...] = ()
    controller: Controller = field(default_factory=Controller)
    shares: tuple[Share, ...] = ()
    licences: tuple[Licence, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    #: Seconds that accounting is behind; None where there is no accounting.
    accounting_lag: float | None = None
    #: How many seconds older than the rest the shares, licences and reservations are.
    older: Mapping[str, float] = field(default_factory=dict)
    #: Rows that could not be read, by the command that printed them.
    unreadable: Mapping[str, int] = field(default_factory=dict)

    @property
    def jobs(self) -> Mapping[str, JobRow]:
        """The jobs by id."""
        return {row.job_id: row for row in self.rows.values()}

    @property
    def version(self) -> str:
        """The version that most nodes say they have; "" where none has."""
        versions = [node.version for node in self.nodes if node.version[:1].isdigit()]
        return max(set(versions), key=versions.count) if versions else ""
