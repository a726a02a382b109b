"""Words for the queries and panels of our dashboards."""

from __future__ import annotations

from typing import Any

from slurm.monitor.families import FAMILIES
from slurm.monitor.grafana import Panel, Query

HERE = 'instance=~"$cluster"'
PARTS = f'{HERE},partition=~"$partition"'


def of(name: str, labels: str = HERE) -> str:
    """The series of one of our metrics, with labels; a wrong name is refused."""
    return f"{FAMILIES[name].series}{{{labels}}}"


def here(name: str, labels: str) -> str:
    """The same of this cluster, with further labels."""
    return of(name, f"{HERE},{labels}")


def part(name: str, labels: str = "") -> str:
    """The same of the chosen partitions."""
    return of(name, ",".join(filter(None, (PARTS, labels))))


def total(series: str, by: str = "") -> str:
    """The sum of series."""
    return f"sum by ({by}) ({series})" if by else f"sum({series})"


def ratio(some: str, whole: str, by: str) -> str:
    """A part of a whole, 0 to 1."""
    return f"{total(some, by)} / {total(whole, by)}"


def grown(series: str, by: str, over: str = "1h") -> str:
    """How much counters have grown."""
    return f"sum by ({by}) (increase({series}[{over}]))"


def rate(series: str, by: str, over: str = "$__rate_interval") -> str:
    """How fast counters grow, per second."""
    return f"sum by ({by}) (rate({series}[{over}]))"


def quantile(q: float, name: str, legend: str, by: str = "le") -> Query:
    """The value that this part of the jobs stays below."""
    return Query(f"histogram_quantile({q}, {grown(part(name), by)})", legend)


def stat(title: str, expr: str, **more: Any) -> Panel:
    """One number."""
    return Panel(title, "stat", (Query(expr),), width=4, **more)


def lines(title: str, *queries: Query, **more: Any) -> Panel:
    """Lines over time."""
    return Panel(title, "timeseries", queries, **more)


def node(name: str, kind: str, more: str = "") -> str:
    """The series of a kind (`total`, `allocated`, ...) of all nodes."""
    return of(name, ",".join(filter(None, (HERE, f'kind="{kind}"', more))))
