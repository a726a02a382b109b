"""Turns sections into columns for the terminal and into the JSON that is kept, and back."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from benchmarks.figures import Row, Section

HEAD = ["what", "median", "lowest", "middle half", "n", "ratio", "target", "held"]


def plain(section: Section) -> str:
    """One section for the terminal, in columns."""
    table = [HEAD]
    for row in section.rows:
        first, *rest = cells(row)
        table.append([f"{row.question}: {first}" if row.question else first, *rest])
    widths = [max(len(row[i]) for row in table) for i in range(len(HEAD))]
    lines = [f"{section.title}   ({section.seconds:.0f} s)"]
    for line_of_words in table:
        words = [cell.ljust(width) for cell, width in zip(line_of_words, widths, strict=True)]
        lines.append("  " + "  ".join(words).rstrip())
    return "\n".join([*lines, *(f"  * {note}" for note in section.notes)]) + "\n"


def as_json(sections: list[Section], facts: dict[str, str]) -> dict[str, Any]:
    """Everything that was measured, each single sample included."""
    found = []
    for section in sections:
        rows = [dict(asdict(row), median=row.median, holds=row.holds) for row in section.rows]
        found.append(dict(asdict(section), rows=rows))
    return {"facts": facts, "sections": found}


def from_json(kept: dict[str, Any]) -> list[Section]:
    """The sections that were kept."""
    names = {field.name for field in fields(Row)}
    found = []
    for section in kept["sections"]:
        rows = tuple(
            Row(**{name: _value(value) for name, value in row.items() if name in names})
            for row in section["rows"]
        )
        found.append(Section(section["title"], rows, tuple(section["notes"]), section["seconds"]))
    return found


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def measure(row: Row) -> str:
    """A median with its unit, in words that fit."""
    value, unit = row.median, row.unit
    if unit == "ms" and value >= 1000:
        value, unit = value / 1000, "s"
    elif unit == "s" and value < 1:
        value, unit = value * 1000, "ms"
    elif unit == "KiB" and value >= 1024:
        value, unit = value / 1024, "MiB"
    return ("> " * row.late) + f"{number(value)} {unit}".strip()


def cells(row: Row) -> list[str]:
    """The row's cells under `HEAD`."""
    low, high = row.middle_half
    several = len(row.samples) > 1
    target = ""
    if row.limit is not None:
        target = f"<= {row.limit:g} " + ("x" if row.limit_of == "ratio" else row.unit)
    return [
        row.name,
        measure(row),
        _part(row, row.lowest) if several else "",
        f"{_part(row, low)} .. {_part(row, high)}" if several else "",
        str(len(row.samples)),
        "" if row.ratio is None else f"{row.ratio:.2f} x",
        target,
        {None: "", True: "yes", False: "NO"}[row.holds],
    ]


def _part(row: Row, value: float) -> str:
    return measure(replace(row, samples=(value,), over=()))


def number(value: float) -> str:
    """A few digits, for a reader."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def line(words: list[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(words) + " |"
