"""Line and dot charts as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, BELOW, ABOVE, RIGHT = 640, 360, 70, 44, 34, 150
#: Told apart also without colour: each line has its own mark.
COLOURS = (
    "#0b6e99", "#c2410c", "#4d7c0f", "#7e22ce", "#b91c1c", "#475569", "#0f766e", "#be185d",
)  # fmt: skip
MARKS = ("●", "■", "▲", "◆", "▼", "✚", "★", "◉")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Axis:
    """Where a value lies between 0 and 1, and the values that get a line and a word."""

    share: Callable[[float], float]
    ticks: Mapping[float, str]


def log_chart(title: str, x_name: str, y_name: str, lines: Mapping[str, Points]) -> str:
    """An SVG with one line for each name; both axes are logarithmic."""
    known = {name: [point for point in points if point[1] > 0] for name, points in lines.items()}
    axes = [_log_axis([point[i] for points in known.values() for point in points]) for i in (0, 1)]
    return _chart(title, (x_name, y_name), known, axes[0], axes[1])


def line_chart(title: str, x_name: str, y_name: str, lines: Mapping[str, Points]) -> str:
    """An SVG with one line for each name; both axes begin at 0."""
    axes = [_even_axis([point[i] for points in lines.values() for point in points]) for i in (0, 1)]
    return _chart(title, (x_name, y_name), lines, axes[0], axes[1])


def _chart(
    title: str, names: tuple[str, str], lines: Mapping[str, Points], across: _Axis, up: _Axis
) -> str:
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - ABOVE - BELOW

    def place(x_share: float, y_share: float) -> tuple[float, float]:
        return LEFT + x_share * wide, HEIGHT - BELOW - y_share * high

    parts = _frame(title, WIDTH, HEIGHT)
    for value, word in across.ticks.items():
        x, y = place(across.share(value), 0)
        parts.append(_line((x, y), place(across.share(value), 1)))
        parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{word}</text>')
    for value, word in up.ticks.items():
        x, y = place(0, up.share(value))
        parts.append(_line((x, y), place(1, up.share(value))))
        parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{word}</text>')
    middle, turn = (LEFT + WIDTH - RIGHT) / 2, f'transform="rotate(-90 16 {HEIGHT / 2})"'
    parts += [
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(names[0])}</text>',
        f'<text x="16" y="{HEIGHT / 2}" {turn} text-anchor="middle">{escape(names[1])}</text>',
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour, mark = _look(number)
        placed = [place(across.share(x), up.share(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<text x="{x:.1f}" y="{y + 4:.1f}" fill="{colour}" text-anchor="middle">{mark}</text>'
            for x, y in placed
        ]
        top = ABOVE + 14 + 18 * number
        parts.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{top}" fill="{colour}">{mark} {escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _log_axis(values: Sequence[float]) -> _Axis:
    low, high = _decades(min(values), max(values))
    ticks = {10.0**decade: _si(decade) for decade in range(low, high + 1)}
    return _Axis(lambda value: (math.log10(value) - low) / (high - low), ticks)


def _even_axis(values: Sequence[float]) -> _Axis:
    """From 0 on, with a tick at about five round numbers."""
    rough = max(*values, 1e-9) / 5
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(n * decade for n in (1, 2, 5, 10) if n * decade >= rough)
    count = math.ceil(max(values) / step - 1e-9)
    ticks = {step * n: f"{step * n:g}" for n in range(count + 1)}
    return _Axis(lambda value: value / (step * count), ticks)


class Dot(NamedTuple):
    """A value, and whether it is only known to be at least that."""

    value: float
    at_least: bool = False


def dot_chart(title: str, names: Sequence[str], rows: Mapping[str, Mapping[str, Dot]]) -> str:
    """An SVG with a line for each row and a mark for each name on it; the axis is logarithmic."""
    left, step, head, width = 300, 22, 64, 860
    values = [dot.value for row in rows.values() for dot in row.values() if dot.value > 0]
    low, high = _decades(min(1.0, *values), max(1.0, *values))
    height = head + step * len(rows) + 34
    bottom = height - 28

    def across(value: float) -> float:
        return left + (math.log10(value) - low) / (high - low) * (width - left - 24)

    parts = _frame(title, width, height)
    for number, name in enumerate(names):
        colour, mark = _look(number)
        x = 16 + number * (width - 32) / len(names)
        parts.append(f'<text x="{x:.0f}" y="42" fill="{colour}">{mark} {escape(name)}</text>')
    for decade in range(low, high + 1):
        x = across(10.0**decade)
        parts.append(_line((x, head - 10), (x, bottom)))
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">'
                     f"{_si(decade)} x</text>")  # fmt: skip
    ends = f'x1="{across(1):.1f}" y1="{head - 10}" x2="{across(1):.1f}" y2="{bottom}"'
    parts.append(f'<line {ends} stroke="#334155" stroke-width="2"/>')
    for number, (row, dots) in enumerate(rows.items()):
        y = head + 4 + step * number
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(row)}</text>')
        parts.append(_line((left, y), (width - 24, y)))
        for name, dot in dots.items():
            if dot.value > 0:
                colour, mark = _look(names.index(name))
                x = across(dot.value) - 5
                parts.append(f'<text x="{x:.1f}" y="{y + 4}" fill="{colour}">{mark}'
                             f"{'→' if dot.at_least else ''}</text>")  # fmt: skip
    return "\n".join([*parts, "</svg>\n"])


def _frame(title: str, width: int, height: int) -> list[str]:
    """A white card, which is readable on a dark page too."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="12" fill="#334155">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="16" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]


def _look(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]


def _decades(low: float, high: float) -> tuple[int, int]:
    first = math.floor(math.log10(low) + 1e-9)
    return first, max(first + 1, math.ceil(math.log10(high) - 1e-9))


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    ends = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {ends} stroke="#e2e8f0"/>'


def _si(decade: int) -> str:
    if decade < 0:
        return f"{10.0**decade:g}"
    return f"{10 ** (decade % 3)}{['', 'k', 'M', 'G', 'T'][decade // 3]}"


def exponent(points: Points) -> float:
    """How a line grows: the slope of the straight line through its points on these axes."""
    logs = [(math.log(x), math.log(y)) for x, y in points if y > 0]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    over = sum((x - mean_x) * (y - mean_y) for x, y in logs)
    return over / sum((x - mean_x) ** 2 for x, _ in logs)
