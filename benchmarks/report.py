"""Turns sections into the table that people read and the JSON that programs read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.figures import Row, Section

_HEAD = ["what", "median", "lowest", "middle half", "n", "ratio", "target", "held"]


def markdown(sections: list[Section], facts: dict[str, str]) -> str:
    """The page of docs: what it ran on, then one table per question."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit. Peers run in turn with us in the same run, each in",
        "its own process and its own Python environment. The host is small and shared, so look at",
        "ratios and at the lowest values; *middle half* is where half of the samples lie.",
        "",
        *[f"- {name}: {value}" for name, value in facts.items()],
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", _line(_HEAD), _line(["---"] * len(_HEAD))]
        lines += [_line(_cells(row)) for row in section.rows]
        lines += [line for note in section.notes for line in ("", note)]
    return "\n".join(lines) + "\n"


def plain(section: Section) -> str:
    """One section for the terminal, in columns."""
    table = [_HEAD, *(_cells(row) for row in section.rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(_HEAD))]
    lines = [f"{section.title}   ({section.seconds:.0f} s)"]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join([*lines, *(f"  * {note}" for note in section.notes)]) + "\n"


def as_json(sections: list[Section], facts: dict[str, str]) -> dict[str, Any]:
    """Everything that was measured, each single sample included."""
    found = []
    for section in sections:
        rows = [dict(asdict(row), median=row.median, holds=row.holds) for row in section.rows]
        found.append(dict(asdict(section), rows=rows))
    return {"facts": facts, "sections": found}


def _cells(row: Row) -> list[str]:
    low, high = row.middle_half
    several = len(row.samples) > 1
    target = ""
    if row.limit is not None:
        target = f"<= {row.limit:g} " + ("x" if row.limit_of == "ratio" else row.unit)
    return [
        row.name,
        f"{_number(row.median)} {row.unit}",
        _number(row.lowest) if several else "",
        f"{_number(low)} .. {_number(high)}" if several else "",
        str(len(row.samples)),
        "" if row.ratio is None else f"{row.ratio:.2f} x",
        target,
        {None: "", True: "yes", False: "NO"}[row.holds],
    ]


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
