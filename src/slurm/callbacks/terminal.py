"""The live lines on a terminal, drawn by rich."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from slurm.callbacks.progress import MOST, Display, Row, Snapshot, clock

_SPIN, _PLAIN_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
_BAR = 24


class TerminalDisplay(Display):
    """Lines at the bottom of the terminal; what is over scrolls away above them."""

    def __init__(self, snapshot: Callable[[], Snapshot], console: Console | None = None) -> None:
        super().__init__(snapshot)
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def draw(self, over: list[Row], live: list[Row]) -> None:
        """Print what is over above the live lines, and renew these."""
        if not self._live.is_started:
            self._live.start()
        for row in over:
            self._print(row)
        shown = [self._line(row) for row in live[:MOST]]
        if len(live) > MOST:
            shown.append(Text(f"  and {len(live) - MOST} more runs", style="dim"))
        self._live.update(Group(*shown), refresh=True)

    def close(self, over: list[Row], live: list[Row]) -> None:
        """Take the live lines away."""
        self._live.stop()
        for row in over:
            self._print(row)

    def _print(self, row: Row) -> None:
        # A Text of its own would be wrapped here, whatever it says itself.
        text = self._line(row)
        self._console.print(text, no_wrap=True, overflow=text.overflow)

    def _line(self, row: Row) -> Text:
        return line(row, unicode=self._console.encoding.lower().startswith("utf"))


def line(row: Row, *, unicode: bool) -> Text:
    """A run in one line; it is cut off where the terminal ends."""
    # The mark of an ellipsis is a letter that not every terminal has.
    text = Text(no_wrap=True, overflow="ellipsis" if unicode else "crop")
    if row.over:
        mark = ("✗" if unicode else "x") if row.failed else ("✓" if unicode else "+")
        text.append(f"{mark} ", style="red" if row.failed else "green")
    else:
        frames = _SPIN if unicode else _PLAIN_SPIN
        text.append(frames[int(time.monotonic() * 8) % len(frames)] + " ", style="cyan")
    text.append(row.name, style="bold")
    if row.job_id:
        text.append(f" {row.job_id}", style="dim")
    if row.is_array:
        text.append(" ")
        text.append_text(_bar(row, unicode))
        text.append(f" {row.done}/{row.total}")
    words = row.words()
    if words:
        text.append(f"  {words}", style="red" if row.failed else "")
    text.append(f"  {clock(row.elapsed)}", style="dim")
    return text


def _bar(row: Row, unicode: bool) -> Text:
    full = round(_BAR * row.done / row.total) if row.total else _BAR
    bad = min(full, -(-_BAR * row.failed // row.total)) if row.total else 0
    dash, rest = ("━", "─") if unicode else ("#", ".")
    parts: list[Any] = [
        (dash * (full - bad), "green"),
        (dash * bad, "red"),
        (rest * (_BAR - full), "dim"),
    ]
    return Text.assemble(*parts)
