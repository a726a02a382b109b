"""The dashboards for Grafana: overview, users and accounts, nodes and GPUs, scheduler, jobs."""

from __future__ import annotations

import json
from typing import Any

from slurm.monitor.families import FAMILIES
from slurm.monitor.grafana import Dashboard, Panel, Query, as_grafana

_HERE = 'instance=~"$cluster"'
_PARTS = f'{_HERE},partition=~"$partition"'


def _of(name: str, labels: str = _HERE) -> str:
    """The series of one of our metrics, with labels; a wrong name is refused."""
    return f"{FAMILIES[name].series}{{{labels}}}"


def _here(name: str, labels: str) -> str:
    return _of(name, f"{_HERE},{labels}")


def _part(name: str, labels: str = "") -> str:
    return _of(name, ",".join(filter(None, (_PARTS, labels))))


def _sum(series: str, by: str = "") -> str:
    return f"sum by ({by}) ({series})" if by else f"sum({series})"


def _ratio(part: str, whole: str, by: str) -> str:
    return f"{_sum(part, by)} / {_sum(whole, by)}"


def _grown(series: str, by: str, over: str = "1h") -> str:
    return f"sum by ({by}) (increase({series}[{over}]))"


def _rate(series: str, by: str, over: str = "$__rate_interval") -> str:
    return f"sum by ({by}) (rate({series}[{over}]))"


def _quantile(part: float, name: str, legend: str, by: str = "le") -> Query:
    return Query(f"histogram_quantile({part}, {_grown(_part(name), by)})", legend)


def _stat(title: str, expr: str, **more: Any) -> Panel:
    return Panel(title, "stat", (Query(expr),), width=4, **more)


def _lines(title: str, *queries: Query, **more: Any) -> Panel:
    return Panel(title, "timeseries", queries, **more)


def _cpus(kind: str) -> str:
    return _part("partition_cpus", f'kind="{kind}"')


def _node(name: str, kind: str, more: str = "") -> str:
    return _of(name, ",".join(filter(None, (_HERE, f'kind="{kind}"', more))))


OVERVIEW = Dashboard(
    "slurm-overview",
    "Slurm / Cluster overview",
    (
        _stat(
            "Controller", f"min({_of('up')})", about="1: slurmctld answered the last collection."
        ),
        _stat("Age of these data", f"max({_of('snapshot_age_seconds')})", unit="s", warn=(60, 300)),
        _stat("Jobs running", _sum(_part("jobs", 'state="running"'))),
        _stat("Jobs waiting", _sum(_part("jobs", 'state="pending"'))),
        _stat("Nodes usable", _sum(_of("nodes_usable"))),
        _stat(
            "Nodes drained or down",
            _sum(_here("nodes", 'state=~"down|error"'))
            + " + "
            + _sum(_here("nodes_flag", 'flag="drain"')),
            warn=(1, 5),
        ),
        _lines(
            "CPUs",
            *tuple(
                Query(_sum(_node("node_cpus", kind)), kind)
                for kind in ("allocated", "idle", "total")
            ),
        ),
        _lines(
            "CPUs in use, by partition",
            Query(
                _ratio(_cpus("allocated"), _cpus("total"), "partition"),
                "{{partition}}",
            ),
            unit="percentunit",
        ),
        _lines(
            "Memory",
            *tuple(
                Query(_sum(_node("node_memory_bytes", kind)), kind)
                for kind in ("allocated", "free", "total")
            ),
            unit="bytes",
            about="Allocated is what jobs were given; free is what the nodes' systems say.",
        ),
        _lines(
            "Jobs by state",
            Query(
                _sum(_part("jobs", 'state=~"running|pending|completing|suspended"'), "state"),
                "{{state}}",
            ),
            stacked=True,
        ),
        _lines(
            "Why jobs wait",
            Query(_sum(_part("jobs_pending"), "reason"), "{{reason}}"),
            stacked=True,
        ),
        _lines(
            "Jobs ended per second",
            Query(_rate(_part("jobs_ended"), "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        _lines(
            "Waiting time of the last hour",
            _quantile(0.5, "job_wait_seconds", "half of the jobs"),
            _quantile(0.95, "job_wait_seconds", "95 % of the jobs"),
            unit="s",
        ),
        _lines(
            "Licences in use",
            Query(
                _sum(_here("license", 'kind="used"'), "license"),
                "{{license}}",
            ),
        ),
        Panel(
            "Reservations",
            "table",
            (Query(_of("reservation_nodes")),),
            width=24,
            about="Nodes that are set aside, and whether the reservation is active now.",
        ),
    ),
)


def _who(label: str) -> tuple[Panel, ...]:
    title = label.capitalize()
    panels = []
    for state, words in (("running", "in use"), ("pending", "asked for by what waits")):
        for what, unit in (("cpus", "CPUs"), ("gpus", "GPUs")):
            series = _of(f"{label}_{what}", f'{_HERE},state="{state}"')
            panels.append(
                _lines(
                    f"{title}s: {unit} {words}",
                    Query(f"topk(10, {_sum(series, label)})", f"{{{{{label}}}}}"),
                    stacked=state == "running",
                )
            )
    panels.append(
        Panel(
            f"{title}s: jobs now",
            "table",
            (Query(f"sort_desc({_sum(_of(f'{label}_jobs'), f'{label}, state')})"),),
        )
    )
    return tuple(panels)


USERS = Dashboard(
    "slurm-users",
    "Slurm / Users and accounts",
    (
        *_who("user"),
        _lines(
            "Users: requests to the controller",
            Query(f"topk(10, {_rate(_of('scheduler_user_rpc'), 'user')})", "{{user}}"),
            unit="reqps",
        ),
        *_who("account"),
        Panel(
            "Accounts: part of all use",
            "bargauge",
            (Query(f"topk(20, {_sum(_of('fairshare_used_ratio'), 'account')})", "{{account}}"),),
            unit="percentunit",
        ),
        Panel(
            "Fair share",
            "table",
            (Query(f"sort({_of('fairshare_factor')})"),),
            width=24,
            about="From 0, used far more than the share, to 1, used little: it raises priority.",
        ),
    ),
)

_GPUS = 'name="gpu"'
NODES = Dashboard(
    "slurm-nodes",
    "Slurm / Nodes and GPUs",
    (
        _lines(
            "Nodes by state", Query(f"{_sum(_of('nodes'), 'state')} > 0", "{{state}}"), stacked=True
        ),
        _lines("Nodes by flag", Query(_sum(_of("nodes_flag"), "flag"), "{{flag}}")),
        Panel(
            "Drained and down, with reason",
            "table",
            (
                Query(_of("node_reason_info")),
                Query(_of("node_reason_timestamp_seconds") + " * 1000"),
            ),
            width=24,
        ),
        _lines(
            "CPUs in use, by node",
            Query(
                "topk(20, "
                + _ratio(_node("node_cpus", "allocated"), _node("node_cpus", "total"), "node")
                + ")",
                "{{node}}",
            ),
            unit="percentunit",
        ),
        _lines(
            "Memory given to jobs, by node",
            Query(
                "topk(20, "
                + _ratio(
                    _node("node_memory_bytes", "allocated"),
                    _node("node_memory_bytes", "total"),
                    "node",
                )
                + ")",
                "{{node}}",
            ),
            unit="percentunit",
        ),
        _lines(
            "Load over CPUs, by node",
            Query(
                f"topk(20, {_sum(_of('node_load'), 'node')} / "
                f"{_sum(_node('node_cpus', 'total'), 'node')})",
                "{{node}}",
            ),
            about="Far above 1: more runs there than Slurm gave out.",
        ),
        _lines("Changes of nodes", Query(_grown(_of("node_changes"), "state"), "{{state}}")),
        _lines(
            "GPUs",
            *tuple(
                Query(_sum(_node("node_gres", kind, _GPUS)), kind)
                for kind in ("allocated", "total")
            ),
        ),
        _lines(
            "GPUs in use, by type",
            Query(
                f"{_sum(_node('node_gres', 'allocated', _GPUS), 'type')} / "
                f"{_sum(_node('node_gres', 'total', _GPUS), 'type')}",
                "{{type}}",
            ),
            unit="percentunit",
        ),
        Panel(
            "GPUs in use, by node",
            "bargauge",
            (
                Query(
                    f"topk(32, {_sum(_node('node_gres', 'allocated', _GPUS), 'node')})", "{{node}}"
                ),
            ),
        ),
        _lines(
            "GPUs of running and waiting jobs",
            Query(_sum(_part("jobs_gpus"), "state"), "{{state}}"),
        ),
    ),
)

_CYCLES = ("main", "backfill")
SCHEDULER = Dashboard(
    "slurm-scheduler",
    "Slurm / Scheduler",
    (
        _stat("Server threads", f"max({_of('scheduler_server_threads')})", warn=(100, 200)),
        _stat("Agent queue", f"max({_of('scheduler_agent_queue_size')})", warn=(100, 1000)),
        _stat("Records for slurmdbd", f"max({_of('scheduler_dbd_queue_size')})", warn=(500, 5000)),
        _stat(
            "Accounting is behind",
            f"max({_of('accounting_lag_seconds')})",
            unit="s",
            warn=(60, 600),
        ),
        _stat("A collection takes", f"max({_of('collection_duration_seconds')})", unit="s"),
        _stat("Pause between two", f"max({_of('collection_pause_seconds')})", unit="s"),
        _lines(
            "Last cycle",
            *tuple(Query(f"max({_of(f'scheduler_{c}_last_cycle_seconds')})", c) for c in _CYCLES),
            unit="s",
        ),
        _lines(
            "Cycles per second",
            *tuple(
                Query(f"sum(rate({_of(f'scheduler_{c}_cycles')}[$__rate_interval]))", c)
                for c in _CYCLES
            ),
        ),
        _lines(
            "Queue length seen by a cycle",
            *tuple(Query(f"max({_of(f'scheduler_{c}_queue_length')})", c) for c in _CYCLES),
        ),
        _lines(
            "Depth of a cycle",
            Query(f"max({_of('scheduler_main_mean_depth')})", "main, mean"),
            Query(f"max({_of('scheduler_backfill_last_depth')})", "backfill, last"),
        ),
        _lines(
            "Jobs started by backfill, per second",
            Query(f"sum(rate({_of('scheduler_backfilled_jobs')}[$__rate_interval]))", "backfill"),
        ),
        _lines(
            "Threads and agents",
            *tuple(
                Query(f"max({_of(f'scheduler_{name}')})", name.replace("_", " "))
                for name in ("server_threads", "agent_threads", "agents")
            ),
        ),
        _lines(
            "Requests by message",
            Query(f"topk(10, {_rate(_of('scheduler_rpc'), 'type')})", "{{type}}"),
            unit="reqps",
        ),
        _lines(
            "Time spent on requests, by message",
            Query(f"topk(10, {_rate(_of('scheduler_rpc_seconds'), 'type')})", "{{type}}"),
            about="Seconds a second: the part of one thread's time.",
        ),
        _lines(
            "Collections and failures, per second",
            Query(f"sum(rate({_of('collections')}[$__rate_interval]))", "collections"),
            Query(f"sum(rate({_of('collection_failures')}[$__rate_interval]))", "failures"),
            Query(f"sum(rate({_of('commands')}[$__rate_interval]))", "commands of Slurm"),
        ),
    ),
)

JOBS = Dashboard(
    "slurm-jobs",
    "Slurm / Jobs",
    (
        _lines(
            "Submitted, started and ended per second",
            *tuple(
                Query(f"sum(rate({_part(f'jobs_{what}')}[$__rate_interval]))", what)
                for what in ("submitted", "started", "ended")
            ),
        ),
        _lines(
            "Part of jobs that fail, last hour",
            Query(
                _grown(_part("jobs_ended", 'outcome!~"completed|cancelled"'), "partition")
                + " / "
                + _grown(_part("jobs_ended"), "partition"),
                "{{partition}}",
            ),
            unit="percentunit",
        ),
        Panel(
            "Waiting time",
            "heatmap",
            (Query(_grown(_part("job_wait_seconds"), "le", "$__rate_interval"), "{{le}}"),),
            unit="s",
        ),
        Panel(
            "Run time",
            "heatmap",
            (Query(_grown(_part("job_run_time_seconds"), "le", "$__rate_interval"), "{{le}}"),),
            unit="s",
        ),
        _lines(
            "Waiting time, 95 % of jobs of the last hour",
            _quantile(0.95, "job_wait_seconds", "{{partition}}", "le, partition"),
            unit="s",
        ),
        _lines(
            "Run time of the last hour",
            _quantile(0.5, "job_run_time_seconds", "half of the jobs"),
            _quantile(0.95, "job_run_time_seconds", "95 % of the jobs"),
            unit="s",
        ),
        _lines(
            "Jobs by partition",
            Query(
                _sum(_part("jobs", 'state=~"running|pending"'), "partition, state"),
                "{{partition}} {{state}}",
            ),
            stacked=True,
        ),
        _lines("CPUs of jobs", Query(_sum(_part("jobs_cpus"), "state"), "{{state}}")),
        _lines(
            "Memory of jobs",
            Query(_sum(_part("jobs_memory_bytes"), "state"), "{{state}}"),
            unit="bytes",
        ),
        Panel(
            "Why jobs wait, now",
            "table",
            (Query(f"sort_desc({_sum(_part('jobs_pending'), 'partition, reason')})"),),
        ),
    ),
)

DASHBOARDS = (OVERVIEW, USERS, NODES, SCHEDULER, JOBS)


def dashboard_files() -> dict[str, str]:
    """The JSON of each dashboard, by file name."""
    return {f"{d.uid}.json": json.dumps(as_grafana(d), indent=2) + "\n" for d in DASHBOARDS}
