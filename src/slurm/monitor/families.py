"""Every metric that the exporter serves: name, type, labels and meaning; docs/metrics.md is it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Before every name: nobody else's exporter, nor slurmctld's own metrics, uses it.
PREFIX = "slurm_sdk_"
#: For whom the cap on users or accounts leaves no series of their own.
OTHER = "other"

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True)
class Family:
    """A metric: `name` has neither the prefix nor a counter's `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str

    @property
    def full_name(self) -> str:
        """With the prefix; what a query says is this, and for a counter `_total` behind it."""
        return PREFIX + self.name

    @property
    def series(self) -> str:
        """The name of its series in a query."""
        suffix = {"gauge": "", "counter": "_total", "histogram": "_bucket"}[self.kind]
        return self.full_name + suffix


@dataclass(frozen=True)
class Topic:
    """Families that belong together, for the reader of the table."""

    title: str
    families: tuple[Family, ...]


def _gauge(name: str, labels: str, meaning: str) -> Family:
    return Family(name, "gauge", tuple(labels.split()), meaning)


def _counter(name: str, labels: str, meaning: str) -> Family:
    return Family(name, "counter", tuple(labels.split()), meaning)


def _histogram(name: str, labels: str, meaning: str) -> Family:
    return Family(name, "histogram", tuple(labels.split()), meaning)


TOPICS = (
    Topic(
        "The collector",
        (
            _gauge("up", "", "1 if the last collection succeeded, else 0."),
            _gauge("build_info", "version slurm_version", "Always 1; which versions these are."),
            _gauge(
                "snapshot_age_seconds",
                "",
                "Age of what all other metrics say; absent before the first collection.",
            ),
            _gauge(
                "part_age_seconds",
                "part",
                "How much older `shares`, `licences`, `reservations` are than the rest.",
            ),
            _gauge("start_timestamp_seconds", "", "Since when the exporter counts."),
            _counter("collections", "", "Collections that ended, well or not."),
            _counter(
                "collection_failures",
                "cause",
                "Those that failed: `unreachable`, `token`, `unreadable`, `other`.",
            ),
            _gauge("collection_duration_seconds", "", "What the last collection took."),
            _gauge("collection_cpu_seconds", "", "CPU time of it, Slurm's commands here included."),
            _gauge("collection_pause_seconds", "", "Pause until the next, which adapts."),
            _counter("commands", "", "Questions to Slurm: not one more for any scrape or viewer."),
            _gauge("unreadable_rows", "command", "Rows of the last answers that were passed over."),
            _gauge("folded", "label", "How many users or accounts count under `other`."),
        ),
    ),
    Topic(
        "Jobs",
        (
            _gauge("jobs", "state partition", "Jobs; every task of an array counts."),
            _gauge("job_records", "", "Rows of the queue; what waits of an array is one."),
            _gauge("jobs_pending", "reason partition", "Jobs that wait, by Slurm's reason."),
            _gauge("jobs_cpus", "state partition", "CPUs of `running`, asked by `pending` jobs."),
            _gauge("jobs_memory_bytes", "state partition", "Memory of the same."),
            _gauge("jobs_gpus", "state partition", "GPUs of the same."),
            _counter("jobs_submitted", "partition", "Jobs that came into the queue."),
            _counter("jobs_started", "partition", "Jobs that started, again after a requeue too."),
            _counter("jobs_ended", "partition outcome", "Jobs that ended, by their last state."),
            _counter("jobs_requeued", "partition", "Jobs that went back into the queue."),
            _counter("jobs_vanished", "partition", "Jobs gone before their end was seen."),
            _histogram("job_wait_seconds", "partition", "From when it could start to its start."),
            _histogram("job_run_time_seconds", "partition", "From a job's start to its end."),
        ),
    ),
    Topic(
        "Users and accounts",
        (
            _gauge("user_jobs", "user state", "`running` and `pending` jobs."),
            _gauge("user_cpus", "user state", "CPUs of the same."),
            _gauge("user_gpus", "user state", "GPUs of the same."),
            _gauge("account_jobs", "account state", "`running` and `pending` jobs."),
            _gauge("account_cpus", "account state", "CPUs of the same."),
            _gauge("account_gpus", "account state", "GPUs of the same."),
            _gauge("fairshare_share_ratio", "account", "Part of its parent's that it may use."),
            _gauge("fairshare_used_ratio", "account", "Part of all that it used, with decay."),
            _gauge("fairshare_usage_seconds", "account", "Weighted seconds used, with decay."),
            _gauge("fairshare_factor", "account user", "1 used little, to 0 used far too much."),
        ),
    ),
    Topic(
        "Nodes and partitions",
        (
            _gauge("nodes", "state", "Nodes by state; what is on top of it is a flag."),
            _gauge("nodes_flag", "flag", "Nodes by flag; a node may have several."),
            _gauge("nodes_usable", "", "Nodes on which jobs can start or run."),
            _counter("node_changes", "state", "Nodes that came into a state or got other flags."),
            _gauge("node_state", "node state", "Always 1; the state the node is in."),
            _gauge("node_flag", "node flag", "Always 1; a flag that the node has."),
            _gauge("node_usable", "node", "1 if jobs can start or run on it, else 0."),
            _gauge("node_partition", "node partition", "Always 1; to join nodes and partitions."),
            _gauge("node_cpus", "node kind", "CPUs: `total`, `allocated`, `idle`."),
            _gauge("node_memory_bytes", "node kind", "Memory: `total`, `allocated`, `free`."),
            _gauge("node_load", "node", "Load average; absent where the node does not tell."),
            _gauge("node_gres", "node name type kind", "Generic resources: `total`, `allocated`."),
            _gauge("node_reason_info", "node reason", "Always 1; why it is drained or down."),
            _gauge("node_reason_timestamp_seconds", "node", "When that was said."),
            _gauge("partition_up", "partition", "1 if jobs may start in it, else 0."),
            _gauge(
                "partition_nodes", "partition kind", "Nodes: `total`, `allocated`, `idle`, `other`."
            ),
            _gauge(
                "partition_cpus", "partition kind", "CPUs: `total`, `allocated`, `idle`, `other`."
            ),
            _gauge("partition_memory_bytes", "partition kind", "Memory: `total`, `allocated`."),
            _gauge(
                "partition_gres",
                "partition name type kind",
                "Generic resources: `total`, `allocated`.",
            ),
            _gauge("license", "license kind", "Licences: `total`, `used`."),
            _gauge("reservation_nodes", "reservation state", "Nodes of a reservation."),
            _gauge("reservation_start_timestamp_seconds", "reservation", "When it begins."),
            _gauge("reservation_end_timestamp_seconds", "reservation", "When it ends."),
        ),
    ),
    Topic(
        "The scheduler",
        (
            _gauge("scheduler_server_threads", "", "Threads that serve requests, of 256."),
            _gauge("scheduler_agent_queue_size", "", "Messages to nodes that wait to be sent."),
            _gauge("scheduler_agents", "", "Agents that send messages."),
            _gauge("scheduler_agent_threads", "", "Threads of those agents."),
            _gauge("scheduler_dbd_queue_size", "", "Records that wait for slurmdbd."),
            _gauge("scheduler_main_last_cycle_seconds", "", "The last main scheduling cycle."),
            _gauge("scheduler_main_max_cycle_seconds", "", "The longest one."),
            _gauge("scheduler_main_mean_cycle_seconds", "", "The mean of all."),
            _gauge("scheduler_main_mean_depth", "", "Jobs looked at in a cycle."),
            _gauge("scheduler_main_queue_length", "", "Jobs that waited at the last cycle."),
            _counter("scheduler_main_cycles", "", "Main scheduling cycles."),
            _gauge("scheduler_backfill_last_cycle_seconds", "", "The last backfill cycle."),
            _gauge("scheduler_backfill_max_cycle_seconds", "", "The longest one."),
            _gauge("scheduler_backfill_mean_cycle_seconds", "", "The mean of all, if any."),
            _gauge("scheduler_backfill_last_depth", "", "Jobs looked at in the last cycle."),
            _gauge("scheduler_backfill_queue_length", "", "Jobs that waited at the last cycle."),
            _gauge("scheduler_backfill_table_size", "", "Slots of the last cycle's plan."),
            _counter("scheduler_backfill_cycles", "", "Backfill cycles."),
            _counter("scheduler_backfilled_jobs", "", "Jobs that backfill started."),
            _counter("scheduler_rpc", "type", "Requests to the controller by message."),
            _counter("scheduler_rpc_seconds", "type", "Time it took to serve them."),
            _counter("scheduler_user_rpc", "user", "Requests to the controller by user."),
            _counter("scheduler_user_rpc_seconds", "user", "Time it took to serve them."),
            _gauge("accounting_lag_seconds", "", "How long accounting has missed an end."),
        ),
    ),
    Topic(
        "Single jobs, only with --per-job",
        (
            _gauge("job_start_timestamp_seconds", "job_id user account partition", "Its start."),
            _gauge("job_cpus", "job_id", "CPUs that it has."),
            _gauge("job_memory_bytes", "job_id", "Memory that it has."),
            _gauge("job_gpus", "job_id", "GPUs that it has."),
        ),
    ),
)  # fmt: skip

#: By name, without the prefix.
FAMILIES = {family.name: family for topic in TOPICS for family in topic.families}
