"""Plan -> what Prometheus scrapes, what Grafana finds at its start, and what our exporter is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import slurm
from slurm.monitor.alerts import FILE_NAME as RULES
from slurm.monitor.alerts import alert_rules
from slurm.monitor.dashboards import dashboard_files
from slurm.stack.plan import Plan
from slurm.stack.services import EXPORTER_PORT, NODE_EXPORTER_PORT, WRITTEN
from slurm.stack.yaml import dump

#: The part of this package that the exporter is; it needs Python's standard library alone.
_EXPORTER = (
    "*.py",
    *(f"{name}/**/*.py" for name in ("api", "model", "monitor", "rundir", "runner")),
)
# slurmctld's own numbers cost it locks; its makers advise a minute and more.
_OWN_METRICS = ("jobs", "nodes", "partitions", "scheduler")


def monitoring_files(plan: Plan) -> dict[str, str]:
    """The files of monitoring by their path in the cluster's directory."""
    if "prometheus" not in plan.addresses:
        return {}
    found = {
        "prometheus/prometheus.yml": dump(prometheus(plan), WRITTEN),
        f"prometheus/rules/{RULES}": alert_rules(),
        **{f"exporter/{name}": text for name, text in exporter_files().items()},
    }
    if "grafana" in plan.addresses:
        folder = "grafana/provisioning"
        found[f"{folder}/datasources/prometheus.yml"] = dump(grafana_source(), WRITTEN)
        found[f"{folder}/dashboards/slurm.yml"] = dump(grafana_dashboards(), WRITTEN)
        found.update({f"grafana/dashboards/{n}": text for n, text in dashboard_files().items()})
    return found


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


@cache
def exporter_files() -> dict[str, str]:
    """The exporter's own sources by their path below the folder that its container mounts."""
    top = Path(slurm.__file__).parent
    return {
        f"slurm/{path.relative_to(top).as_posix()}": path.read_text(encoding="utf-8")
        for pattern in _EXPORTER
        for path in sorted(top.glob(pattern))
    }
