"""HTML that is escaped by construction: text can only become text, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TypeAlias
from urllib.parse import quote, urlencode

from slurm.model.printable import printable


class Html(str):
    """Text that is markup already; only `h` and `join` make it."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"

_VOID = frozenset(("br", "hr", "img", "input", "link", "meta"))
# Places where an address stands; ours all begin here, never with another host or `javascript:`.
_ADDRESSES = frozenset(("href", "src", "action"))
_OWN = re.compile(r"(?:/(?![/\\])|[?#]|\Z)")


def text(value: str) -> Html:
    """Any text, to be seen as it is."""
    return Html(escape(printable(value), quote=True))


def h(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element: `h("td", row.name, cls="name")`.

    `cls` is `class`, an underscore a dash; None and False leave an attribute out.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = "class" if key == "cls" else key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(word)
            continue
        given = str(value)
        if word in _ADDRESSES and not _OWN.match(given):
            raise ValueError(f"{word}={given!r} leads away from here")
        parts.append(f'{word}="{text(given)}"')
    opened = f"<{' '.join(parts)}>"
    return Html(opened) if name in _VOID else Html(f"{opened}{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Children of an element one after the other; what is no markup becomes text."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, (str, int, float)):
        return text(str(children))
    return Html("".join([join(child) for child in children]))


def address(*parts: str, **query: object) -> str:
    """A path of ours: each part quoted, and the query without what is empty."""
    given = {key: str(value) for key, value in query.items() if value not in (None, "", 0)}
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return path + ("?" + urlencode(given) if given else "")


def document(language: str, head: Child, body: Html, **attributes: Attribute) -> Html:
    """A whole page."""
    return Html(f"<!doctype html>{h('html', h('head', head), body, lang=language, **attributes)}")
