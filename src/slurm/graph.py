"""The graph of a run: its children and what waits for what, with states and times."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.api.backend import JobKey
from slurm.api.retry_rules import following
from slurm.attaching import told_of
from slurm.errors import OptionError, RunDirError, SlurmError, nearest
from slurm.model.states import parse_state

if TYPE_CHECKING:
    from slurm.cluster import Cluster


@dataclass(frozen=True)
class Node:
    """One run of the graph; a map is one node with as many calls as it has items."""

    run: str
    name: str
    job_id: str
    calls: Mapping[int, str]
    upstream: tuple[str, ...]
    parent: str | None
    is_workflow: bool
    submitted: float
    started: int | None
    ended: int | None
    keys: Mapping[int, JobKey] = field(default_factory=dict, repr=False)

    @property
    def state(self) -> str:
        """The state of the whole: of a map the one that matters most."""
        found = set(self.calls.values())
        if len(found) == 1:
            return next(iter(found))
        if "RUNNING" in found or ("COMPLETED" in found and "PENDING" in found):
            return "RUNNING"
        return next(iter(sorted(found - {"COMPLETED"})), "PENDING")

    @property
    def over(self) -> bool:
        """Whether every call has ended."""
        return all(parse_state(state).phase == "finished" for state in self.calls.values())

    @property
    def title(self) -> str:
        """The task's name, with the number of calls of a map."""
        return self.name if len(self.calls) == 1 else f"{self.name} x {len(self.calls)}"

    @property
    def summary(self) -> str:
        """State and time in a few words."""
        counts = Counter(self.calls.values())
        mixed = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        text = mixed if len(counts) > 1 else self.state
        took = self.seconds
        return text if took is None else f"{text} {duration(took)}"

    @property
    def seconds(self) -> int | None:
        """Seconds from the first begin to the last end, once all is over."""
        if self.started is None or self.ended is None or not self.over:
            return None
        return max(0, self.ended - self.started)


@dataclass(frozen=True)
class Graph:
    """The nodes of a graph by run, the one that was asked for first."""

    nodes: Mapping[str, Node]

    @property
    def root(self) -> Node:
        """The run that was asked for."""
        return next(iter(self.nodes.values()))

    def edges(self) -> Iterator[tuple[Node, Node]]:
        """What waits for what: (before, after)."""
        for node in self.nodes.values():
            for run in node.upstream:
                if run in self.nodes:
                    yield self.nodes[run], node

    def children(self, node: Node) -> list[Node]:
        """The runs that a workflow submitted, in the order of submission."""
        found = [n for n in self.nodes.values() if n.parent == node.run]
        return sorted(found, key=lambda n: n.submitted)

    def tops(self) -> list[Node]:
        """The nodes that no other node of the graph has submitted."""
        found = [n for n in self.nodes.values() if n.parent not in self.nodes]
        return sorted(found, key=lambda n: n.submitted)


# ---- reading it ---------------------------------------------------------------------------------


def read_graph(cluster: Cluster, run: str) -> Graph:
    """The graph of a run: all below it and all that these wait for.

    It comes from the run directories; the scheduler is asked once, about what is not over.
    """
    first = cluster.backend.find_run(run)
    nodes: dict[str, Node] = {}
    wanted = [first]
    while wanted:
        found = [node_of(one) for one in cluster.backend.family(wanted)]
        nodes.update({node.run: node for node in found if node.run not in nodes})
        above = {up for node in found for up in node.upstream}
        wanted = sorted(above - set(nodes))
        if not found:
            break
    if not nodes:
        raise RunDirError(
            f"what {first} is cannot be read: its {rundir.METADATA} is not there or not whole",
            hint="look at what lies there: slurm logs " + first,
        )
    return Graph(_with_answers(cluster, nodes))


def node_of(described: Mapping[str, Any]) -> Node:
    """A node out of what the agent read in a run directory."""
    metadata = described["metadata"]
    ids = dict(described["ids"])
    parts = metadata.get("parts") or []
    keys: dict[int, JobKey] = {}
    since = float(metadata.get("submitted") or 0.0)
    for number, offset, size, *_ in parts:
        bare = str(ids.get(number, "")).partition(";")[0]
        for index in range(size):
            keys[offset + index] = JobKey(
                f"{bare}_{index}" if bare else "", described["run"], since
            )
    if not parts:
        keys[0] = JobKey(str(ids.get(0, "")), described["run"], since)
    if described.get("again"):
        keys = {
            index: _newest(described["again"], parts, key, index) for index, key in keys.items()
        }
    events = [e for data in described["events"] for e in rundir.decode_events(data)[0]]
    begins = [e.number("time") for e in events if e.kind == "begin"]
    exits = [e.number("time") for e in events if e.kind == "exit"]
    parent = metadata.get("parent")
    return Node(
        run=described["run"],
        name=str(metadata.get("task", described["run"])),
        job_id=str(next(iter(ids.values()), "")),
        calls={**dict.fromkeys(keys, "PENDING"), **_states(_of_newest(events, keys))},
        upstream=tuple(metadata.get("upstream") or ()),
        parent=parent[0] if parent else None,
        is_workflow=bool(metadata.get("workflow")),
        submitted=since,
        started=min(begins, default=None),
        ended=max(exits, default=None),
        keys=keys,
    )


def _newest(
    again: Mapping[str, Any], parts: Sequence[Sequence[Any]], key: JobKey, index: int
) -> JobKey:
    """The newest job of a call that was retried, or that went behind what it waits for."""
    first = next((part for part in parts if part[1] <= index < part[1] + part[2]), None)
    token = following(dict(again), str(first[0] if first else 0), index)
    while token is not None:
        bare = str(again["ids"][token]).partition(";")[0]
        key = replace(key, job_id=f"{bare}_{index - first[1]}" if first else bare)
        token = following(dict(again), token, index)
    return key


def _of_newest(events: Sequence[rundir.Event], keys: Mapping[int, JobKey]) -> list[rundir.Event]:
    """The events of each call's newest job; those of calls without one are as they are."""
    jobs = {index: key.bare.partition("_")[0] for index, key in keys.items()}
    return [e for e in events if jobs.get(e.number("index")) in (None, "", e.job)]


def _states(events: Sequence[rundir.Event]) -> dict[int, str]:
    """The state of each call that has begun, of its newest attempt."""
    newest: dict[int, tuple[int, str]] = {}
    for event in events:
        if event.kind not in ("begin", "exit"):
            continue
        state = "RUNNING"
        if event.kind == "exit":
            state = "COMPLETED" if event.number("code") == 0 else "FAILED"
        index, attempt = event.number("index"), event.number("attempt")
        before = newest.get(index, (-1, ""))
        if attempt > before[0] or (attempt == before[0] and event.kind == "exit"):
            newest[index] = (attempt, state)
    return {index: state for index, (_, state) in newest.items()}


def _with_answers(cluster: Cluster, nodes: dict[str, Node]) -> dict[str, Node]:
    """The nodes with the scheduler's word on all that files do not show as completed."""
    keys = [
        node.keys[index]
        for node in nodes.values()
        for index, state in node.calls.items()
        if state != "COMPLETED" and index in node.keys and node.keys[index].job_id
    ]
    if not keys:
        return nodes
    try:
        answers = told_of(cluster, keys)
    except SlurmError:
        return nodes  # what the files say is shown
    changed: dict[str, Node] = {}
    for run, node in nodes.items():
        calls = dict(node.calls)
        for index, key in node.keys.items():
            told = answers.get(key.bare)
            if told is None or calls[index] == "COMPLETED":
                continue
            state = parse_state(told.state)
            # Its exit is written before the scheduler has noticed it.
            lags = calls[index] == "FAILED" and state.phase == "active" and not told.restarts
            calls[index] = calls[index] if lags else state.value
        changed[run] = replace(node, calls=calls)
    return changed


# ---- drawing it ---------------------------------------------------------------------------------


def render(graph: Graph, form: str) -> str:
    """The graph as `text`, `mermaid` or `svg`."""
    if form not in FORMS:
        close = nearest(form, FORMS)
        raise OptionError(
            f"--format {form} is not known; there are {', '.join(FORMS)}",
            hint=f"did you mean {close}?" if close else "leave it out for text",
        )
    return FORMS[form](graph)


def duration(seconds: int) -> str:
    """`8s`, `2m05s` or `3h07m`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def as_text(graph: Graph) -> str:
    """A tree for the terminal: children below their workflow, and what each waits for."""
    rows: list[tuple[str, Node]] = []

    def add(nodes: list[Node], indent: str, top: bool) -> None:
        for number, node in enumerate(nodes):
            last = number == len(nodes) - 1
            rows.append((indent + ("" if top else "└─ " if last else "├─ ") + node.title, node))
            add(graph.children(node), indent + ("" if top else "   " if last else "│  "), False)

    add(graph.tops(), "", True)
    width = max(len(label) for label, _ in rows)
    middle = max(len(node.summary) for _, node in rows)
    lines = []
    for label, node in rows:
        above = [graph.nodes[run].title for run in node.upstream if run in graph.nodes]
        after = f"  after {', '.join(above)}" if above else ""
        job = f"job {node.job_id}" if node.job_id else "not submitted"
        lines.append(f"{label:<{width}}  {node.summary:<{middle}}  {job}{after}".rstrip())
    return "\n".join(lines) + "\n"


def as_mermaid(graph: Graph) -> str:
    """A Mermaid flowchart; a workflow is a box around its children."""
    names = {run: f"n{number}" for number, run in enumerate(graph.nodes)}
    lines = ["flowchart LR"]

    def label(node: Node) -> str:
        text = f"{node.title}<br/>{node.summary}".replace('"', "#quot;")
        return f'["{text}"]'

    def add(node: Node, indent: str) -> None:
        inner = graph.children(node)
        if not inner:
            lines.append(f"{indent}{names[node.run]}{label(node)}:::{node.state.lower()}")
            return
        lines.append(f"{indent}subgraph {names[node.run]}{label(node)}")
        for child in inner:
            add(child, indent + "  ")
        lines.append(f"{indent}end")

    for node in graph.tops():
        add(node, "  ")
    lines += [f"  {names[a.run]} --> {names[b.run]}" for a, b in graph.edges()]
    used = {node.state for node in graph.nodes.values()}
    lines += [f"  classDef {s.lower()} fill:{color(s)},color:#111" for s in sorted(used)]
    return "\n".join(lines) + "\n"


_COLORS = {"COMPLETED": "#9ad29a", "RUNNING": "#8fc1f0", "PENDING": "#dddddd"}
_BAD = "#f0a0a0"


def color(state: str) -> str:
    """The colour of a state: green, blue, grey, and red for all that went wrong."""
    return _COLORS.get(state, _BAD)


_WIDE, _HIGH, _GAP_X, _GAP_Y = 190, 46, 60, 18


def as_svg(graph: Graph) -> str:
    """A drawing: columns are layers, dashed lines lead from a workflow to its children."""
    columns = layers(graph)
    places = {
        run: (20 + x * (_WIDE + _GAP_X), 20 + y * (_HIGH + _GAP_Y))
        for x, column in enumerate(columns)
        for y, run in enumerate(column)
    }
    width = 40 + len(columns) * (_WIDE + _GAP_X) - _GAP_X
    height = 40 + max(map(len, columns)) * (_HIGH + _GAP_Y) - _GAP_Y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
    ]
    for above, below, dashed in _lines(graph):
        (x, y), (to_x, to_y) = places[above], places[below]
        style = ' stroke-dasharray="4 3"' if dashed else ""
        start, end = (x + _WIDE, y + _HIGH // 2), (to_x, to_y + _HIGH // 2)
        lines.append(
            f'<path d="M{start[0]} {start[1]} C{start[0] + 30} {start[1]} {end[0] - 30} {end[1]} '
            f'{end[0]} {end[1]}" fill="none" stroke="#555"{style}/>'
        )
    for run, (x, y) in places.items():
        node = graph.nodes[run]
        lines.append(
            f'<g><title>{html.escape(run)}</title><rect x="{x}" y="{y}" width="{_WIDE}" '
            f'height="{_HIGH}" rx="6" fill="{color(node.state)}" stroke="#555"/>'
            f'<text x="{x + 10}" y="{y + 19}" font-weight="bold">{_short(node.title)}</text>'
            f'<text x="{x + 10}" y="{y + 36}">{_short(node.summary)}</text></g>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _short(text: str) -> str:
    return html.escape(text if len(text) <= 26 else text[:25] + "…")


def _lines(graph: Graph) -> Iterator[tuple[str, str, bool]]:
    """Every line of the drawing: (from, to, dashed)."""
    for before, after in graph.edges():
        yield before.run, after.run, False
    for node in graph.nodes.values():
        inside = any(graph.nodes[run].parent == node.parent for run in _known(graph, node))
        if node.parent in graph.nodes and not inside:
            assert node.parent is not None
            yield node.parent, node.run, True


def _known(graph: Graph, node: Node) -> list[str]:
    return [run for run in node.upstream if run in graph.nodes]


def layers(graph: Graph) -> list[list[str]]:
    """The runs in columns: each behind its workflow and behind all that it waits for."""
    depth: dict[str, int] = {}

    def find(run: str, seen: frozenset[str]) -> int:
        if run not in depth:
            node = graph.nodes[run]
            above = [*_known(graph, node), *([node.parent] if node.parent in graph.nodes else [])]
            # A circle cannot be submitted, but a file can be edited.
            inner = [find(up, seen | {run}) for up in above if up is not None and up not in seen]
            depth[run] = 1 + max(inner, default=-1)
        return depth[run]

    for run in graph.nodes:
        find(run, frozenset((run,)))
    columns: list[list[str]] = [[] for _ in range(1 + max(depth.values()))]
    for run in sorted(graph.nodes, key=lambda name: graph.nodes[name].submitted):
        columns[depth[run]].append(run)
    return columns


FORMS: dict[str, Callable[[Graph], str]] = {
    "text": as_text,
    "mermaid": as_mermaid,
    "svg": as_svg,
}
