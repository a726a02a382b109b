"""Runs of this SDK: the list, and one run with its graph and its calls as a grid of cells."""

from __future__ import annotations

from collections.abc import Mapping

from slurm.errors import SlurmError
from slurm.graph import Graph, Node, layers, read_graph
from slurm.runlist import ListedRun, RunList
from slurm.web.cells import CELLS, cell
from slurm.web.kept import TooManyQuestions
from slurm.web.markup import Child, Html, address, h
from slurm.web.pieces import (
    MARKS,
    Page,
    at,
    bar,
    card,
    chip,
    count,
    empty,
    facts,
    job_link,
    kind_of,
    lasted,
    table,
)
from slurm.web.site import Scene, Site

#: Runs of the list, and seconds that a look into the directories is good for.
LISTED, FRESH = 100, 4.0
_WIDE, _HIGH, _GAP_X, _GAP_Y = 200, 52, 56, 18


def runs_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """The newest runs."""
    if site.rules.per_user:
        words = "Runs lie in each user's own directory."
        return Page("Runs", empty(words, "Start your own: slurm dashboard."), "runs")
    try:
        found, total = site.answers.get(("runs",), FRESH, lambda: _look(site))
    except TooManyQuestions:
        raise  # said to this viewer alone
    except SlurmError as error:
        return Page("Runs", empty("The runs cannot be read.", error.message, "✕"), "runs", FRESH)
    if not found:
        words = "No runs yet."
        hint = ("Decorate a function with ", h("code", "@task"), " and call it; it shows up here.")
        return Page("Runs", empty(words, hint), "runs", FRESH)
    heads = ("Run", "Task", "Kind", "State", "Submitted", "Took", "Job")
    rows = [_line(run, scene) for run in found]
    note = f"the newest {len(found)} of {count(total)}" if total > len(found) else count(total)
    body = card("Runs", table(heads, rows, "Runs", "rows"), note=note)
    return Page("Runs", body, "runs", FRESH)


def _look(site: Site) -> tuple[list[ListedRun], int]:
    backend = site.cluster.backend
    return RunList(backend.target).look(backend, LISTED)


def _line(run: ListedRun, scene: Scene) -> Html:
    took = None
    if run.started:
        took = (run.ended if run.over and run.ended else scene.now) - run.started
    return h(
        "tr",
        h("td", h("a", run.run, href=address("runs", *run.run.split("/")), cls="id")),
        h("td", h("span", run.task, cls="name")),
        h("td", run.kind),
        h("td", _state(run)),
        h("td", at(run.submitted)),
        h("td", lasted(took), cls="num"),
        h("td", job_link(run.job_id.partition(";")[0]) if run.job_id else None),
        id=f"run-{run.run}",
        data_row=True,
    )


def _state(run: ListedRun) -> Html:
    if run.jobs == 1:
        return chip(run.state)
    words = ", ".join(f"{count(n)} {state.lower()}" for state, n in run.states.items()) or "waiting"
    parts = sorted(
        ((kind_of(state), n / run.jobs) for state, n in run.states.items()),
        key=lambda part: ("good", "bad", "active", "pending", "unknown").index(part[0]),
    )
    return h("span", bar(parts, words), h("span", words, cls="words"), cls="progress")


def run_page(site: Site, scene: Scene, query: Mapping[str, str], run: str) -> Page:
    """One run: its graph with states that live, and the calls of a map."""
    if site.rules.per_user:
        return runs_page(site, scene, query)
    try:
        graph = site.answers.get(("graph", run), FRESH, lambda: read_graph(site.cluster, run))
    except TooManyQuestions:
        raise  # said to this viewer alone
    except SlurmError as error:
        return Page(run, empty("This run cannot be shown.", error.message, "✕"), "runs", 0, 404)
    root = graph.root
    kept = root.job_id.partition(";")[0]
    head = h(
        "header",
        h("div", h("h1", root.title), chip(root.state), cls="title"),
        h("p", h("code", root.run)),
        cls="page-head",
    )
    about = facts(
        {
            "Job": job_link(kept) if kept else None,
            "Kind": "workflow" if root.is_workflow else "map" if len(root.calls) > 1 else "call",
            "Submitted": at(root.submitted),
            "Started": at(root.started) if root.started else None,
            "Took": lasted(root.seconds) or None,
            "Directory": h("code", f"{site.cluster.base}/{root.run}"),
        }
    )
    body = (
        head,
        card("Graph", drawing(graph)) if len(graph.nodes) > 1 else None,
        [card(node.title, cells(node), note=node.summary) for node in _maps(graph)],
        card("Facts", about),
    )
    return Page(root.title, h("div", body, cls="stack"), "runs", FRESH)


def _maps(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes.values() if len(node.calls) > 1]


def cells(node: Node) -> Html:
    """The calls of a map, a cell each."""
    shown = []
    for index, state in sorted(node.calls.items())[:CELLS]:
        key = node.keys.get(index)
        bare = key.bare if key is not None else ""
        target = address("jobs", bare) if bare else address("runs", *node.run.split("/"))
        shown.append(cell(str(index), state, target))
    hidden = len(node.calls) - CELLS
    more = h("p", f"{count(hidden)} more are not drawn.", cls="dim") if hidden > 0 else None
    return h("div", h("div", shown, cls="cells"), more)


def drawing(graph: Graph) -> Html:
    """The graph: columns are layers; each box leads to its run."""
    columns = layers(graph)
    places = {
        run: (10 + x * (_WIDE + _GAP_X), 10 + y * (_HIGH + _GAP_Y))
        for x, column in enumerate(columns)
        for y, run in enumerate(column)
    }
    width = 20 + len(columns) * (_WIDE + _GAP_X) - _GAP_X
    height = 20 + max(map(len, columns)) * (_HIGH + _GAP_Y) - _GAP_Y
    lines: list[Html] = []
    for node in graph.nodes.values():
        known = [run for run in node.upstream if run in graph.nodes]
        lines += [_edge(places[run], places[node.run], "edge") for run in known]
        inside = any(graph.nodes[run].parent == node.parent for run in known)
        if node.parent in graph.nodes and not inside and node.parent is not None:
            lines.append(_edge(places[node.parent], places[node.run], "edge inner"))
    boxes = [_box(graph.nodes[run], *place) for run, place in places.items()]
    label = f"Graph of {len(graph.nodes)} runs"
    inner = h(
        "svg",
        lines,
        boxes,
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="group",
        aria_label=label,
        cls="graph",
    )
    return h("div", inner, cls="scroll", tabindex=0, role="region", aria_label=label)


def _edge(start: tuple[int, int], end: tuple[int, int], cls: str) -> Html:
    x, y = start[0] + _WIDE, start[1] + _HIGH // 2
    to_x, to_y = end[0], end[1] + _HIGH // 2
    return h("path", d=f"M{x} {y} C{x + 30} {y} {to_x - 30} {to_y} {to_x} {to_y}", cls=cls)


def _box(node: Node, x: int, y: int) -> Html:
    kind = kind_of(node.state)
    done: Child = None
    if len(node.calls) > 1:
        good = sum(1 for state in node.calls.values() if kind_of(state) == "good")
        part = good / len(node.calls)
        wide = round((_WIDE - 24) * part)
        done = h("rect", x=x + 12, y=y + _HIGH - 7, width=wide, height=3, rx=1, cls="fill-good")
    return h(
        "a",
        h("title", f"{node.run}: {node.summary}"),
        h("rect", x=x, y=y, width=_WIDE, height=_HIGH, rx=8, cls=f"box {kind}"),
        h("text", f"{MARKS[kind]} {_short(node.title)}", x=x + 12, y=y + 21, cls="box-title"),
        h("text", _short(node.summary), x=x + 12, y=y + 39, cls="box-text"),
        done,
        href=address("runs", *node.run.split("/")),
    )


def _short(words: str) -> str:
    return words if len(words) <= 26 else words[:25] + "…"
