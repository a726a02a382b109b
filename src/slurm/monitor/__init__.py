"""See the cluster: one collector, and what is made of its snapshots for Prometheus and Grafana.

Standard library only, so that it also runs where nothing but Python and Slurm's commands are.
"""

from __future__ import annotations

from slurm.monitor.collector import Collector, Health, View
from slurm.monitor.events import Event, JobEvent, NodeEvent
from slurm.monitor.snapshot import Snapshot

__all__ = ["Collector", "Event", "Health", "JobEvent", "NodeEvent", "Snapshot", "View"]
