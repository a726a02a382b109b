"""Samples -> the text that Prometheus reads, in both of its formats; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm.monitor.families import FAMILIES, Family
from slurm.monitor.tally import Histogram

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_UNITS = ("seconds", "bytes", "ratio")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Value = float | Histogram


@dataclass
class Samples:
    """Values by metric and labels; a metric that is not in the table is refused."""

    found: dict[str, dict[tuple[str, ...], Value]] = field(default_factory=dict)

    def put(self, name: str, value: Value | None, *labels: str) -> None:
        """Set a value; None, for what is not known, sets none."""
        if len(FAMILIES[name].labels) != len(labels):
            raise ValueError(f"{name} has the labels {FAMILIES[name].labels}, not {labels}")
        if value is not None:
            self.found.setdefault(name, {})[labels] = value

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add to a value."""
        values = self.found.setdefault(name, {})
        before = values.get(labels, 0.0)
        self.put(name, value + (before if isinstance(before, (int, float)) else 0.0), *labels)

    def put_all(self, name: str, values: Mapping[str, float]) -> None:
        """Set the values of a metric with one label."""
        for label, value in values.items():
            self.put(name, value, label)


def render(samples: Samples, openmetrics: bool) -> bytes:
    """The text, without the mark of its end."""
    lines: list[str] = []
    for name, values in samples.found.items():
        if values:
            lines += _head(FAMILIES[name], openmetrics)
            for labels, value in values.items():
                lines += _sample(FAMILIES[name], labels, value)
    text = "".join(line + "\n" for line in lines)
    return text.encode("utf-8", "replace")


def _head(family: Family, openmetrics: bool) -> Iterable[str]:
    # The older format names a counter as its series, the newer one without the ending.
    counts = family.kind == "counter" and not openmetrics
    name = family.full_name + ("_total" if counts else "")
    yield f"# HELP {name} {family.meaning.translate(_ESCAPES) if openmetrics else family.meaning}"
    yield f"# TYPE {name} {family.kind}"
    unit = family.name.rpartition("_")[2]
    if openmetrics and unit in _UNITS:
        yield f"# UNIT {name} {unit}"


def _sample(family: Family, labels: tuple[str, ...], value: Value) -> Iterable[str]:
    both = zip(family.labels, labels, strict=True)
    pairs = [f'{key}="{text.translate(_ESCAPES)}"' for key, text in both]
    name = family.full_name
    if isinstance(value, Histogram):
        for bound, count in value.buckets:
            bucket = ",".join([*pairs, f'le="{bound}"'])
            yield f"{name}_bucket{{{bucket}}} {count}"
        among = f"{{{','.join(pairs)}}}" if pairs else ""
        yield f"{name}_sum{among} {number(value.total)}"
        yield f"{name}_count{among} {sum(value.counts)}"
        return
    among = f"{{{','.join(pairs)}}}" if pairs else ""
    yield f"{name}{'_total' if family.kind == 'counter' else ''}{among} {number(value)}"


def number(value: float) -> str:
    """A number as both formats write it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
