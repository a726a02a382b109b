"""The live lines in a notebook: one output of the cell that waits, renewed in place."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from slurm.callbacks.progress import Display, Row, Snapshot
from slurm.html import rows_html


class CellDisplay(Display):
    """A cell's output; what a later wait in the same cell shows is added to it."""

    period = 0.5
    #: The count of the cell that was drawn into last, its output, and the rows that are over.
    _last: tuple[object, Any, list[Row]] = (None, None, [])

    def __init__(self, snapshot: Callable[[], Snapshot], console: Any = None) -> None:
        super().__init__(snapshot)
        # A kernel has it; nobody else gets here.
        ipython: Any = importlib.import_module("IPython.display")
        self._html = ipython.HTML
        cell = sys.modules["IPython"].get_ipython().execution_count
        if CellDisplay._last[0] != cell:
            CellDisplay._last = (cell, ipython.display(ipython.HTML(""), display_id=True), [])
        _, self._output, self._ended = CellDisplay._last

    def draw(self, over: list[Row], live: list[Row]) -> None:
        """Renew the output."""
        self._ended += over
        self._output.update(self._html(rows_html([*self._ended, *live])))

    def close(self, over: list[Row], live: list[Row]) -> None:
        """Leave what is over; what is not is told by the last state that was seen."""
        self.draw(over, live)
