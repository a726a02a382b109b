"""What the terminal can show: its width, colour and letters; and tables that fit into it."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slurm.model.printable import printable, printable_log

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90", "bold": "1"}
_OF_PHASE = {"pending": "yellow", "active": "blue", "finished": "red", "unknown": "grey"}
# Begins a colour of ours until the line goes out. Random: no text of others holds it.
_PAINT = f"\0{secrets.token_hex(8)}\0"
#: What stands for a letter that the terminal cannot show.
_PLAIN = str.maketrans({"…": "~", "→": ">", "·": "-", "█": "#", "░": ".", "├": "|", "└": "`",
                        "─": "-", "│": "|"})  # fmt: skip


@dataclass(frozen=True)
class Screen:
    """How to write for whoever reads: `width` is None where nothing has to fit, as in a pipe."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour (red, green, yellow, blue, grey, bold), where there are any."""
        return f"{_PAINT}{_COLOURS[colour]}m{text}{_PAINT}0m" if self.colour and text else text

    def state(self, text: str, padded: str | None = None) -> str:
        """A job's state in its colour: green is good, blue runs, yellow waits, red went wrong."""
        from slurm.model.states import parse_state

        state = parse_state(text)
        colour = "green" if state.succeeded else _OF_PHASE[state.phase]
        return self.paint(text if padded is None else padded, colour)

    def plain(self, text: str) -> str:
        """The text in letters that the terminal has."""
        return text if self.unicode else text.translate(_PLAIN)

    def shown(self, line: str) -> str:
        """A line as it goes out: letters that the terminal has, and no colours but our own."""
        instead = "\ufffd" if self.unicode else "?"
        parts = (printable(self.plain(part), instead) for part in line.split(_PAINT))
        return "\x1b[".join(parts)

    def log(self, line: str) -> str:
        """A line that a job printed, with its own colours."""
        instead = "\ufffd" if self.unicode else "?"
        return printable_log(line, self.colour, instead).replace("\x1b[", _PAINT)

    def cut(self, text: str, width: int) -> str:
        """The text, cut to a width with a mark."""
        return text if len(text) <= width else text[: max(0, width - 1)] + self.plain("…")

    def wrap(self, text: str, indent: str = "", first: str | None = None) -> Iterator[str]:
        """The lines of a text that fit the width; only between words, so that commands stay."""
        begin = indent if first is None else first
        if self.width is None:
            yield from (begin + line for line in text.splitlines() or [""])
            return
        for line in text.splitlines() or [""]:
            yield from textwrap.wrap(
                line,
                max(self.width, len(begin) + 10),
                initial_indent=begin,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [begin.rstrip()]
            begin = indent


@dataclass(frozen=True)
class Column:
    """One column: its head, whether its cells are numbers, and when it may be left out.

    Columns with a higher `spare` are left out first where the terminal is narrow; 0 never is.
    """

    head: str
    right: bool = False
    spare: int = 0
    is_state: bool = False


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], screen: Screen
) -> Iterator[str]:
    """The lines of a table; it is narrowed until it fits the screen."""
    texts = [["" if cell is None else screen.plain(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip([c.head for c in columns], *texts, strict=True)]
    shown = _shown(columns, widths, screen)
    heads = [_pad(columns[i], columns[i].head, widths[i]) for i in shown]
    yield screen.paint("  ".join(heads).rstrip(), "bold")
    for row in texts:
        cells = []
        for i in shown:
            cell = _pad(columns[i], screen.cut(row[i], widths[i]), widths[i])
            if screen.colour and columns[i].is_state:
                cell = screen.state(row[i], cell)
            cells.append(cell)
        yield "  ".join(cells).rstrip()


def _shown(columns: Sequence[Column], widths: list[int], screen: Screen) -> list[int]:
    """The columns that fit, their widths narrowed where even those that must be there do not."""
    shown = list(range(len(columns)))
    if screen.width is None:
        return shown
    while _width(widths, shown) > screen.width:
        spare = max(shown, key=lambda i: columns[i].spare)
        if not columns[spare].spare:
            break
        shown.remove(spare)
    excess = _width(widths, shown) - screen.width
    if excess > 0:
        widest = max(shown, key=lambda i: widths[i])
        widths[widest] = max(4, widths[widest] - excess)
    return shown


def _width(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[i] for i in shown) + 2 * (len(shown) - 1)


def _pad(column: Column, text: str, width: int) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def span(seconds: float | None) -> str:
    """A time in a few letters: `8s`, `2m05s`, `3h07m`, `4d02h`; nothing for None."""
    if seconds is None:
        return ""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def bar(part: float, whole: float, width: int = 8) -> str:
    """A bar that is as full as it says."""
    full = round(width * min(1.0, max(0.0, part / whole))) if whole else 0
    return "█" * full + "░" * (width - full)


def size(count: float) -> str:
    """Bytes in a unit that a person reads."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def ago(when: float, now: float) -> str:
    """How long ago something was, in its largest unit."""
    seconds = max(0, int(now - when))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def screen_of(stream: object = None) -> Screen:
    """The screen behind standard output, or behind another stream."""
    out = sys.stdout if stream is None else stream
    encoding = (getattr(out, "encoding", None) or "ascii").lower().replace("-", "")
    terminal = bool(getattr(out, "isatty", lambda: False)())
    quiet = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return Screen(
        width=shutil.get_terminal_size().columns if terminal else None,
        colour=terminal and not quiet,
        unicode=encoding.startswith("utf"),
    )
