"""Jobs that run for the scheduler while their node writes nothing any more: said once per node.

Each node writes one beat for all that it runs of a run, so a node that is gone is told apart from
the others of an array or a packed map.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.job import Job

#: A running job whose node wrote no beat for this many seconds is looked into.
SILENT = 60.0

log = logging.getLogger("slurm")


class Beats:
    """The beats of the nodes of one run, and when each was last seen to change, by our clock."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._heard: dict[str, float] = {}

    def take(self, beats: Iterable[tuple[str, str]], now: float) -> None:
        """Take in what lies there now, by the name of each file."""
        for name, text in beats:
            if self._texts.get(name) != text:
                self._texts[name] = text
                self._heard[name.rpartition("-")[0]] = now  # behind it stands the boot

    def notice(self, jobs: Iterable[Job[Any]], now: float) -> None:
        """Mark the jobs that run on a silent node, and warn of those that were not marked yet."""
        fresh: dict[str, list[Job[Any]]] = {}
        for job in jobs:
            state = job.evidence.state
            if state is None or state.phase != "active":
                job.notes.heard_at, job.notes.silent_since = now, None
                continue
            host = _host(job)
            silent = now - max(job.notes.heard_at, self._heard.get(host, 0.0))
            if silent <= SILENT:
                job.notes.silent_since = None
            elif job.notes.silent_since is None:
                job.notes.silent_since = time.time() - silent
                fresh.setdefault(host, []).append(job)
        for host, found in fresh.items():
            _warn(host, found)


def _host(job: Job[Any]) -> str:
    """The host where the newest attempt of a job began, as files are named by it."""
    begin = job.evidence.begins.get(job.evidence.attempt)
    return "" if begin is None else re.sub("[^A-Za-z0-9.-]", "_", begin.fields.get("host", ""))


def _warn(host: str, jobs: list[Job[Any]]) -> None:
    first, others = jobs[0], len(jobs) - 1
    log.warning(
        "job %s (%s)%s: running for the scheduler, but %s has written nothing for %.0f s",
        first.id,
        first.name,
        f" and {others} more" if others else "",
        f"its node {first.node or host}" if first.node or host else "its node",
        time.time() - (first.notes.silent_since or 0.0),
    )
