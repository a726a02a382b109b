"""The cluster itself: the node map, one node, partitions, and fair shares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from slurm.model.hostlist import expand_hostlist
from slurm.monitor.nodes import NodeRow
from slurm.monitor.sharing import Share
from slurm.web.groups import Filter, Group
from slurm.web.markup import Child, Html, address, h
from slurm.web.pieces import (
    NONE,
    TIMES,
    Page,
    at,
    bar,
    card,
    count,
    empty,
    facts,
    meter,
    node_chip,
    node_kind,
    node_mark,
    size,
    table,
)
from slurm.web.queue_page import jobs_table, reason_words
from slurm.web.site import Scene, Site

#: What the map can be coloured by -> its title.
HEAT = {"cpu": "CPU", "memory": "Memory", "gpu": "GPU", "load": "Load"}


def gpus(node: NodeRow) -> tuple[int, int]:
    """How many GPUs of a node are in use, and how many it has."""
    cards = [gres for gres in node.gres if gres.name == "gpu"]
    return sum(card.used for card in cards), sum(card.total for card in cards)


def heat(node: NodeRow, by: str) -> float | None:
    """How much of a node is in use, 0 to 1; None where it has none of it."""
    used, total = {
        "cpu": (node.allocated_cpus, node.cpus),
        "memory": (node.allocated_memory, node.memory),
        "gpu": gpus(node),
        "load": (node.load or 0.0, node.cpus),
    }[by]
    return min(1.0, used / total) if total else None


def nodes_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """The map: a cell for each node, its colour and number how full it is."""
    nodes = scene.snapshot.nodes
    if not nodes:
        return Page("Nodes", empty("No nodes are known yet."), "nodes")
    by = query.get("by", "cpu") if query.get("by") in HEAT else "cpu"
    partition = query.get("partition", "")
    shown = [node for node in nodes if not partition or partition in node.partitions]
    has_gpus = any(gpus(node)[1] for node in nodes)
    tabs = h(
        "nav",
        [
            h(
                "a",
                title,
                href=address("nodes", by=key if key != "cpu" else "", partition=partition),
                aria_current="true" if key == by else None,
            )
            for key, title in HEAT.items()
            if key != "gpu" or has_gpus
        ],
        cls="tabs",
        aria_label="Colour by",
    )
    lost = [node for node in nodes if not node.usable]
    body = (
        card(
            "Nodes",
            tabs,
            h("div", [_cell(node, by) for node in shown], cls="map"),
            _legend(),
            note=f"{partition}: {len(shown)}" if partition else f"{count(len(nodes))}",
        ),
        card("Not usable", _lost(lost), note=str(len(lost))) if lost else None,
    )
    return Page("Nodes", h("div", body, cls="stack"), "nodes")


def _cell(node: NodeRow, by: str) -> Html:
    part = heat(node, by)
    kind = node_kind(node.state, node.flags, node.usable)
    words = "none" if part is None else f"{part:.0%}"
    step = "none" if part is None else str(round(part * 8))
    state = " ".join((node.state, *node.flags)).replace("_", " ")
    title = f"{node.name}: {state}; {HEAT[by]} {words}" + (
        f"; {node.reason}" if node.reason else ""
    )
    return h(
        "a",
        h("span", node_mark(kind), " ", node.name, cls="node-name"),
        h("span", NONE if part is None else words, cls="node-part"),
        h("span", state, cls="sr"),
        href=address("nodes", node.name),
        cls=f"node heat-{step} node-{kind}",
        title=title,
    )


def _legend() -> Html:
    """What marks and colours mean."""
    kinds = {
        "good": "idle",
        "active": "partly in use",
        "full": "full",
        "warn": "drained",
        "bad": "down",
    }
    marks = [
        h("span", node_mark(kind), " ", word, cls=f"node-{kind}") for kind, word in kinds.items()
    ]
    steps = [h("span", cls=f"step heat-{n}") for n in range(9)]
    scale = h("span", h("span", "0 %"), steps, h("span", "100 %"), cls="scale", aria_hidden="true")
    return h("p", marks, scale, cls="legend")


def _lost(nodes: list[NodeRow]) -> Html:
    rows = [
        h(
            "tr",
            h("td", h("a", node.name, href=address("nodes", node.name), cls="id")),
            h("td", node_chip(node.state, node.flags, node.usable)),
            h("td", node.reason or h("span", "no reason given", cls="dim")),
            h("td", at(node.since if node.reason else None)),
            data_row=True,
        )
        for node in nodes
    ]
    return table(("Node", "State", "Reason", "Since"), rows, "Nodes that are not usable", "rows")


def node_page(site: Site, scene: Scene, query: Mapping[str, str], name: str) -> Page:
    """One node, and the jobs on it."""
    node = next((one for one in scene.snapshot.nodes if one.name == name), None)
    if node is None:
        back = h("a", "All nodes", href="/nodes")
        return Page(name, empty(f"There is no node {name}.", back), "nodes", 0, 404)
    used, cards = gpus(node)
    about = facts(
        {
            "CPUs": meter(node.allocated_cpus, node.cpus, f"{node.allocated_cpus} of {node.cpus}"),
            "Memory": meter(
                node.allocated_memory,
                node.memory,
                f"{size(node.allocated_memory)} of {size(node.memory)}",
            ),
            "GPUs": meter(used, cards, f"{used} of {cards}") if cards else None,
            "Load": f"{node.load:.2f}" if node.load is not None else None,
            "Free memory": size(node.free_memory) or None,
            "Partitions": [
                (h("a", part, href=address("nodes", partition=part)), " ")
                for part in node.partitions
            ],
            "Slurm": node.version,
            "Reason": node.reason,
            "Since": at(node.since) if node.reason else None,
        }
    )
    found = [group for group in scene.groups.values() if _on(group, name)]
    jobs = jobs_table(found, Filter(), scene) if found else empty("No job is on it.")
    chip = node_chip(node.state, node.flags, node.usable)
    body = (
        h("header", h("div", h("h1", name), chip, cls="title"), cls="page-head"),
        card("Facts", about),
        card("Jobs here", jobs, note=str(len(found))),
    )
    return Page(name, h("div", body, cls="stack"), "nodes")


def _on(group: Group, name: str) -> bool:
    return any(row.phase == "active" and name in hosts(row.node_list) for row in group.rows)


@lru_cache(maxsize=4096)
def hosts(text: str) -> frozenset[str]:
    """The nodes of a list such as `n[1-4]`."""
    try:
        return frozenset(expand_hostlist(text)) if text and text != "(null)" else frozenset()
    except ValueError:
        return frozenset()


def partitions_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """Every partition: how full it is, how long its line, and what people wait for."""
    parts = scene.snapshot.partitions
    if not parts:
        return Page("Partitions", empty("No partitions are known yet."), "partitions")
    running: dict[str, int] = {}
    waiting: dict[str, dict[str, int]] = {}
    for row in scene.snapshot.rows.values():
        if row.phase == "active":
            running[row.partition] = running.get(row.partition, 0) + row.tasks
        elif row.phase == "pending":
            reasons = waiting.setdefault(row.partition, {})
            reasons[row.reason] = reasons.get(row.reason, 0) + row.tasks
    rows = []
    for part in parts:
        reasons = waiting.get(part.name, {})
        most = max(reasons, key=lambda one: reasons[one], default="")
        why: Child = reason_words(most) if reasons else None
        usage = f"{count(part.allocated_cpus)} of {count(part.cpus)}"
        nodes = f"{part.allocated_nodes} used, {part.idle_nodes} idle, {part.other_nodes} other"
        rows.append(
            h(
                "tr",
                h(
                    "td",
                    h("a", part.name, href=address("nodes", partition=part.name), cls="id"),
                    h("span", " default", cls="dim") if part.default else None,
                ),
                h(
                    "td",
                    h(
                        "span",
                        part.available,
                        cls=f"chip {'good' if part.available == 'up' else 'bad'}",
                    ),
                ),
                h("td", meter(part.allocated_cpus, part.cpus, usage)),
                h("td", nodes),
                h("td", _jobs(running.get(part.name, 0), part.name, "active"), cls="num"),
                h("td", _jobs(sum(reasons.values()), part.name, "pending"), cls="num"),
                h("td", h("span", why, cls="dim")),
                h("td", part.time_limit, cls="num"),
                data_row=True,
            )
        )
    heads = (
        "Partition",
        "State",
        "CPUs",
        "Nodes",
        "Running",
        "Waiting",
        "Mostly because",
        "Longest",
    )
    body = card("Partitions", table(heads, rows, "Partitions", "rows"), note=count(len(parts)))
    return Page("Partitions", body, "partitions")


def _jobs(number: int, partition: str, state: str) -> Child:
    if not number:
        return h("span", "0", cls="dim")
    return h("a", count(number), href=address("", partition=partition, state=state))


def shares_page(site: Site, scene: Scene, query: Mapping[str, str]) -> Page:
    """Fair share: who has used how much of what is theirs."""
    shares = scene.snapshot.shares
    if site.hides("usage", scene.session):
        shares = tuple(one for one in shares if one.user in ("", scene.session.user))
    if not shares:
        words = "This cluster keeps no fair shares."
        hint = "They need accounting and PriorityType=priority/multifactor."
        return Page("Fair share", empty(words, hint), "shares")
    rows = [_share(one) for one in shares]
    heads = ("Account", "User", "Share", "Used", "Compared", "Fair-share factor")
    note = "a factor near 1 starts sooner, near 0 later"
    body = card("Fair share", table(heads, rows, "Fair shares", "rows"), note=note)
    reserved = scene.snapshot.reservations
    licences = scene.snapshot.licences
    more = []
    if licences:
        items = {
            one.name: meter(one.used, one.total, f"{one.used} of {one.total}") for one in licences
        }
        more.append(card("Licences", facts(items)))
    if reserved:
        lines = [
            h(
                "tr",
                h("td", one.name),
                h("td", one.state),
                h("td", count(one.nodes), cls="num"),
                h("td", at(one.start)),
                h("td", at(one.end)),
            )
            for one in reserved
        ]
        titles = ("Name", "State", "Nodes", "Begins", "Ends")
        more.append(card("Reservations", table(titles, lines, "Reservations")))
    return Page("Fair share", h("div", body, more, cls="stack"), "shares")


def _share(one: Share) -> Html:
    used, share, factor = one.used, one.share, one.factor
    compare: Child = None
    if used is not None and share:
        ratio = used / share
        words = f"{ratio:.1f} {TIMES} its share"
        compare = h(
            "span",
            bar([("bad" if ratio > 1 else "good", min(1.0, ratio / 2))], words),
            h("span", words, cls="num"),
            cls="meter",
        )
    return h(
        "tr",
        h("td", h("a", one.account, href=address("", account=one.account))),
        h("td", h("a", one.user, href=address("", user=one.user)) if one.user else None),
        h("td", f"{share:.1%}" if share is not None else None, cls="num"),
        h("td", f"{used:.1%}" if used is not None else None, cls="num"),
        h("td", compare),
        h("td", meter(factor, 1.0, f"{factor:.2f}") if factor is not None else None),
        data_row=True,
    )
