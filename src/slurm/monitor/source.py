"""Where a snapshot comes from: Slurm's commands, slurmrestd, or the embedded scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from slurm.api.agent_error import AgentError
from slurm.api.looking import Looking, OnlyLooks, as_error, scheduler_of
from slurm.api.rest_scheduler import RestScheduler
from slurm.api.slurm_rows import UnreadableAnswer
from slurm.api.slurm_site import PartitionStatus, parse_partitions, sinfo_command
from slurm.errors import SchedulerUnreachable, UsageError
from slurm.monitor import controller, nodes, queue, sharing
from slurm.monitor.embedded import EmbeddedSource
from slurm.monitor.rest import RestSource
from slurm.monitor.sharing import Sharing
from slurm.monitor.snapshot import Snapshot

#: Seconds that one command may take; and one of those that are asked seldom.
PATIENCE = 60.0
SHORT_PATIENCE = 20.0


#: What is asked of slurmrestd by those who only look.
_REST_LOOKS = ("cluster_name", "record", "explain")


class Source(Protocol):
    """Asks Slurm; how often is not its business."""

    @property
    def calls(self) -> int:
        """How often Slurm was asked for something so far."""

    def often(self, before: Snapshot | None) -> Snapshot:
        """What changes often: jobs, nodes, partitions and the controller's health."""

    def seldom(self, snapshot: Snapshot) -> Sharing:
        """What changes seldom. What fails here is a gap, and ends nothing."""


def source_of(backend: Looking) -> Source:
    """The way that a backend's Slurm is asked."""
    if backend.kind == "embedded":
        return EmbeddedSource(backend)
    rest = _rest_scheduler(backend)
    return CommandSource(backend) if rest is None else RestSource(rest.client, PATIENCE)


def rest_of(backend: Looking) -> Callable[..., Any] | None:
    """How slurmrestd is asked, verb first, where that is the way to a backend's Slurm."""
    scheduler = _rest_scheduler(backend)

    def ask(verb: str, *words: Any) -> Any:
        if isinstance(backend, OnlyLooks) and verb not in _REST_LOOKS:
            raise UsageError(f"{verb!r} changes something, and this only looks")
        try:
            return getattr(scheduler, verb)(*words)
        except AgentError as error:
            raise as_error(error) from None

    return None if scheduler is None else ask


def _rest_scheduler(backend: Looking) -> RestScheduler | None:
    scheduler = scheduler_of(backend)
    return scheduler if isinstance(scheduler, RestScheduler) else None


class CommandSource:
    """Slurm's commands, four in one round trip; seldom four more."""

    def __init__(self, backend: Looking) -> None:
        self._backend = backend
        self.calls = 0

    def often(self, before: Snapshot | None) -> Snapshot:
        """Jobs, nodes, partitions and the controller's health."""
        mark = queue.new_mark()
        asked = [
            queue.queue_command(mark),
            nodes.nodes_command(mark),
            sinfo_command(),
            controller.controller_command(),
        ]
        # A list that is too short ends with the failure that made it so.
        jobs, hosts, parts, diag = [_must(*answer) for answer in self._look(asked, PATIENCE)]
        rows, bad_rows = queue.parse_queue(jobs, before.rows if before else {}, mark)
        found, bad_nodes = nodes.parse_nodes(hosts, mark)
        partitions, bad_parts = _partitions(parts)
        return Snapshot(
            taken=time.time(),
            rows=rows,
            nodes=tuple(found),
            partitions=partitions,
            controller=controller.parse_controller(diag),
            unreadable={"squeue": bad_rows, "sinfo": bad_nodes + bad_parts},
        )

    def seldom(self, snapshot: Snapshot) -> Sharing:
        """Shares, licences, reservations, and what accounting knows of the last ends."""
        asked = [
            sharing.shares_command(),
            sharing.licences_command(),
            sharing.reservations_command(),
        ]
        ended = sharing.last_ended(snapshot.rows.values())
        if ended:
            asked.append(sharing.accounting_command(ended, min(ended.values()) - 86400))
        told = [text if code == 0 else None for code, text, _ in self._look(asked, SHORT_PATIENCE)]
        shares, licences, reservations, accounted = [*told, None, None, None, None][:4]
        now = snapshot.controller.now
        lag = None
        if accounted is not None and now is not None:
            lag = sharing.accounting_lag(accounted, ended, now)
        return Sharing(
            None if shares is None else tuple(sharing.parse_shares(shares)),
            None if licences is None else tuple(sharing.parse_licences(licences)),
            None if reservations is None else tuple(sharing.parse_reservations(reservations)),
            lag,
        )

    def _look(self, commands: list[list[str]], patience: float) -> list[tuple[int, str, str]]:
        self.calls += len(commands)
        return self._backend.look(commands, patience)


def _partitions(text: str) -> tuple[tuple[PartitionStatus, ...], int]:
    """The partitions, and how many rows could not be read: one is no reason to see nothing."""
    found, bad = list[PartitionStatus](), 0
    for line in text.split("\n"):
        try:
            found += parse_partitions(line)
        except UnreadableAnswer:
            bad += 1
    return tuple(found), bad


def _must(code: int, text: str, words: str) -> str:
    """What a command printed that has to succeed."""
    if code != 0:
        said = [line for line in words.splitlines() if line.strip()]
        raise SchedulerUnreachable(
            said[-1] if said else f"a command of Slurm ended with {code}",
            hint="check that slurmctld runs: scontrol ping",
            evidence=said,
        )
    return text
