"""Drawings over time: lines, quantiles and bars in SVG, thinned so that many points stay cheap."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from slurm.web.markup import Html, h

WIDTH, HEIGHT = 960, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 26
#: No drawing has more points than it has columns of pixels to show them.
COLUMNS = 480
_STEPS = (60, 300, 600, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400)


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name, its kind, and (time, value) in the order of time."""

    name: str
    kind: str
    points: Sequence[tuple[float, float]]


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` points that look the same: of each column its lowest and its highest."""
    if len(points) <= most:
        return list(points)
    size = -(-2 * len(points) // most)
    found: list[tuple[float, float]] = []
    for begin in range(0, len(points), size):
        part = points[begin : begin + size]
        low, high = min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])
        found += sorted({low, high})
    return found


def ticks(begin: float, end: float, most: int = 8) -> list[tuple[float, str]]:
    """Round times between two, with what is written below each."""
    step = next((s for s in _STEPS if (end - begin) / s <= most), _STEPS[-1])
    offset = datetime.datetime.fromtimestamp(begin).astimezone().utcoffset()
    shift = offset.total_seconds() if offset else 0.0
    first = -(-(begin + shift) // step) * step - shift
    form = "%H:%M" if step < 86400 else "%m-%d"
    found = []
    while first <= end:
        found.append((first, datetime.datetime.fromtimestamp(first).strftime(form)))
        first += step
    return found


def nice(value: float) -> float:
    """The next round number above."""
    if value <= 0:
        return 1.0
    power = 10.0 ** len(str(int(value))) / 10
    return next((n * power for n in (1, 2, 3, 4, 5, 6, 8, 10) if n * power >= value), 10 * power)


def chart(
    lines: Sequence[Line], label: str, form: Callable[[float], str], top: float | None = None
) -> Html:
    """Lines over time, with a key; the whole is described by its label."""
    points = [point for line in lines for point in line.points]
    begin, end = min(p[0] for p in points), max(p[0] for p in points)
    end = max(end, begin + 60)
    high = top or nice(max(p[1] for p in points))

    def place(point: tuple[float, float]) -> str:
        x = LEFT + (point[0] - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - min(1.0, point[1] / high) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    drawn = [
        h(
            "polyline",
            points=" ".join(place(p) for p in thinned(line.points, COLUMNS)),
            cls=f"line line-{line.kind}",
        )
        for line in lines
    ]
    key = [h("span", h("span", cls=f"swatch line-{line.kind}"), line.name) for line in lines]
    svg = h(
        "svg",
        frame(begin, end, HEIGHT),
        [_level(high * n / 4, n / 4, form) for n in range(5)],
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=label,
        cls="chart",
    )
    return h("figure", svg, h("figcaption", key, cls="key"))


def frame(
    begin: float, end: float, height: float, top: float = TOP, left: float = LEFT
) -> list[Html]:
    """The lines and words of the axis of time."""
    found = []
    for moment, word in ticks(begin, end):
        x = left + (moment - begin) / (end - begin) * (WIDTH - left - RIGHT)
        found.append(
            h("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=top, y2=height - BOTTOM, cls="grid")
        )
        found.append(
            h("text", word, x=f"{x:.1f}", y=height - 8, cls="axis middle", data_tick=int(moment))
        )
    return found


def _level(value: float, part: float, form: Callable[[float], str]) -> tuple[Html, Html]:
    y = HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    return (
        h("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", cls="grid"),
        h("text", form(value), x=LEFT - 8, y=f"{y + 4:.1f}", cls="axis end"),
    )


def columns(counts: Sequence[tuple[str, int]], label: str) -> Html:
    """A histogram: a column for each name, its number above it."""
    most = max((n for _, n in counts), default=1) or 1
    wide = (WIDTH - 20) / max(1, len(counts))
    drawn = []
    for place, (name, number) in enumerate(counts):
        tall = number / most * (HEIGHT - 60)
        x = 10 + place * wide
        drawn.append(
            h(
                "rect",
                x=f"{x + 3:.1f}",
                y=f"{HEIGHT - 28 - tall:.1f}",
                width=f"{wide - 6:.1f}",
                height=f"{tall:.1f}",
                rx=3,
                cls="fill-use",
            )
        )
        middle = f"{x + wide / 2:.1f}"
        drawn.append(h("text", name, x=middle, y=HEIGHT - 10, cls="axis middle"))
        if number:
            y = f"{HEIGHT - 34 - tall:.1f}"
            drawn.append(h("text", f"{number:,}", x=middle, y=y, cls="axis middle strong"))
    return h(
        "svg", drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, cls="chart"
    )


def quantile_lines(values: Iterable[tuple[float, float]], bins: int = 60) -> list[Line]:
    """The median and the ninth decile of values over time, in so many steps."""
    known = sorted(values)
    if not known:
        return []
    begin, end = known[0][0], known[-1][0]
    step = max(1.0, (end - begin) / bins)
    parts: dict[int, list[float]] = {}
    for moment, value in known:
        parts.setdefault(int((moment - begin) / step), []).append(value)
    middle, most = [], []
    for number, those in sorted(parts.items()):
        moment = begin + (number + 0.5) * step
        deciles = quantiles(those, n=10, method="inclusive") if len(those) > 1 else those * 9
        middle.append((moment, deciles[4]))
        most.append((moment, deciles[8]))
    return [Line("half waited less", "one", middle), Line("nine of ten waited less", "two", most)]
