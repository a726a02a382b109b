"""What happened over time: jobs on nodes (a Gantt chart), waiting times, and how full it was."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from slurm.web.charts import BOTTOM, RIGHT, WIDTH, Line, chart, columns, frame, quantile_lines
from slurm.web.cluster_pages import hosts
from slurm.web.history import Point, Span, Wait
from slurm.web.markup import Child, Html, address, h
from slurm.web.pieces import MARKS, Page, card, count, empty, kind_of, lasted
from slurm.web.site import Scene, Site

#: Hours that the timeline can show.
HOURS = (1, 2, 6, 24)
#: Nodes and bars that one drawing has at most.
MOST_NODES, MOST_BARS = 60, 4000
_LEFT, _LANE, _GAP, _LANES = 96, 13, 5, 5
#: Upper bounds of the histogram of waiting, with their names.
_BOUNDS = (
    (1, "< 1 s"),
    (10, "10 s"),
    (60, "1 m"),
    (300, "5 m"),
    (900, "15 m"),
    (3600, "1 h"),
    (4 * 3600, "4 h"),
    (86400, "1 d"),
    (float("inf"), "more"),
)


def timeline_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """Which job had which node when."""
    told = query.get("hours", "2")
    hours = next((number for number in HOURS if str(number) == told), 2)
    end = scene.now
    begin = end - hours * 3600
    spans = site.history.spans(begin)
    if site.hides("jobs", scene.session):
        spans = [span for span in spans if span.user == scene.session.user]
    partition = query.get("partition", "")
    wanted = [span for span in spans if not partition or span.partition == partition]
    tabs = h(
        "nav",
        [
            h(
                "a",
                f"{n} h",
                href=address("timeline", hours=n if n != 2 else "", partition=partition),
                aria_current="true" if n == hours else None,
            )
            for n in HOURS
        ],
        cls="tabs",
        aria_label="How many hours",
    )
    drawn = gantt(wanted, begin, end) if wanted else empty("Nothing ran in this time.")
    note = f"{count(len(wanted))} jobs"
    return Page("Timeline", card("Timeline", tabs, drawn, note=note), "timeline")


def gantt(spans: Sequence[Span], begin: float, end: float) -> Html:
    """Bars on the lines of their nodes; jobs at the same time lie below each other."""
    by_node: dict[str, list[Span]] = {}
    for span in spans:
        for name in hosts(span.nodes):
            by_node.setdefault(name, []).append(span)
    names = sorted(by_node, key=_natural)
    hidden = len(names) - MOST_NODES
    y, drawn, bars = 6.0, list[Html](), 0
    for name in names[:MOST_NODES]:
        lanes, inner = _lanes(by_node[name], begin, end, y, MOST_BARS - bars)
        bars += len(inner)
        tall = lanes * _LANE
        drawn.append(
            h(
                "a",
                h("text", name, x=_LEFT - 10, y=f"{y + tall / 2 + 4:.0f}", cls="axis end"),
                href=address("nodes", name),
            )
        )
        drawn += inner
        y += tall + _GAP
        drawn.append(h("line", x1=_LEFT, x2=WIDTH - RIGHT, y1=y - 2, y2=y - 2, cls="grid"))
    height = y + BOTTOM
    label = f"{len(spans)} jobs on {len(names)} nodes from {lasted(end - begin)} ago until now"
    svg = h(
        "svg",
        frame(begin, end, height, 0, _LEFT),
        drawn,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="group",
        aria_label=label,
        cls="chart gantt",
    )
    words = {"active": "runs", "good": "completed", "bad": "failed or cancelled"}
    key = [
        h("span", h("span", MARKS[kind], cls="mark"), word, cls=f"chip {kind}")
        for kind, word in words.items()
    ]
    more = f"{count(hidden)} more nodes are not drawn; choose a partition." if hidden > 0 else None
    said = h("p", more, cls="dim") if more else None
    return h("figure", svg, h("figcaption", key, cls="key"), said)


def _lanes(
    spans: Sequence[Span], begin: float, end: float, y: float, room: int
) -> tuple[int, list[Html]]:
    """The bars of one node, and how many lanes they need."""
    free: list[float] = []
    drawn: list[Html] = []
    scale = (WIDTH - _LEFT - RIGHT) / (end - begin)
    last: dict[int, float] = {}
    for span in spans:
        start, stop = max(begin, span.start), min(end, span.end or end)
        lane = next((n for n, until in enumerate(free) if until <= start), None)
        if lane is None:
            lane = len(free)
            free.append(0.0)
        free[lane] = stop
        shown = min(lane, _LANES - 1)
        x, right = _LEFT + (start - begin) * scale, _LEFT + (stop - begin) * scale
        # What lies within the same pixel of the same lane would only be painted over.
        if right <= last.get(shown, -1.0) + 0.5 or len(drawn) >= room:
            continue
        last[shown] = right
        drawn.append(_bar(span, x, max(1.0, right - x), y + shown * _LANE, (span.end or end)))
    return max(1, min(len(free), _LANES)), drawn


def _bar(span: Span, x: float, wide: float, y: float, end: float) -> Html:
    kind = kind_of(span.state)
    words = (
        f"{span.job_id} {span.name}, {span.user}: {span.state.lower()}, {lasted(end - span.start)}"
    )
    name: Child = None
    if wide > 46:
        letters = max(1, int(wide / 6.2) - 3)
        name = h(
            "text",
            f"{MARKS[kind]} {span.name[:letters]}",
            x=f"{x + 4:.1f}",
            y=y + _LANE - 4,
            cls="bar-name",
        )
    rect = h(
        "rect", x=f"{x:.1f}", y=y, width=f"{wide:.1f}", height=_LANE - 2, rx=2, cls=f"job {kind}"
    )
    return h(
        "a", h("title", words), rect, name, href=address("jobs", span.job_id.partition("_[")[0])
    )


def _natural(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    return head, int(tail) if tail else -1, name


def charts_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """How full the cluster was, how long the line, and how long people waited."""
    points, waits = site.history.points(), site.history.waits()
    if site.hides("jobs", scene.session):
        waits = []
    body = (
        card("Utilisation", _utilisation(points), note="part in use"),
        card("Jobs", _jobs(points), note="running and waiting"),
        card("Waiting", _waiting(waits), note=f"{count(len(waits))} starts"),
    )
    return Page("Charts", h("div", body, cls="stack"), "charts")


def _utilisation(points: Sequence[Point]) -> Html:
    if len(points) < 2:
        return empty("The first points come in a moment.", mark="◷")
    lines = [
        Line("CPUs", "one", [(p.at, p.used_cpus / p.cpus) for p in points if p.cpus]),
        Line("Memory", "two", [(p.at, p.used_memory / p.memory) for p in points if p.memory]),
        Line("GPUs", "three", [(p.at, p.used_gpus / p.gpus) for p in points if p.gpus]),
    ]
    known = [line for line in lines if line.points]
    if not known:
        return empty("No node says how full it is.")
    last = ", ".join(f"{line.name} {line.points[-1][1]:.0%}" for line in known)
    return chart(known, f"Utilisation over time; now {last}", lambda n: f"{n:.0%}", 1.0)


def _jobs(points: Sequence[Point]) -> Html:
    if len(points) < 2:
        return empty("The first points come in a moment.", mark="◷")
    lines = [
        Line("Running", "one", [(p.at, p.running) for p in points]),
        Line("Waiting", "two", [(p.at, p.pending) for p in points]),
    ]
    now = f"now {count(points[-1].running)} run and {count(points[-1].pending)} wait"
    return chart(lines, f"Jobs over time; {now}", count)


def _waiting(waits: Sequence[Wait]) -> Html:
    if not waits:
        return empty("No job has started yet while we looked.")
    counts = [0] * len(_BOUNDS)
    edges = [bound for bound, _ in _BOUNDS]
    for wait in waits:
        counts[bisect_left(edges, wait.seconds + 1e-9)] += 1
    named = [(name, n) for (_, name), n in zip(_BOUNDS, counts, strict=True)]
    middle = sorted(wait.seconds for wait in waits)[len(waits) // 2]
    label = f"How many jobs waited how long; half of them less than {lasted(middle)}"
    lines = quantile_lines((wait.at, wait.seconds) for wait in waits)
    over = chart(lines, "Waiting times over time", lasted) if len(lines[0].points) > 1 else None
    return h("div", h("figure", columns(named, label)), over)
