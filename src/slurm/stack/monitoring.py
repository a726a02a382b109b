"""Plan -> what Prometheus scrapes and what Grafana finds at its start; pure functions."""

from __future__ import annotations

from typing import Any

from slurm.stack.compose import EXPORTER_PORT, NODE_EXPORTER_PORT
from slurm.stack.plan import Plan

# slurmctld's own numbers cost it locks; its makers advise a minute and more.
_OWN_METRICS = ("jobs", "nodes", "partitions", "scheduler")


def prometheus(plan: Plan) -> dict[str, Any]:
    """prometheus.yml: every 15 s, from the services by their names."""
    jobs = [_job("prometheus", "localhost:9090"), _job("slurm", f"slurm-exporter:{EXPORTER_PORT}")]
    if "node-exporter" in plan.addresses:
        jobs.append(_job("node", f"node-exporter:{NODE_EXPORTER_PORT}"))
    if plan.since("25.11"):
        jobs += [_own(plan, what) for what in _OWN_METRICS]
    return {
        "global": {
            "scrape_interval": "15s",
            "evaluation_interval": "15s",
            "external_labels": {"cluster": plan.topology.name},
        },
        "rule_files": ["/etc/prometheus/rules/*.yml"],
        "scrape_configs": jobs,
    }


def _job(name: str, target: str) -> dict[str, Any]:
    return {"job_name": name, "static_configs": [{"targets": [target]}]}


def _own(plan: Plan, what: str) -> dict[str, Any]:
    return {
        "job_name": f"slurmctld-{what}",
        "metrics_path": f"/metrics/{what}",
        "scrape_interval": "60s",
        "static_configs": [{"targets": [f"slurmctld:{plan.slurmctld_port}"]}],
    }


def grafana_source() -> dict[str, Any]:
    """Grafana's provisioning of its data source."""
    source = {
        "name": "Prometheus",
        "uid": "prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": "http://prometheus:9090",
        "isDefault": True,
        "jsonData": {"timeInterval": "15s"},
    }
    return {"apiVersion": 1, "datasources": [source]}


def grafana_dashboards() -> dict[str, Any]:
    """Grafana's provisioning of the folder with dashboards."""
    folder = {
        "name": "Slurm",
        "folder": "Slurm",
        "type": "file",
        "options": {"path": "/var/lib/grafana/dashboards"},
    }
    return {"apiVersion": 1, "providers": [folder]}
