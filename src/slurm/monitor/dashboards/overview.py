"""The dashboard of the whole cluster."""

from __future__ import annotations

from slurm.monitor.dashboards.promql import (
    here,
    lines,
    node,
    of,
    part,
    quantile,
    rate,
    ratio,
    stat,
    total,
)
from slurm.monitor.grafana import Dashboard, Panel, Query


def _cpus(kind: str) -> str:
    return part("partition_cpus", f'kind="{kind}"')


OVERVIEW = Dashboard(
    "slurm-overview",
    "Slurm / Cluster overview",
    (
        stat("Controller", f"min({of('up')})", about="1: slurmctld answered the last collection."),
        stat("Age of these data", f"max({of('snapshot_age_seconds')})", unit="s", warn=(60, 300)),
        stat("Jobs running", total(part("jobs", 'state="running"'))),
        stat("Jobs waiting", total(part("jobs", 'state="pending"'))),
        stat("Nodes usable", total(of("nodes_usable"))),
        stat(
            "Nodes drained or down",
            total(here("nodes", 'state=~"down|error"'))
            + " + "
            + total(here("nodes_flag", 'flag="drain"')),
            warn=(1, 5),
        ),
        lines(
            "CPUs",
            *tuple(
                Query(total(node("node_cpus", kind)), kind)
                for kind in ("allocated", "idle", "total")
            ),
        ),
        lines(
            "CPUs in use, by partition",
            Query(
                ratio(_cpus("allocated"), _cpus("total"), "partition"),
                "{{partition}}",
            ),
            unit="percentunit",
        ),
        lines(
            "Memory",
            *tuple(
                Query(total(node("node_memory_bytes", kind)), kind)
                for kind in ("allocated", "free", "total")
            ),
            unit="bytes",
            about="Allocated is what jobs were given; free is what the nodes' systems say.",
        ),
        lines(
            "Jobs by state",
            Query(
                total(part("jobs", 'state=~"running|pending|completing|suspended"'), "state"),
                "{{state}}",
            ),
            stacked=True,
        ),
        lines(
            "Why jobs wait",
            Query(total(part("jobs_pending"), "reason"), "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Jobs ended per second",
            Query(rate(part("jobs_ended"), "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Waiting time of the last hour",
            quantile(0.5, "job_wait_seconds", "half of the jobs"),
            quantile(0.95, "job_wait_seconds", "95 % of the jobs"),
            unit="s",
        ),
        lines(
            "Licences in use",
            Query(
                total(here("license", 'kind="used"'), "license"),
                "{{license}}",
            ),
        ),
        Panel(
            "Reservations",
            "table",
            (Query(of("reservation_nodes")),),
            width=24,
            about="Nodes that are set aside, and whether the reservation is active now.",
        ),
    ),
)
