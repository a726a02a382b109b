"""The tasks of an array, or the calls of a map, as a grid of cells."""

from __future__ import annotations

from collections.abc import Sequence

from slurm.monitor.queue import JobRow
from slurm.web.groups import Group
from slurm.web.markup import Child, Html, address, h
from slurm.web.pieces import count, kind_of

#: Cells of one grid at most.
CELLS = 1000


def grid(group: Group) -> Html:
    """The tasks of an array, a cell each; colour, shape and words say the state."""
    cells: list[tuple[int, JobRow]] = []
    waiting: list[JobRow] = []
    for row in group.rows:
        number = row.job_id.partition("_")[2]
        if number.isdigit():
            cells.append((int(number), row))
        else:
            waiting.append(row)
    cells.sort(key=lambda item: item[0])
    shown = [
        cell(str(index), row.state, address("jobs", row.job_id)) for index, row in cells[:CELLS]
    ]
    rest: Sequence[Child] = [
        h(
            "p",
            f"{count(row.tasks)} more wait: ",
            h("code", row.job_id.partition("_")[2]),
            cls="dim",
        )
        for row in waiting
    ]
    hidden = len(cells) - CELLS
    more = h("p", f"{count(hidden)} more are not drawn.", cls="dim") if hidden > 0 else None
    return h("div", h("div", shown, cls="cells"), more, rest)


def cell(number: str, state: str, href: str) -> Html:
    """One task of an array."""
    kind = kind_of(state)
    words = f"{number}: {state.replace('_', ' ').lower()}"
    return h("a", h("span", words, cls="sr"), cls=f"cell {kind}", href=href, title=words)
