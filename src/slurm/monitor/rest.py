"""The same snapshot from slurmrestd: its JSON becomes the rows that the commands print."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slurm.api import rest_rows
from slurm.api.rest_client import RestClient, number_of
from slurm.api.slurm_site import PartitionStatus
from slurm.errors import RestError
from slurm.model.units import format_duration
from slurm.monitor import nodes, queue, sharing
from slurm.monitor.controller import Calls, Controller
from slurm.monitor.sharing import Licence, Reservation, Share, Sharing
from slurm.monitor.snapshot import Snapshot

#: Our name -> slurmrestd's, and how many of its units make one base unit.
_NUMBERS = {
    "server_threads": ("server_thread_count", 1),
    "agent_queue_size": ("agent_queue_size", 1),
    "agents": ("agent_count", 1),
    "agent_threads": ("agent_thread_count", 1),
    "dbd_queue_size": ("dbd_agent_queue_size", 1),
    "jobs_submitted": ("jobs_submitted", 1),
    "jobs_started": ("jobs_started", 1),
    "jobs_completed": ("jobs_completed", 1),
    "jobs_canceled": ("jobs_canceled", 1),
    "jobs_failed": ("jobs_failed", 1),
    "main_last_cycle_seconds": ("schedule_cycle_last", 1e6),
    "main_max_cycle_seconds": ("schedule_cycle_max", 1e6),
    "main_mean_cycle_seconds": ("schedule_cycle_mean", 1e6),
    "main_cycles": ("schedule_cycle_total", 1),
    "main_mean_depth": ("schedule_cycle_mean_depth", 1),
    "main_queue_length": ("schedule_queue_length", 1),
    "backfilled_jobs": ("bf_backfilled_jobs", 1),
    "backfill_cycles": ("bf_cycle_counter", 1),
    "backfill_last_cycle_seconds": ("bf_cycle_last", 1e6),
    "backfill_max_cycle_seconds": ("bf_cycle_max", 1e6),
    "backfill_mean_cycle_seconds": ("bf_cycle_mean", 1e6),
    "backfill_last_depth": ("bf_last_depth", 1),
    "backfill_queue_length": ("bf_queue_len", 1),
    "backfill_table_size": ("bf_table_size", 1),
}
# What a row that is not as it should be does on its way.
_DAMAGED = (KeyError, ValueError, TypeError, AttributeError, OverflowError)
#: A row that nobody can read, so that it is counted as one.
_UNREADABLE = "?"


class RestSource:
    """slurmrestd, with the token that its file has at that moment."""

    def __init__(self, client: RestClient, patience: float) -> None:
        self._client = client
        self._patience = patience
        self.calls = 0

    def often(self, before: Snapshot | None) -> Snapshot:
        """Jobs, nodes, partitions and the controller's health."""
        rows, bad_rows = queue.read_rows(
            map(job_line, self._list("jobs/", "jobs")), before.rows if before else {}
        )
        hosts = self._list("nodes/", "nodes")
        found, bad_nodes = nodes.read_nodes(line for host in hosts for line in node_lines(host))
        partitions, bad_parts = partitions_of(self._list("partitions/", "partitions"), hosts)
        return Snapshot(
            taken=time.time(),
            rows=rows,
            nodes=tuple(found),
            partitions=partitions,
            controller=controller_of(self._ask("diag/").get("statistics") or {}),
            unreadable={"jobs": bad_rows, "nodes": bad_nodes, "partitions": bad_parts},
        )

    def seldom(self, snapshot: Snapshot) -> Sharing:
        """Shares, licences, reservations, and what accounting knows of the last ends."""
        now = snapshot.controller.now
        shares, licences = self._maybe("shares"), self._maybe("licenses/")
        reservations = self._maybe("reservations/")
        return Sharing(
            None if shares is None else tuple(shares_of(shares)),
            None if licences is None else tuple(licences_of(licences)),
            None if reservations is None else tuple(reservations_of(reservations, now or 0)),
            self._lag(sharing.last_ended(snapshot.rows.values()), now),
        )

    def _lag(self, ended: dict[str, int], now: int | None) -> float | None:
        if not ended or now is None:
            return None
        query = rest_rows.accounting_query(list(ended), min(ended.values()) - 86400)
        answer = self._maybe("jobs/", query=query, plugin="slurmdb")
        if answer is None:
            return None
        rows = map(rest_rows.accounting_row, answer.get("jobs") or ())
        return sharing.accounting_lag("\n".join(f"{r.job_id}|{r.state}" for r in rows), ended, now)

    def _list(self, path: str, name: str) -> list[dict[str, Any]]:
        return _rows(self._ask(path).get(name))

    def _maybe(self, path: str, **more: Any) -> dict[str, Any] | None:
        try:
            return self._ask(path, **more)
        except RestError:
            return None

    def _ask(self, path: str, **more: Any) -> dict[str, Any]:
        self.calls += 1
        return self._client.call("GET", path, timeout=self._patience, **more)


def job_line(job: Mapping[str, Any]) -> str:
    """A job as the row that squeue prints of it."""
    try:
        status = rest_rows.controller_row(job)
        whole = number_of(job.get("het_job_id"))
        part = number_of(job.get("het_job_offset")) or 0
        limit = number_of(job.get("time_limit"))
        return queue.line_of(
            (
                f"{whole}+{part}" if whole else status.job_id,
                status.state,
                status.reason,
                *(job.get(name) or "" for name in ("user_name", "account", "partition", "qos")),
                *(number_of(job.get(name)) or 0 for name in ("cpus", "node_count")),
                job.get("tres_alloc_str") or job.get("tres_req_str") or "",
                status.submit or "",
                number_of(job.get("eligible_time")) or "",
                status.start or "",
                status.end or "",
                format_duration(None if limit is None else limit * 60),
                number_of(job.get("priority")) or 0,
                status.restarts,
                status.nodes,
                status.name,
            )
        )
    except _DAMAGED:
        return _UNREADABLE


def node_lines(node: Mapping[str, Any]) -> Iterator[str]:
    """A node as the rows that sinfo prints of it, one for each of its partitions."""
    try:
        known = rest_rows.node_row(node)
        free = known.cpus - known.allocated_cpus
        base, flags = nodes.parse_state(known.state)
        idle = free if base in ("allocated", "idle", "mixed") and "drain" not in flags else 0
        load = number_of(node.get("cpu_load"))
        values = (
            known.name,
            known.state,
            f"{known.allocated_cpus}/{idle}/{free - idle}/{known.cpus}",
            "" if load is None else load / 100,
            known.memory,
            known.allocated_memory,
            _told(number_of(node.get("free_mem"))),
            known.gres,
            node.get("gres_used") or "",
            node.get("version") or "",
        )
        since = number_of(node.get("reason_changed_at")) or ""
    except _DAMAGED:
        yield _UNREADABLE
        return
    for partition in known.partitions or ("",):
        yield queue.line_of((*values, partition, since, known.reason))


def partitions_of(
    rows: Iterable[Mapping[str, Any]], hosts: Iterable[Mapping[str, Any]]
) -> tuple[tuple[PartitionStatus, ...], int]:
    """The partitions with the use of their nodes, and how many could not be read."""
    used, found, bad = [], list[PartitionStatus](), 0
    for host in hosts:
        with contextlib.suppress(*_DAMAGED):  # counted among the nodes
            used.append(dict(rest_rows.node_row(host)._asdict()))
    for row in rows:
        try:
            found.append(rest_rows.partition_row(row, used, default=""))
        except _DAMAGED:
            bad += 1
    return tuple(found), bad


def controller_of(said: Mapping[str, Any]) -> Controller:
    """The controller's health; what its version does not say is left out."""
    found = {name: (_number(said.get(key)), scale) for name, (key, scale) in _NUMBERS.items()}
    return Controller(
        numbers={name: n / scale for name, (n, scale) in found.items() if n is not None},
        by_type=_calls(said, "rpcs_by_message_type", "message_type"),
        by_user=_calls(said, "rpcs_by_user", "user"),
        since=_number(said.get("req_time_start")),
        now=_number(said.get("req_time")),
    )


def _calls(said: Mapping[str, Any], table: str, name: str) -> dict[str, Calls]:
    return {
        str(row[name]): Calls(
            _number(row.get("count")) or 0, (_number(row.get("total_time")) or 0) / 1e6
        )
        for row in _rows(said.get(table))
        if row.get(name)
    }


def shares_of(answer: Mapping[str, Any]) -> Iterator[Share]:
    """The shares of accounts, and of users in them."""
    for row in _rows((answer.get("shares") or {}).get("shares")):
        user = row["name"] if "USER" in (row.get("type") or ()) else ""
        yield Share(
            account=str(row.get("parent") if user else row["name"]),
            user=str(user),
            share=_ratio(row.get("shares_normalized")),
            usage=float(row.get("usage") or 0),
            used=_ratio(row.get("effective_usage")),
            factor=_ratio((row.get("fairshare") or {}).get("factor")) if user else None,
        )


def licences_of(answer: Mapping[str, Any]) -> Iterator[Licence]:
    """The licences."""
    for row in _rows(answer.get("licenses")):
        yield Licence(
            str(row["LicenseName"]), int(row.get("Total") or 0), int(row.get("Used") or 0)
        )


def reservations_of(answer: Mapping[str, Any], now: int) -> Iterator[Reservation]:
    """The reservations; whether one is active is not said but follows from its times."""
    for row in _rows(answer.get("reservations")):
        start, end = number_of(row.get("start_time")) or 0, number_of(row.get("end_time")) or 0
        state = "active" if start <= now < end else "inactive"
        yield Reservation(str(row["name"]), state, int(row.get("node_count") or 0), start, end)


def _rows(value: object) -> list[dict[str, Any]]:
    """A list of objects; what is none stands there as one with nothing in it."""
    found = value if isinstance(value, list) else []
    return [row if isinstance(row, dict) else {} for row in found]


def _number(value: object) -> int | None:
    try:
        return number_of(value)
    except _DAMAGED:
        return None


def _told(value: int | None) -> str:
    return "" if value is None else str(value)


def _ratio(value: object) -> float | None:
    """A part of one as sshare prints it; `number_of` has nothing behind the point."""
    if isinstance(value, dict):
        return round(float(value.get("number") or 0), 6) if value.get("set") else None
    return round(float(value), 6) if isinstance(value, (int, float)) else None
