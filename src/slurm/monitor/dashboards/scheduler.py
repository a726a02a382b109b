"""The dashboard of the scheduler."""

from __future__ import annotations

from slurm.monitor.dashboards.promql import lines, of, rate, stat
from slurm.monitor.grafana import Dashboard, Query

_CYCLES = ("main", "backfill")
SCHEDULER = Dashboard(
    "slurm-scheduler",
    "Slurm / Scheduler",
    (
        stat("Server threads", f"max({of('scheduler_server_threads')})", warn=(100, 200)),
        stat("Agent queue", f"max({of('scheduler_agent_queue_size')})", warn=(100, 1000)),
        stat("Records for slurmdbd", f"max({of('scheduler_dbd_queue_size')})", warn=(500, 5000)),
        stat(
            "Accounting is behind",
            f"max({of('accounting_lag_seconds')})",
            unit="s",
            warn=(60, 600),
        ),
        stat("A collection takes", f"max({of('collection_duration_seconds')})", unit="s"),
        stat("Pause between two", f"max({of('collection_pause_seconds')})", unit="s"),
        lines(
            "Last cycle",
            *tuple(Query(f"max({of(f'scheduler_{c}_last_cycle_seconds')})", c) for c in _CYCLES),
            unit="s",
        ),
        lines(
            "Cycles per second",
            *tuple(
                Query(f"sum(rate({of(f'scheduler_{c}_cycles')}[$__rate_interval]))", c)
                for c in _CYCLES
            ),
        ),
        lines(
            "Queue length seen by a cycle",
            *tuple(Query(f"max({of(f'scheduler_{c}_queue_length')})", c) for c in _CYCLES),
        ),
        lines(
            "Depth of a cycle",
            Query(f"max({of('scheduler_main_mean_depth')})", "main, mean"),
            Query(f"max({of('scheduler_backfill_last_depth')})", "backfill, last"),
        ),
        lines(
            "Jobs started by backfill, per second",
            Query(f"sum(rate({of('scheduler_backfilled_jobs')}[$__rate_interval]))", "backfill"),
        ),
        lines(
            "Threads and agents",
            *tuple(
                Query(f"max({of(f'scheduler_{name}')})", name.replace("_", " "))
                for name in ("server_threads", "agent_threads", "agents")
            ),
        ),
        lines(
            "Requests by message",
            Query(f"topk(10, {rate(of('scheduler_rpc'), 'type')})", "{{type}}"),
            unit="reqps",
        ),
        lines(
            "Time spent on requests, by message",
            Query(f"topk(10, {rate(of('scheduler_rpc_seconds'), 'type')})", "{{type}}"),
            about="Seconds a second: the part of one thread's time.",
        ),
        lines(
            "Collections and failures, per second",
            Query(f"sum(rate({of('collections')}[$__rate_interval]))", "collections"),
            Query(f"sum(rate({of('collection_failures')}[$__rate_interval]))", "failures"),
            Query(f"sum(rate({of('commands')}[$__rate_interval]))", "commands of Slurm"),
        ),
    ),
)
