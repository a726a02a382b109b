"""Snapshot and tally -> samples: what each metric's value is; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slurm.model.states import JobState
from slurm.monitor.collector import View
from slurm.monitor.exposition import Samples
from slurm.monitor.families import FAMILIES, OTHER
from slurm.monitor.nodes import FLAGS, STATES, NodeRow
from slurm.monitor.queue import JobRow
from slurm.monitor.snapshot import Snapshot
from slurm.monitor.tally import Histogram, Tally

#: States of jobs that are counted even when no job is in them, so that alerts can rely on them.
_ALWAYS = ("pending", "running", "completed", "failed", "cancelled", "timeout", "node_fail",
           "out_of_memory")  # fmt: skip
_OUTCOMES = _ALWAYS[2:]
#: Reasons beyond these many, the rarest, are counted together.
_MOST_REASONS = 60
_MOST_REASON_LETTERS = 80


@dataclass(frozen=True)
class Caps:
    """How many series there may be at most."""

    #: Users, and accounts, with series of their own; the others count as `other`.
    names: int = 50
    #: Running jobs with series of their own; 0 for none.
    jobs: int = 0


class _Group(NamedTuple):
    """What the jobs of one line of the sums have in common."""

    phase: str
    state: str
    reason: str
    partition: str
    user: str
    account: str
    cpus: int
    memory: int
    gpus: int


def measure(snapshot: Snapshot, caps: Caps) -> Samples:
    """All that a snapshot says."""
    samples = Samples()
    groups = _groups(snapshot.rows.values())
    _jobs(samples, groups, [part.name for part in snapshot.partitions])
    samples.put("job_records", len(snapshot.rows))
    folded = _people(samples, groups, snapshot, caps.names)
    samples.put_all("folded", folded)
    samples.put_all("unreadable_rows", snapshot.unreadable)
    samples.put_all("part_age_seconds", snapshot.older)
    _nodes(samples, snapshot.nodes)
    _partitions(samples, snapshot)
    _shared(samples, snapshot)
    _scheduler(samples, snapshot, caps.names)
    _single_jobs(samples, snapshot.rows.values(), caps.jobs)
    return samples


def measure_tally(tally: Tally, partitions: Iterable[str]) -> Samples:
    """All that was counted since the collector began."""
    samples = Samples()
    # A series that begins with 7 has not grown for Prometheus: each begins with 0.
    for partition in partitions:
        for name in ("jobs_submitted", "jobs_started", "jobs_requeued", "jobs_vanished"):
            samples.put(name, 0, partition)
        for outcome in _OUTCOMES:
            samples.put("jobs_ended", 0, partition, outcome)
        for name in ("job_wait_seconds", "job_run_time_seconds"):
            samples.put(name, Histogram(), partition)
    samples.put_all("node_changes", dict.fromkeys(STATES, 0))
    samples.put_all("jobs_submitted", tally.submitted)
    samples.put_all("jobs_started", tally.started)
    for (partition, state), count in tally.ended.items():
        samples.put("jobs_ended", count, partition, state.lower())
    samples.put_all("jobs_requeued", tally.requeued)
    samples.put_all("jobs_vanished", tally.gone)
    samples.put_all("node_changes", tally.node_changes)
    for partition, waits in tally.waits.items():
        samples.put("job_wait_seconds", waits, partition)
    for partition, times in tally.run_times.items():
        samples.put("job_run_time_seconds", times, partition)
    return samples


def measure_health(view: View, version: str) -> Samples:
    """How the collector itself fares, at this moment."""
    samples = Samples()
    health = view.health
    samples.put("up", 1 if health.collections and not health.problem else 0)
    slurm = view.snapshot.version if view.snapshot else ""
    samples.put("build_info", 1, version, slurm)
    samples.put("snapshot_age_seconds", view.age if view.snapshot else None)
    samples.put("collections", health.collections)
    samples.put_all("collection_failures", health.causes)
    samples.put("start_timestamp_seconds", health.began)
    samples.put("collection_duration_seconds", health.took)
    samples.put("collection_cpu_seconds", health.cpu)
    samples.put("collection_pause_seconds", health.pause)
    samples.put("commands", health.commands)
    return samples


def top(weights: Mapping[str, float], most: int) -> set[str]:
    """The names with the greatest weights, not more than `most`."""
    return set(sorted(weights, key=lambda name: (-weights[name], name))[:most])


def _groups(rows: Iterable[JobRow]) -> Counter[_Group]:
    # One sum over thousands of rows, then many over a few groups.
    found: Counter[_Group] = Counter()
    for row in rows:
        key = (row.phase, row.state, row.reason, row.partition, row.user, row.account)
        found[_Group(*key, row.cpus, row.memory, row.gpus)] += row.tasks
    return found


def _kind(group: _Group) -> str | None:
    """`running` or `pending`: whether the job has its resources, or asks for them."""
    if group.phase == "pending":
        return "pending"
    holds = group.phase == "active" and group.state != JobState.SUSPENDED
    return "running" if holds else None


def _jobs(samples: Samples, groups: Mapping[_Group, int], partitions: Iterable[str]) -> None:
    for partition in partitions:
        for state in _ALWAYS:
            samples.put("jobs", 0, state, partition)
        for kind in ("running", "pending"):
            for what in ("jobs_cpus", "jobs_memory_bytes", "jobs_gpus"):
                samples.put(what, 0, kind, partition)
    reasons: Counter[str] = Counter()
    for group, count in groups.items():
        reasons[group.reason] += count
    named = top({r: n for r, n in reasons.items() if r}, _MOST_REASONS)
    for group, count in groups.items():
        samples.add("jobs", count, group.state.lower(), group.partition)
        if group.phase == "pending" and group.reason:
            reason = group.reason if group.reason in named else OTHER
            samples.add("jobs_pending", count, reason, group.partition)
        holds = _kind(group)
        if holds:
            samples.add("jobs_cpus", count * group.cpus, holds, group.partition)
            samples.add("jobs_memory_bytes", count * group.memory, holds, group.partition)
            samples.add("jobs_gpus", count * group.gpus, holds, group.partition)


def _people(
    samples: Samples, groups: Mapping[_Group, int], snapshot: Snapshot, most: int
) -> dict[str, int]:
    """Sums by user and by account; how many of each are counted as others."""
    folded = {}
    for label in ("user", "account"):
        weights: dict[str, float] = defaultdict(float)
        live = [(g, n, kind) for g, n in groups.items() if (kind := _kind(g))]
        for group, count, kind in live:
            # Who runs most comes first; who only waits follows.
            weights[getattr(group, label)] += count * group.cpus * (1e6 if kind == "running" else 1)
        kept = top(weights, most)
        folded[label] = len(weights) - len(kept)
        for group, count, kind in live:
            name = getattr(group, label)
            name = name if name in kept else OTHER
            samples.add(f"{label}_jobs", count, name, kind)
            samples.add(f"{label}_cpus", count * group.cpus, name, kind)
            samples.add(f"{label}_gpus", count * group.gpus, name, kind)
    _shares(samples, snapshot, most)
    return folded


def _shares(samples: Samples, snapshot: Snapshot, most: int) -> None:
    accounts = top({s.account: s.usage for s in snapshot.shares if not s.user}, most)
    users = top({f"{s.account} {s.user}": s.usage for s in snapshot.shares if s.user}, most)
    for share in snapshot.shares:
        if share.user and f"{share.account} {share.user}" in users:
            samples.put("fairshare_factor", share.factor, share.account, share.user)
        elif not share.user and share.account in accounts:
            samples.put("fairshare_share_ratio", share.share, share.account)
            samples.put("fairshare_used_ratio", share.used, share.account)
            samples.put("fairshare_usage_seconds", share.usage, share.account)


def _nodes(samples: Samples, nodes: Iterable[NodeRow]) -> None:
    samples.put_all("nodes", dict.fromkeys(STATES, 0))
    samples.put_all("nodes_flag", dict.fromkeys(FLAGS, 0))
    samples.put("nodes_usable", 0)
    for node in nodes:
        name = node.name
        samples.add("nodes", 1, node.state)
        samples.put("node_state", 1, name, node.state)
        for flag in node.flags:
            samples.add("nodes_flag", 1, flag)
            samples.put("node_flag", 1, name, flag)
        samples.add("nodes_usable", int(node.usable))
        samples.put("node_usable", int(node.usable), name)
        for partition in node.partitions:
            samples.put("node_partition", 1, name, partition)
        samples.put("node_cpus", node.cpus, name, "total")
        samples.put("node_cpus", node.allocated_cpus, name, "allocated")
        samples.put("node_cpus", node.idle_cpus, name, "idle")
        samples.put("node_memory_bytes", node.memory, name, "total")
        samples.put("node_memory_bytes", node.allocated_memory, name, "allocated")
        samples.put("node_memory_bytes", node.free_memory, name, "free")
        samples.put("node_load", node.load, name)
        for gres in node.gres:
            samples.put("node_gres", gres.total, name, gres.name, gres.type, "total")
            samples.put("node_gres", gres.used, name, gres.name, gres.type, "allocated")
        if node.reason:
            samples.put("node_reason_info", 1, name, node.reason[:_MOST_REASON_LETTERS])
            samples.put("node_reason_timestamp_seconds", node.since, name)


def _partitions(samples: Samples, snapshot: Snapshot) -> None:
    for part in snapshot.partitions:
        samples.put("partition_up", int(part.available == "up"), part.name)
        for kind in ("allocated", "idle", "other"):
            samples.put("partition_nodes", getattr(part, f"{kind}_nodes"), part.name, kind)
            samples.put("partition_cpus", getattr(part, f"{kind}_cpus"), part.name, kind)
        samples.put("partition_nodes", part.nodes, part.name, "total")
        samples.put("partition_cpus", part.cpus, part.name, "total")
    for node in snapshot.nodes:
        for name in node.partitions:
            samples.add("partition_memory_bytes", node.memory, name, "total")
            samples.add("partition_memory_bytes", node.allocated_memory, name, "allocated")
            for gres in node.gres:
                samples.add("partition_gres", gres.total, name, gres.name, gres.type, "total")
                samples.add("partition_gres", gres.used, name, gres.name, gres.type, "allocated")


def _shared(samples: Samples, snapshot: Snapshot) -> None:
    for licence in snapshot.licences:
        samples.put("license", licence.total, licence.name, "total")
        samples.put("license", licence.used, licence.name, "used")
    for one in snapshot.reservations:
        samples.put("reservation_nodes", one.nodes, one.name, one.state)
        samples.put("reservation_start_timestamp_seconds", one.start, one.name)
        samples.put("reservation_end_timestamp_seconds", one.end, one.name)
    samples.put("accounting_lag_seconds", snapshot.accounting_lag)


def _scheduler(samples: Samples, snapshot: Snapshot, most: int) -> None:
    found = snapshot.controller
    for name, value in found.numbers.items():
        if f"scheduler_{name}" in FAMILIES:
            samples.put(f"scheduler_{name}", value)
    for kind, calls in found.by_type.items():
        samples.put("scheduler_rpc", calls.count, kind)
        samples.put("scheduler_rpc_seconds", calls.seconds, kind)
    kept = top({user: calls.count for user, calls in found.by_user.items()}, most)
    for user, calls in found.by_user.items():
        # Who drops out of the top would make the sum of the others fall: a counter must not.
        if user in kept:
            samples.put("scheduler_user_rpc", calls.count, user)
            samples.put("scheduler_user_rpc_seconds", calls.seconds, user)


def _single_jobs(samples: Samples, rows: Iterable[JobRow], most: int) -> None:
    if not most:
        return
    running = [row for row in rows if row.phase == "active" and row.start is not None]
    # The oldest stay: a series should live as long as its job.
    for row in sorted(running, key=lambda r: (r.start or 0, r.job_id))[:most]:
        who = (row.user, row.account, row.partition)
        samples.put("job_start_timestamp_seconds", row.start, row.job_id, *who)
        samples.put("job_cpus", row.cpus, row.job_id)
        samples.put("job_memory_bytes", row.memory, row.job_id)
        samples.put("job_gpus", row.gpus, row.job_id)
