"""The dashboard of jobs: how many, how long they wait and run."""

from __future__ import annotations

from slurm.monitor.dashboards.promql import grown, lines, part, quantile, total
from slurm.monitor.grafana import Dashboard, Panel, Query

JOBS = Dashboard(
    "slurm-jobs",
    "Slurm / Jobs",
    (
        lines(
            "Submitted, started and ended per second",
            *tuple(
                Query(f"sum(rate({part(f'jobs_{what}')}[$__rate_interval]))", what)
                for what in ("submitted", "started", "ended")
            ),
        ),
        lines(
            "Part of jobs that fail, last hour",
            Query(
                grown(part("jobs_ended", 'outcome!~"completed|cancelled"'), "partition")
                + " / "
                + grown(part("jobs_ended"), "partition"),
                "{{partition}}",
            ),
            unit="percentunit",
        ),
        Panel(
            "Waiting time",
            "heatmap",
            (Query(grown(part("job_wait_seconds"), "le", "$__rate_interval"), "{{le}}"),),
            unit="s",
        ),
        Panel(
            "Run time",
            "heatmap",
            (Query(grown(part("job_run_time_seconds"), "le", "$__rate_interval"), "{{le}}"),),
            unit="s",
        ),
        lines(
            "Waiting time, 95 % of jobs of the last hour",
            quantile(0.95, "job_wait_seconds", "{{partition}}", "le, partition"),
            unit="s",
        ),
        lines(
            "Run time of the last hour",
            quantile(0.5, "job_run_time_seconds", "half of the jobs"),
            quantile(0.95, "job_run_time_seconds", "95 % of the jobs"),
            unit="s",
        ),
        lines(
            "Jobs by partition",
            Query(
                total(part("jobs", 'state=~"running|pending"'), "partition, state"),
                "{{partition}} {{state}}",
            ),
            stacked=True,
        ),
        lines("CPUs of jobs", Query(total(part("jobs_cpus"), "state"), "{{state}}")),
        lines(
            "Memory of jobs",
            Query(total(part("jobs_memory_bytes"), "state"), "{{state}}"),
            unit="bytes",
        ),
        Panel(
            "Why jobs wait, now",
            "table",
            (Query(f"sort_desc({total(part('jobs_pending'), 'partition, reason')})"),),
        ),
    ),
)
