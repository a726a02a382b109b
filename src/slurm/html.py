"""What a notebook shows for a job, an array, a cluster and for progress: small pieces of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape as _escape
from typing import TYPE_CHECKING, Any

from slurm.model.printable import printable

if TYPE_CHECKING:
    from slurm.array import ArrayJob
    from slurm.callbacks.progress import Row
    from slurm.cluster import Cluster
    from slurm.job import Job
    from slurm.model.states import JobState

# Colours that can be read on white and on black.
_GOOD, _BAD, _BUSY, _WAIT = "#2e9e4f", "#d0453a", "#2f7fd0", "#8a8a8a"


def escape(text: str) -> str:
    """Any text, to be seen as it is."""
    return _escape(printable(text))


def job_html(job: Job[Any]) -> str:
    """A job: its state, where it runs, how long, and where its run lies."""
    state = job.known_state
    took = job.timings.elapsed
    facts = {
        "state": _badge(state.value, _colour(state, job.succeeded)),
        "reason": escape(job.reason) if not job.succeeded else "",
        "node": escape(job.node or ""),
        "time": f"{took:.1f} s" if took is not None else "",
        "run": f"<code>{escape(job.run)}</code>",
    }
    return _card(f"{job.name} · job {job.id or '-'}", facts)


def array_html(array: ArrayJob[Any]) -> str:
    """An array: a bar, and how many elements are in each state."""
    counts = array.known_states()
    total = len(array) or 1
    order = sorted(counts.items(), key=lambda item: -item[1])
    pieces = [(n / total, _colour(state, state.value == "COMPLETED")) for state, n in order]
    states = " ".join(
        _badge(f"{n} {state.value}", _colour(state, state.value == "COMPLETED"))
        for state, n in order
    )
    facts = {"": _bar(pieces), "states": states, "run": f"<code>{escape(array.run)}</code>"}
    return _card(f"{array.name} · {len(array)} items", facts)


def cluster_html(cluster: Cluster) -> str:
    """A cluster: how it is reached, where runs lie, and the defaults of its tasks."""
    defaults = ", ".join(f"{k}={v}" for k, v in cluster.defaults.items())
    facts = {
        "runs": f"<code>{escape(cluster.directory)}</code>",
        "packaging": escape(cluster.packaging.kind),
        "defaults": escape(defaults),
        "callbacks": escape(", ".join(type(one).__name__ for one in cluster.callbacks)),
    }
    return _card(f"Cluster · {cluster.backend_type}{cluster.host and ' ' + cluster.host}", facts)


def rows_html(rows: Iterable[Row]) -> str:
    """The runs that somebody waits for, one line each."""
    from slurm.callbacks.progress import clock

    lines = []
    for row in rows:
        mark, colour = ("●", _BUSY if row.state.phase == "active" or row.running else _WAIT)
        if row.over:
            mark, colour = ("✗", _BAD) if row.failed else ("✓", _GOOD)
        bar = ""
        if row.is_array and row.total:
            good = (row.done - row.failed) / row.total
            bar = _bar([(good, _GOOD), (row.failed / row.total, _BAD)], width=12)
            bar += f" {row.done}/{row.total}"
        cells = (
            f'<span style="color:{colour}">{mark}</span>',
            f"<b>{escape(row.name)}</b>",
            escape(row.job_id),
            bar,
            escape(row.words()),
            clock(row.elapsed),
        )
        lines.append("<tr>" + "".join(_cell(cell) for cell in cells) + "</tr>")
    return f'<table style="border:none">{"".join(lines)}</table>'


def _colour(state: JobState, good: bool) -> str:
    if good:
        return _GOOD
    return {"pending": _WAIT, "active": _BUSY}.get(state.phase, _BAD)


def _badge(text: str, colour: str) -> str:
    return f'<span style="color:{colour};font-weight:600">{escape(text)}</span>'


def _bar(pieces: Iterable[tuple[float, str]], width: int = 20) -> str:
    inner = "".join(
        f'<span style="display:inline-block;height:100%;width:{100 * part:.2f}%;'
        f'background:{colour}"></span>'
        for part, colour in pieces
        if part
    )
    return (
        f'<span style="display:inline-block;width:{width}em;height:.7em;background:#8883;'
        f'border-radius:.3em;overflow:hidden;white-space:nowrap;line-height:0">{inner}</span>'
    )


def _card(title: str, facts: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr>{_cell(escape(name))}{_cell(value)}</tr>" for name, value in facts.items() if value
    )
    return f'<div><b>{escape(title)}</b><table style="border:none">{rows}</table></div>'


def _cell(content: str) -> str:
    return f'<td style="text-align:left;padding:0 .8em 0 0;border:none">{content}</td>'
