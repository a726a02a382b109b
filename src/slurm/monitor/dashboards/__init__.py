"""The dashboards for Grafana: overview, users and accounts, nodes and GPUs, scheduler, jobs."""

from __future__ import annotations

import json

from slurm.monitor.dashboards.jobs import JOBS
from slurm.monitor.dashboards.nodes import NODES
from slurm.monitor.dashboards.overview import OVERVIEW
from slurm.monitor.dashboards.scheduler import SCHEDULER
from slurm.monitor.dashboards.users import USERS
from slurm.monitor.grafana import as_grafana

DASHBOARDS = (OVERVIEW, USERS, NODES, SCHEDULER, JOBS)


def dashboard_files() -> dict[str, str]:
    """The JSON of each dashboard, by file name."""
    return {f"{d.uid}.json": json.dumps(as_grafana(d), indent=2) + "\n" for d in DASHBOARDS}
