"""Dashboards as values, and what Grafana reads of them; what is shown is in `dashboards`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Shape = Literal["timeseries", "stat", "table", "bargauge", "heatmap"]
#: Grafana's words for units.
Unit = Literal["short", "s", "bytes", "percentunit", "reqps", "dateTimeFromNow"]

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH = 24
#: Height in Grafana's rows of each shape.
_HEIGHT = {"timeseries": 8, "stat": 4, "table": 9, "bargauge": 8, "heatmap": 8}


@dataclass(frozen=True)
class Query:
    """A question to Prometheus; `$cluster`, `$partition` are chosen on the dashboard."""

    expr: str
    #: `{{label}}` stands for its value.
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture with its questions."""

    title: str
    shape: Shape
    queries: tuple[Query, ...]
    unit: Unit = "short"
    #: In Grafana's columns of 24.
    width: int = 12
    #: One sentence for who does not know what it means.
    about: str = ""
    stacked: bool = False
    #: The value from which it is yellow, and red.
    warn: tuple[float, float] | None = None


@dataclass(frozen=True)
class Dashboard:
    """A page of panels."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


def as_grafana(dashboard: Dashboard) -> dict[str, Any]:
    """The JSON model that Grafana imports."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["slurm"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["slurm"], "title": "Slurm", "asDropdown": True}],
        "templating": {"list": _variables()},
        "panels": _placed(dashboard.panels),
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
    instance = _variable("cluster", "Cluster", "label_values(slurm_sdk_up, instance)")
    partitions = 'label_values(slurm_sdk_partition_up{instance=~"$cluster"}, partition)'
    return [source, instance, _variable("partition", "Partition", partitions)]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """The panels from left to right, then down."""
    found, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _WIDTH:
            x, y, tallest = 0, y + tallest, 0
        height = _HEIGHT[panel.shape]
        where = {"x": x, "y": y, "w": panel.width, "h": height}
        found.append({"id": number, "gridPos": where, **_panel(panel)})
        x, tallest = x + panel.width, max(tallest, height)
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    instant = panel.shape in ("table", "bargauge")
    targets = [
        {
            "refId": chr(ord("A") + n),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": instant,
            "range": not instant,
            "format": {"table": "table", "heatmap": "heatmap"}.get(panel.shape, "time_series"),
        }
        for n, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.shape,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        **({"transformations": _TABLE} if panel.shape == "table" else {}),
    }


#: The time of an instant query, and labels of the scrape, tell nothing in a table.
_TABLE = [
    {
        "id": "organize",
        "options": {"excludeByName": {"Time": True, "__name__": True, "job": True}},
    }
]


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.warn:
        steps += [
            {"color": c, "value": v} for c, v in zip(("yellow", "red"), panel.warn, strict=True)
        ]
    found: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.warn else "palette-classic"},
    }
    if panel.unit == "percentunit":
        found["max"] = 1
    if panel.unit == "dateTimeFromNow":
        del found["min"]
    if panel.shape == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none"}
        found["custom"] = {"fillOpacity": 30 if panel.stacked else 5, "stacking": stacking}
        found["color"] = {"mode": "palette-classic"}
    return found


def _options(panel: Panel) -> dict[str, Any]:
    if panel.shape == "timeseries":
        legend = {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.shape == "heatmap":
        return {"calculate": False, "yAxis": {"unit": panel.unit}, "cellGap": 1}
    if panel.shape in ("stat", "bargauge"):
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "orientation": "auto"}
    return {"showHeader": True}
