"""Small pieces that pages are put together from: states, bars, times, tables, cards."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm.model.states import parse_state
from slurm.web.markup import Child, Html, address, h

#: Kind of state -> its mark: shapes differ, so that no colour has to be told from another.
MARKS = {"active": "▶", "pending": "◷", "good": "✓", "bad": "✕", "unknown": "?"}
_NODE_MARKS = {"good": "○", "active": "◐", "full": "●", "bad": "✕", "warn": "▲", "off": "◌"}
#: What stands where nothing is known, and between two factors.
NONE, TIMES = "\u2013", "\u00d7"


@dataclass(frozen=True)
class Page:
    """A page: its title, its body, and whether it also shows what is not in the snapshot."""

    title: str
    body: Html
    #: The entry of the menu that it belongs to.
    place: str
    #: Seconds after which it is made anew even without a new snapshot; 0: never.
    lively: float = 0.0
    status: int = 200


def kind_of(state: str) -> str:
    """`active`, `pending`, `good`, `bad` or `unknown`."""
    known = parse_state(state)
    if known.phase == "finished":
        return "good" if known.succeeded else "bad"
    return known.phase


def chip(state: str) -> Html:
    """A job's state: mark and word."""
    kind = kind_of(state)
    word = state.replace("_", " ").capitalize()
    return h(
        "span", h("span", MARKS[kind], cls="mark", aria_hidden="true"), word, cls=f"chip {kind}"
    )


def node_kind(state: str, flags: Sequence[str], usable: bool) -> str:
    """`good` (idle), `active` (part of it), `full`, `warn` (drained), `off` or `bad` (down)."""
    if state in ("down", "error", "unknown") or {"not_responding", "fail"} & set(flags):
        return "off" if "powered_down" in flags else "bad"
    if not usable or state == "future":
        return "warn"
    return {"allocated": "full", "mixed": "active"}.get(state, "good")


def node_chip(state: str, flags: Sequence[str], usable: bool) -> Html:
    """A node's state: mark and words."""
    kind = node_kind(state, flags, usable)
    words = " + ".join([state, *(flag.replace("_", " ") for flag in flags)]).capitalize()
    mark = h("span", _NODE_MARKS[kind], cls="mark", aria_hidden="true")
    return h("span", mark, words, cls=f"chip node-{kind}")


def node_mark(kind: str) -> str:
    """The mark of a kind of node."""
    return _NODE_MARKS[kind]


def bar(parts: Iterable[tuple[str, float]], label: str, cls: str = "bar") -> Html:
    """A bar of parts of a whole, each with its kind; the label says the same in words."""
    at, pieces = 0.0, []
    for kind, part in parts:
        width = max(0.0, min(1.0 - at, part))
        if width > 0:
            pieces.append(
                h(
                    "rect",
                    x=f"{100 * at:.2f}%",
                    y=0,
                    width=f"{100 * width:.2f}%",
                    height="100%",
                    cls=f"fill-{kind}",
                )
            )
            at += width
    return h("svg", pieces, cls=cls, role="img", aria_label=label, preserveAspectRatio="none")


def meter(used: float, total: float, words: str, kind: str = "use") -> Html:
    """How much of something is used: a bar and the words for it."""
    part = used / total if total else 0.0
    return h(
        "span", bar([(kind, part)], f"{words} in use"), h("span", words, cls="num"), cls="meter"
    )


def lasted(seconds: float | None) -> str:
    """`8 s`, `2 m 05 s`, `3 h 07 m`, `4 d 03 h`; "" for what is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d} h"
    if hours:
        return f"{hours} h {minutes:02d} m"
    return f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"


def size(amount: float | None) -> str:
    """Bytes in a few letters; "" for what is not known."""
    if amount is None:
        return ""
    value, unit = float(amount), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.3g} {unit}"


def count(number: float) -> str:
    """`40,000`."""
    return f"{number:,.0f}"


def at(moment: float | None, otherwise: str = NONE) -> Html:
    """A time of the day; the browser writes it in the viewer's own zone."""
    if moment is None:
        return h("span", otherwise, cls="dim")
    when = datetime.datetime.fromtimestamp(moment).astimezone()
    text = when.strftime("%Y-%m-%d %H:%M:%S")
    return h("time", text, datetime=when.isoformat(), data_at=int(moment))


def since(moment: float | None, now: float) -> Html:
    """How long ago something began; the browser counts on."""
    if moment is None:
        return h("span", NONE, cls="dim")
    return h("time", lasted(now - moment), data_since=int(moment), cls="num")


def facts(rows: Mapping[str, Child]) -> Html:
    """Names and values; what has no value is left out."""
    found = [(h("dt", name), h("dd", value)) for name, value in rows.items() if value]
    return h("dl", found, cls="facts")


def card(title: Child, *body: Child, cls: str = "", note: Child = None) -> Html:
    """A part of a page with a heading."""
    head = h("header", h("h2", title), h("span", note, cls="dim") if note else None)
    return h("section", head, body, cls=f"card {cls}".strip())


def tile(
    name: str, value: Child, note: Child = None, href: str | None = None, cls: str = ""
) -> Html:
    """A number that is seen first."""
    inner = (
        h("span", name, cls="label"),
        h("span", value, cls="value"),
        h("span", note, cls="dim"),
    )
    if href is None:
        return h("div", inner, cls=f"tile {cls}".strip())
    return h("a", inner, cls=f"tile {cls}".strip(), href=href)


def table(
    heads: Sequence[Child], rows: Iterable[Html], label: str, cls: str = "", key: str = ""
) -> Html:
    """A table that scrolls by itself where the screen is narrow."""
    head = h("thead", h("tr", [h("th", one, scope="col") for one in heads]))
    inner = h("table", head, h("tbody", rows), cls=cls, aria_label=label, id=key or None)
    return h("div", inner, cls="scroll", tabindex=0, role="region", aria_label=label)


def empty(words: str, more: Child = None, mark: str = "◌") -> Html:
    """What stands where there is nothing to show, and says why."""
    sign = h("span", mark, cls="sign", aria_hidden="true")
    return h("div", sign, h("p", words), h("p", more, cls="dim") if more else None, cls="empty")


def job_link(job_id: str, cls: str = "") -> Html:
    """A link to a job's page; the rest of an array leads to the array."""
    base = job_id.partition("_[")[0]
    return h("a", job_id, href=address("jobs", base), cls=f"id {cls}".strip())


def node_link(name: str) -> Html:
    """A link to a node's page."""
    return h("a", name, href=address("nodes", name))
