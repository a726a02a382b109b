"""The dashboard of nodes and GPUs."""

from __future__ import annotations

from slurm.monitor.dashboards.promql import grown, lines, node, of, part, ratio, total
from slurm.monitor.grafana import Dashboard, Panel, Query

_GPUS = 'name="gpu"'
NODES = Dashboard(
    "slurm-nodes",
    "Slurm / Nodes and GPUs",
    (
        lines(
            "Nodes by state", Query(f"{total(of('nodes'), 'state')} > 0", "{{state}}"), stacked=True
        ),
        lines("Nodes by flag", Query(total(of("nodes_flag"), "flag"), "{{flag}}")),
        Panel(
            "Drained and down, with reason",
            "table",
            (
                Query(of("node_reason_info")),
                Query(of("node_reason_timestamp_seconds") + " * 1000"),
            ),
            width=24,
        ),
        lines(
            "CPUs in use, by node",
            Query(
                "topk(20, "
                + ratio(node("node_cpus", "allocated"), node("node_cpus", "total"), "node")
                + ")",
                "{{node}}",
            ),
            unit="percentunit",
        ),
        lines(
            "Memory given to jobs, by node",
            Query(
                "topk(20, "
                + ratio(
                    node("node_memory_bytes", "allocated"),
                    node("node_memory_bytes", "total"),
                    "node",
                )
                + ")",
                "{{node}}",
            ),
            unit="percentunit",
        ),
        lines(
            "Load over CPUs, by node",
            Query(
                f"topk(20, {total(of('node_load'), 'node')} / "
                f"{total(node('node_cpus', 'total'), 'node')})",
                "{{node}}",
            ),
            about="Far above 1: more runs there than Slurm gave out.",
        ),
        lines("Changes of nodes", Query(grown(of("node_changes"), "state"), "{{state}}")),
        lines(
            "GPUs",
            *tuple(
                Query(total(node("node_gres", kind, _GPUS)), kind)
                for kind in ("allocated", "total")
            ),
        ),
        lines(
            "GPUs in use, by type",
            Query(
                f"{total(node('node_gres', 'allocated', _GPUS), 'type')} / "
                f"{total(node('node_gres', 'total', _GPUS), 'type')}",
                "{{type}}",
            ),
            unit="percentunit",
        ),
        Panel(
            "GPUs in use, by node",
            "bargauge",
            (
                Query(
                    f"topk(32, {total(node('node_gres', 'allocated', _GPUS), 'node')})", "{{node}}"
                ),
            ),
        ),
        lines(
            "GPUs of running and waiting jobs",
            Query(total(part("jobs_gpus"), "state"), "{{state}}"),
        ),
    ),
)
