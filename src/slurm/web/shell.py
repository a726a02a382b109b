"""The frame around every page: menu, state of the connection, keys; and the page to log in."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from slurm.model.printable import printable
from slurm.web.markup import Child, Html, address, document, h
from slurm.web.pieces import Page
from slurm.web.site import Scene, Site

STATIC = Path(__file__).parent / "static"
#: Place -> title, path, key that leads there after `g`.
MENU = {
    "queue": ("Queue", "/", "q"),
    "runs": ("Runs", "/runs", "r"),
    "nodes": ("Nodes", "/nodes", "n"),
    "partitions": ("Partitions", "/partitions", "p"),
    "timeline": ("Timeline", "/timeline", "t"),
    "charts": ("Charts", "/charts", "c"),
    "shares": ("Fair share", "/shares", "f"),
}
_KEYS = {
    "/": "search",
    "j, k": "next line, line before",
    "Enter": "open the line",
    "g then q, r, n, p, t, c, f": "queue, runs, nodes, partitions, timeline, charts, fair share",
    "Esc": "leave the search, close this",
    "?": "this list",
}


@cache
def _stamp(name: str) -> str:
    """An address of a file of ours that changes with it, so that browsers may keep it."""
    data = (STATIC / name).read_bytes()
    return f"/static/{name}?{hashlib.sha256(data).hexdigest()[:12]}"


def _head(title: str, *more: Child) -> Child:
    return (
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("link", rel="icon", href=_stamp("icon.svg"), type="image/svg+xml"),
        h("link", rel="stylesheet", href=_stamp("dashboard.css")),
        h("script", src=_stamp("dashboard.js"), defer=True),
        more,
    )


def whole_page(site: Site, scene: Scene, page: Page, theme: str) -> Html:
    """A page with the frame around it."""
    menu = [
        h("a", title, href=path, aria_current="page" if place == page.place else None, data_key=key)
        for place, (title, path, key) in MENU.items()
    ]
    name = site.name or "cluster"
    brand = h(
        "a",
        h("span", "▚", aria_hidden="true", cls="logo"),
        h("b", name),
        href="/",
        cls="brand",
        aria_label=f"Slurm, {name}",
    )
    body = h(
        "body",
        h("a", "Skip to the content", href="#main", cls="skip"),
        h("header", brand, h("nav", menu, aria_label="Pages"), _tools(scene), cls="top"),
        h("div", _trouble(scene), id="banner", role="alert"),
        h("main", page.body, id="main", tabindex=-1),
        _help(),
        data_now=int(scene.now),
        data_live=True,
    )
    title = f"{page.title} · {name}"
    return document(
        "en", _head(title), body, data_theme=theme if theme in ("light", "dark") else None
    )


def _tools(scene: Scene) -> Html:
    user = scene.session.user
    leave = (
        h(
            "form",
            h("input", type="hidden", name="csrf", value=scene.session.csrf),
            h("button", f"Log out {user}".strip(), type="submit", cls="quiet"),
            method="post",
            action="/logout",
        )
        if user
        else None
    )
    return h(
        "div",
        h(
            "span",
            h("span", cls="dot", aria_hidden="true"),
            h("span", "", id="age"),
            id="live",
            role="status",
            aria_label="Connection",
        ),
        h(
            "button",
            "◐",
            type="button",
            id="theme",
            cls="icon",
            aria_label="Light or dark",
            title="Light or dark",
        ),
        h("button", "?", type="button", id="keys", cls="icon", aria_label="Keys", title="Keys (?)"),
        leave,
        cls="tools",
    )


def trouble_words(scene: Scene) -> str:
    """Why what is shown may not be true any more; "" while all is well."""
    if not scene.trouble:
        return ""
    if scene.view.snapshot is None:
        return printable(f"Slurm does not answer: {scene.trouble}")
    return printable(f"Slurm does not answer, so this is old: {scene.trouble}")


def _trouble(scene: Scene) -> Child:
    words = trouble_words(scene)
    return h("p", words) if words else None


def _help() -> Html:
    rows = [(h("dt", h("kbd", key)), h("dd", words)) for key, words in _KEYS.items()]
    close = h("form", h("button", "Close", cls="primary"), method="dialog")
    return h("dialog", h("h2", "Keys"), h("dl", rows), close, id="help", aria_label="Keys")


def login_page(per_user: bool, problem: str = "") -> Html:
    """Who has no session yet learns here how to get one."""
    said = h("p", problem, cls="problem", role="alert") if problem else None
    if per_user:
        how: Child = h(
            "form",
            h(
                "p",
                "Paste a token of Slurm. Make one on the cluster: ",
                h("code", "scontrol token lifespan=28800"),
            ),
            h(
                "label",
                "Token",
                h(
                    "textarea",
                    name="jwt",
                    rows=4,
                    required=True,
                    autocomplete="off",
                    spellcheck="false",
                ),
            ),
            h("button", "Log in", type="submit", cls="primary"),
            method="post",
            action="/login",
        )
    else:
        how = (
            h(
                "p",
                "Open the link that ",
                h("code", "slurm dashboard"),
                " printed in its terminal.",
            ),
            h("p", "It works once. Enter in that terminal prints another.", cls="dim"),
        )
    body = h(
        "body",
        h("main", h("section", h("h1", "Slurm dashboard"), said, how, cls="card login"), id="main"),
    )
    return document("en", _head("Log in"), body)


def welcome_page() -> Html:
    """Leads on after a one-time link: from a page of ours, so that the browser sends its cookie."""
    to = h("a", "Go on to the dashboard", href=address(""))
    body = h("body", h("main", h("section", h("p", to), cls="card login"), id="main"))
    return document("en", _head("Slurm", h("meta", http_equiv="refresh", content="0;url=/")), body)
