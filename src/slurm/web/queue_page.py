"""The queue: numbers first, then jobs with arrays folded; search, filters, order, pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm.web.groups import PAGE, SORTS, Filter, Group, chosen, names, totals
from slurm.web.markup import Child, Html, address, h
from slurm.web.pieces import (
    NONE,
    TIMES,
    Page,
    bar,
    chip,
    count,
    empty,
    job_link,
    lasted,
    meter,
    since,
    size,
    table,
    tile,
)
from slurm.web.site import Scene, Site

STATES = {"active": "Running", "pending": "Waiting", "done": "Completed", "failed": "Failed"}
_HEADS = {
    "job": "Job",
    "name": "Name",
    "user": "User",
    "partition": "Partition",
    "": "State",
    "time": "Time",
    "cpus": "Size",
    "where": "Where, or why it waits",
}


def queue_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """Everybody's jobs."""
    wanted = Filter.of(query)
    found = chosen(scene.groups.values(), wanted)
    body = (
        h("h1", "Queue", cls="sr"),
        tiles(scene),
        filters(scene, wanted),
        jobs_table(found, wanted, scene),
        _pages(found, wanted),
    )
    return Page("Queue", h("div", body, cls="stack"), "queue")


def tiles(scene: Scene) -> Html:
    """How full the cluster is, and how long the line."""
    nodes, counts = scene.snapshot.nodes, totals(scene.snapshot)
    cpus, used = sum(n.cpus for n in nodes), sum(n.allocated_cpus for n in nodes)
    memory, taken = sum(n.memory for n in nodes), sum(n.allocated_memory for n in nodes)
    cards = [gres for n in nodes for gres in n.gres if gres.name == "gpu"]
    gpus, busy = sum(c.total for c in cards), sum(c.used for c in cards)
    lost = [n for n in nodes if not n.usable]
    shown = [
        tile("Running", count(counts["active"]), "jobs", address("", state="active"), "active"),
        tile("Waiting", count(counts["pending"]), "jobs", address("", state="pending"), "pending"),
        tile("CPUs", _part(used, cpus), meter(used, cpus, f"{count(used)} of {count(cpus)}")),
        tile(
            "Memory", _part(taken, memory), meter(taken, memory, f"{size(taken)} of {size(memory)}")
        ),
    ]
    if gpus:
        shown.append(tile("GPUs", _part(busy, gpus), meter(busy, gpus, f"{busy} of {gpus}")))
    words = f"{len(lost)} not usable" if lost else "all usable"
    shown.append(tile("Nodes", count(len(nodes)), words, "/nodes", "bad" if lost else ""))
    return h("div", shown, cls="tiles")


def _part(used: float, total: float) -> str:
    return f"{used / total:.0%}" if total else NONE


def filters(scene: Scene, wanted: Filter) -> Html:
    """What is to be seen: a form that works without a script, and at once with one."""
    groups = scene.groups.values()
    return h(
        "form",
        h(
            "label",
            h("span", "Search", cls="sr"),
            h(
                "input",
                type="search",
                name="q",
                value=wanted.q,
                autocomplete="off",
                id="search",
                placeholder="Search id, name, user, node, reason",
                aria_keyshortcuts="/",
            ),
            cls="grow",
        ),
        _select("state", "State", list(STATES.items()), wanted.state),
        _select("user", "User", [(n, n) for n in names(groups, lambda r: r.user)], wanted.user),
        _select(
            "partition",
            "Partition",
            [(p.name, p.name) for p in scene.snapshot.partitions],
            wanted.partition,
        ),
        _select(
            "account",
            "Account",
            [(n, n) for n in names(groups, lambda r: r.account)],
            wanted.account,
        ),
        h("input", type="hidden", name="sort", value=wanted.sort) if wanted.sort else None,
        h("button", "Show", type="submit", cls="quiet no-script"),
        h("a", "Clear", href="/", cls="quiet") if wanted.query() else None,
        method="get",
        action="/",
        cls="filters",
        role="search",
        data_filters=True,
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]], value: str) -> Html | None:
    if value and value not in {key for key, _ in options}:
        options = [*options, (value, value)]
    if len(options) < 2 and not value:
        return None
    every = h("option", f"Every {label.lower()}", value="")
    chosen_ = [h("option", word, value=key, selected=key == value) for key, word in options]
    box = h("select", every, chosen_, name=name)
    return h("label", h("span", label, cls="sr"), box)


def jobs_table(found: Sequence[Group], wanted: Filter, scene: Scene) -> Html:
    """One page of the list."""
    if not found:
        if scene.view.snapshot is None:
            return empty("Looking at the cluster for the first time …", mark="◷")
        if wanted.query():
            return empty("No job fits.", h("a", "Show all jobs", href="/"))
        return empty("The queue is empty.", "Jobs show up here by themselves.", "✓")
    here = found[(wanted.page - 1) * PAGE : wanted.page * PAGE]
    heads = [_head(key, word, wanted) for key, word in _HEADS.items()]
    return table(heads, [_line(group, scene) for group in here], "Jobs", "jobs rows", "jobs")


def _head(key: str, word: str, wanted: Filter) -> Child:
    if key not in SORTS:
        return word
    active = wanted.sort == key
    arrow = (" ↓" if SORTS[key][1] else " ↑") if active else ""
    target = address("", **wanted.query(sort="" if active else key))
    return h("a", word + arrow, href=target, title="Sort by this" if not active else "As before")


def _line(group: Group, scene: Scene) -> Html:
    row = group.row
    running = row.phase == "active"
    begun = row.start if running else row.submit
    if row.phase == "finished" and row.start and row.end:
        time: Child = h("span", lasted(row.end - row.start), cls="num")
    else:
        time = since(begun, scene.now)
    word = {"active": "runs", "pending": "waits", "finished": "took"}.get(row.phase, "")
    return h(
        "tr",
        h("td", job_link(group.base)),
        h("td", h("span", row.name, cls="name", title=row.name)),
        h("td", h("a", row.user, href=address("", user=row.user), cls="plain")),
        h("td", row.partition),
        h("td", progress(group) if group.is_array else chip(row.state)),
        h("td", h("span", word, cls="dim"), " ", time),
        h("td", _size(group)),
        h("td", _where(group), cls="where"),
        id=f"job-{group.base}",
        data_row=True,
    )


def progress(group: Group) -> Html:
    """How far an array is: a bar, and the same in words."""
    counts, total = group.counts, group.tasks or 1
    words = ", ".join(
        f"{count(counts[kind])} {word}"
        for kind, word in (
            ("active", "running"),
            ("pending", "waiting"),
            ("good", "done"),
            ("bad", "failed"),
        )
        if counts[kind]
    )
    parts = [(kind, counts[kind] / total) for kind in ("good", "bad", "active", "pending")]
    return h("span", bar(parts, words), h("span", words, cls="words"), cls="progress")


def _size(group: Group) -> Child:
    row = group.row
    each = f" {TIMES} {count(group.tasks)}" if group.is_array and group.tasks > 1 else ""
    parts = [f"{row.cpus} CPU" + ("s" if row.cpus != 1 else "")] if row.cpus else []
    parts += [f"{row.gpus} GPU" + ("s" if row.gpus != 1 else "")] if row.gpus else []
    parts += [f"{row.nodes} nodes"] if row.nodes > 1 else []
    return h("span", ", ".join(parts) + each, cls="num", title=size(row.memory) or None)


def _where(group: Group) -> Child:
    row = group.row
    if row.phase == "active":
        return row.node_list
    if row.phase == "pending":
        return h("span", reason_words(row.reason), title=row.reason)
    return h("span", row.node_list, cls="dim")


def reason_words(reason: str) -> str:
    """A reason's first sentence in English; Slurm's word where we have none."""
    from slurm.why.pending import row_of

    if not reason:
        return "not looked at yet"
    if reason == "JobHeldUser":
        return "Its user holds it"  # who looks may be somebody else
    row = row_of(reason.replace("_", " "))
    return row.text.rstrip(".") if row is not None else reason


def _pages(found: Sequence[Group], wanted: Filter) -> Child:
    last = max(1, -(-len(found) // PAGE))
    if last == 1:
        return h("p", f"{count(len(found))} lines", cls="dim pages") if found else None
    page = min(wanted.page, last)

    def link(number: int, word: str) -> Html:
        if not 1 <= number <= last:
            return h("span", word, cls="dim")
        target = address("", **wanted.query(page=number if number > 1 else ""))
        return h("a", word, href=target)

    said = f"{count((page - 1) * PAGE + 1)}{NONE}{count(min(page * PAGE, len(found)))}"
    words = h("span", f"{said} of {count(len(found))} lines", cls="dim")
    links = (link(page - 1, "← Newer"), words, link(page + 1, "Further →"))
    return h("nav", links, cls="pages", aria_label="Pages")
