"""What stands before every page: host names, limits, sessions, and the headers of answers."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slurm.web.kept import visitor
from slurm.web.sessions import Session, Sessions

#: What browsers are told with every answer: nothing of others, nothing inline, in no frame.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: with that, browsers hide the Origin of our own forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
#: Paths that need no session.
OPEN = ("/login", "/static/")
#: The longest form, and the seconds that it may take to arrive.
FORM, FORM_SECONDS = 64 << 10, 10.0


class Guard:
    """Middleware: turns away what must not reach a page, and marks every answer."""

    def __init__(self, app: ASGIApp, sessions: Sessions, names: frozenset[str], tls: bool) -> None:
        self._app = app
        self._sessions = sessions
        self._names = names
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        turned_away = self._refusal(scope)
        session = scope.get("state", {}).get("session")
        visitor.set((session.user or session.id) if session is not None else "")
        answer = turned_away if turned_away is not None else self._app
        await answer(scope, receive, self._marked(send, scope["path"]))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self.knows(headers.get("host", "")):
            return PlainTextResponse("this host name is not ours", 421)
        session = self._sessions.find(cookie_of(headers, scope))
        scope.setdefault("state", {})["session"] = session
        if session is not None and not session.bucket.take():
            return PlainTextResponse("too many requests", 429, {"Retry-After": "5"})
        if scope["method"] not in ("GET", "HEAD") and not _same_origin(headers, self._tls):
            return PlainTextResponse("this request comes from another site", 403)
        if session is None and not scope["path"].startswith(OPEN):
            if "text/html" in headers.get("accept", ""):
                return RedirectResponse("/login", 303)
            return PlainTextResponse("open the link that `slurm dashboard` printed", 401)
        return None

    def knows(self, host: str) -> bool:
        """Whether a Host header names us: another name would be a rebound one. Ports may differ."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            return "localhost" in self._names and ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _marked(self, send: Send, path: str) -> Callable[[Message], Awaitable[None]]:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not path.startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
                if self._tls:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        return marked


def cookie_name(scope: Scope) -> str:
    """Two dashboards on one host keep out of each other's way: browsers ignore the port."""
    server = scope.get("server") or ("", 0)
    return f"slurm-dashboard-{server[1]}"


def cookie_of(headers: Headers, scope: Scope) -> str:
    """The session's id that a browser sent; "" for none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(scope))
    except CookieError:
        return ""
    return found.value if found is not None else ""


def with_cookie(answer: Response, session: Session, scope: Scope, tls: bool) -> Response:
    """An answer that lets a browser in: only for requests that come from our own pages."""
    answer.set_cookie(
        cookie_name(scope),
        session.id,
        max_age=max(1, int(session.ends - time.monotonic())),
        httponly=True,
        samesite="strict",
        secure=tls,
    )
    return answer


def session_of(request: Request) -> Session:
    """The session of a request that the guard let through."""
    found: Session = request.state.session
    return found


async def form_of(request: Request) -> dict[str, str] | None:
    """The fields of a form that one of our pages sent; None for what must not be believed."""
    data = b""

    async def all_of_it() -> bool:
        nonlocal data
        async for chunk in request.stream():
            data += chunk
            if len(data) > FORM:
                return False
        return True

    try:
        if not await asyncio.wait_for(all_of_it(), FORM_SECONDS):
            return None
    except (asyncio.TimeoutError, ClientDisconnect):
        return None
    try:
        fields = {
            key: values[0] for key, values in parse_qs(data.decode(), max_num_fields=20).items()
        }
    except ValueError:
        return None
    session: Session | None = request.state.session
    if session is not None and not _equal(fields.get("csrf", ""), session.csrf):
        return None
    return fields


def _equal(one: str, other: str) -> bool:
    import secrets

    return secrets.compare_digest(one.encode(), other.encode())


def _same_origin(headers: Headers, tls: bool) -> bool:
    """Whether a request that changes something comes from a page of this very address."""
    told: Any = headers.get("sec-fetch-site")
    if told is not None and told != "same-origin":
        return False
    scheme = "https" if tls else "http"
    return headers.get("origin", "") == f"{scheme}://{headers.get('host', '')}"
