"""What the bridge counts and measures, for Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_FAST = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """All metrics of one bridge."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, namespace="slurm_bridge", registry=self.registry)
        counter = partial(Counter, namespace="slurm_bridge", registry=self.registry)
        seconds = partial(
            Histogram, namespace="slurm_bridge", registry=self.registry, buckets=_FAST
        )
        self.leader = gauge("leader", "1 where this replica acts")
        self.slurm_up = gauge("slurm_up", "1 where Slurm's last answer was good")
        self.breaker = gauge("breaker_open", "1 while evictions are stopped")
        self.pods = gauge("pods", "pods by where they are", ["state"])
        self.queue_age = gauge("queue_age_seconds", "age of the oldest waiting pod")
        self.jobs = gauge("jobs", "live placeholders")
        self.submits = counter("submits", "placeholders submitted")
        self.evictions = counter("evictions", "pods evicted", ["reason"])
        self.rest_errors = counter("rest_errors", "failed requests to Slurm", ["number", "kind"])
        self.admissions = counter("admissions", "pods seen at admission", ["answer"])
        self.rest_seconds = seconds("rest_seconds", "time of a request to Slurm", ["method"])
        self.submit_seconds = seconds("submit_seconds", "pod seen to placeholder submitted")
        self.place_seconds = seconds("place_seconds", "pod seen to node chosen")
        self.bind_seconds = seconds("bind_seconds", "pod seen to bound")

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)
