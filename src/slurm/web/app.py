"""The web application: which address shows which page, and the streams that keep pages true."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from slurm.errors import SlurmError
from slurm.model.printable import printable
from slurm.web import cluster_pages, job_page, queue_page, runs_page, time_pages
from slurm.web.acts import ACTS, carry_out
from slurm.web.details import JOB_ID, detail
from slurm.web.guard import Guard, form_of, session_of, with_cookie
from slurm.web.kept import TooManyQuestions
from slurm.web.logstream import log_events
from slurm.web.markup import address
from slurm.web.peers import peer_of
from slurm.web.pieces import Page, empty
from slurm.web.sessions import STREAMS, Session, Sessions, refusal, user_of
from slurm.web.shell import STATIC, login_page, trouble_words, welcome_page, whole_page
from slurm.web.site import Scene, Site

#: Seconds after which a stream says that it is alive, and how old its data are.
TICK = 2.0
#: Seconds that the first sight of a page waits for what it looks up.
FIRST = 0.5
Draw = Callable[..., Page]
#: Path -> what draws it, and whether it holds what belongs to one session alone.
PAGES: dict[str, tuple[Draw, bool]] = {
    "/": (queue_page.queue_page, False),
    "/jobs/{job_id}": (job_page.job_page, True),
    "/runs": (runs_page.runs_page, False),
    "/runs/{run:path}": (runs_page.run_page, False),
    "/nodes": (cluster_pages.nodes_page, False),
    "/nodes/{name}": (cluster_pages.node_page, False),
    "/partitions": (cluster_pages.partitions_page, False),
    "/timeline": (time_pages.timeline_page, False),
    "/charts": (time_pages.charts_page, False),
    "/shares": (cluster_pages.shares_page, False),
}


def build_app(site: Site, sessions: Sessions, names: frozenset[str], tls: bool) -> Starlette:
    """The application for one site; `names` are the host names that it answers to."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        site.attach()
        yield

    routes = [
        Route("/login", partial(_login, site, sessions, tls), methods=["GET", "POST"]),
        Route("/logout", partial(_logout, sessions), methods=["POST"]),
        Route("/jobs/{job_id}/log", partial(_log, site)),
        Route("/jobs/{job_id}/{act}", partial(_act, site), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
        *(Route(path, partial(_page, site, draw, own)) for path, (draw, own) in PAGES.items()),
    ]
    guard = Middleware(Guard, sessions=sessions, names=names, tls=tls)
    app = Starlette(routes=routes, middleware=[guard], lifespan=lifespan)
    app.state.sessions = sessions
    return app


# ---- pages --------------------------------------------------------------------------------------


async def _page(site: Site, draw: Draw, own: bool, request: Request) -> Response:
    """A page, or, for those who ask for a stream, the same page again and again."""
    job = request.path_params.get("job_id")
    if job is not None and not JOB_ID.match(job):
        return PlainTextResponse("this is not a job id", 404)
    render = partial(_rendered, site, draw, own, request, session_of(request))
    if "text/event-stream" in request.headers.get("accept", ""):
        return _Stream(request, _page_events(site, render))
    drawing = asyncio.ensure_future(asyncio.to_thread(render))
    try:
        scene, page = await asyncio.wait_for(asyncio.shield(drawing), FIRST)
    except asyncio.TimeoutError:
        # Slurm takes its time: the page is there at once, and its stream brings what it shows.
        scene, page = site.scene(session_of(request)), _waiting()
        drawing.add_done_callback(lambda done: done.exception())
    theme = request.cookies.get("theme", "")
    text = await asyncio.to_thread(whole_page, site, scene, page, theme)
    return HTMLResponse(text, page.status)


def _waiting() -> Page:
    return Page("Looking it up", empty("Looking it up \u2026", mark="\u25f7"), "")


def _drawn(draw: Draw, site: Site, scene: Scene, query: dict[str, str], **where: Any) -> Page:
    """A page; where the way to the cluster is gone, one that says so until it is there again."""
    try:
        return draw(site, scene, query, **where)
    except TooManyQuestions:
        raise  # no page for other viewers
    except SlurmError as error:
        return Page("Cannot be looked up", empty(error.message), "", status=503, lively=TICK)


def _rendered(
    site: Site, draw: Draw, own: bool, request: Request, session: Session
) -> tuple[Scene, Page]:
    """The page as it is now; viewers who see the same share one drawing of it."""
    scene = site.scene(session)
    who = session.id if own else session.user
    key = (request.url.path, request.url.query, scene.version, bool(scene.trouble), who)
    query = dict(request.query_params)
    make = partial(_drawn, draw, site, scene, query, **request.path_params)
    try:
        page = site.pages.get(key, float("inf"), make)
        if page.lively:
            page = site.pages.get(key, page.lively, make)
    except TooManyQuestions as error:
        page = Page("Not looked up", empty(refusal(error)), "", status=429, lively=TICK)
    return scene, page


async def _page_events(
    site: Site, render: Callable[[], tuple[Scene, Page]]
) -> AsyncIterator[tuple[str, Any]]:
    """The page whenever it changed, and in between that the connection lives."""
    sent: str | None = None
    while True:
        scene, page = await asyncio.to_thread(render)
        if page.body != sent:
            sent = page.body
            title = printable(f"{page.title} · {site.name or 'cluster'}")
            yield "part", {"html": page.body, "title": title}
        known = scene.view.snapshot is not None
        yield (
            "state",
            {
                "age": round(scene.view.age, 1) if known else None,
                "now": scene.now,
                "trouble": trouble_words(scene),
                "about": _about(scene),
            },
        )
        await site.changed(TICK)


def _about(scene: Scene) -> str:
    """How the collector fares, for those who point at the age."""
    health = scene.view.health
    return (
        f"{health.collections} collections with {health.commands} commands so far; the last took "
        f"{health.took:.2f} s, the next is {health.pause:.0f} s after it"
    )


class _Stream(Response):
    """Server-sent events: at most `STREAMS` of a session, and none after its end."""

    def __init__(self, request: Request, events: AsyncIterator[tuple[str, Any]]) -> None:
        super().__init__()
        self._session = session_of(request)
        self._sessions: Sessions = request.app.state.sessions
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the browser leaves or the session ends."""
        if self._session.streams >= STREAMS:
            refused = PlainTextResponse("too many pages are open", 429, {"Retry-After": "10"})
            await refused(scope, receive, send)
            return
        self._session.streams += 1
        answer = StreamingResponse(self._lines(), media_type="text/event-stream")
        sending = asyncio.ensure_future(answer(scope, receive, send))
        try:
            while not sending.done() and self._sessions.find(self._session.id) is self._session:
                await asyncio.wait({sending}, timeout=TICK)
        finally:
            self._session.streams -= 1
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _lines(self) -> AsyncIterator[str]:
        async for name, data in self._events:
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _log(site: Site, request: Request) -> Response:
    job_id, stream = request.path_params["job_id"], request.query_params.get("stream", "out")
    if not JOB_ID.match(job_id):
        return PlainTextResponse("this is not a job id", 404)
    session = session_of(request)
    return _Stream(request, log_events(site, session, job_id, stream))


# ---- what changes something ---------------------------------------------------------------------


async def _act(site: Site, request: Request) -> Response:
    """Cancel, hold, release or requeue; asked for by a form of ours alone."""
    job_id, act = request.path_params["job_id"], ACTS.get(request.path_params["act"])
    form = await form_of(request)
    if form is None:
        return PlainTextResponse(
            "this form is not one of ours, or too old: load the page anew", 403
        )
    if act is None or not JOB_ID.match(job_id):
        return PlainTextResponse("there is no such thing to do", 404)
    session = session_of(request)

    def do() -> None:
        found = detail(site, site.scene(session), job_id)
        carry_out(site, session, found, act, form.get("submit", ""))

    try:
        await asyncio.to_thread(do)
    except SlurmError as error:
        return PlainTextResponse(refusal(error), 409)
    site.look_again()
    return RedirectResponse(address("jobs", job_id, did=act.name), 303)


async def _login(site: Site, sessions: Sessions, tls: bool, request: Request) -> Response:
    """A one-time token becomes a cookie, or a token of Slurm does."""
    per_user = site.rules.per_user
    if request.method == "GET":
        token = request.query_params.get("token", "")
        session = None if per_user else sessions.redeem(token)
        if session is None:
            problem = "This link is used up or too old." if token else ""
            return HTMLResponse(login_page(per_user, problem), 403 if token else 401)
        return with_cookie(HTMLResponse(welcome_page()), session, request.scope, tls)
    form = await form_of(request)
    if not per_user or form is None:
        return PlainTextResponse("no", 403)
    if not sessions.may_try(await asyncio.to_thread(peer_of, request)):
        return PlainTextResponse("too many logins from your address", 429, {"Retry-After": "5"})
    jwt = form.get("jwt", "").strip().removeprefix("SLURM_JWT=")
    try:
        user, seconds = await asyncio.to_thread(user_of, jwt)
    except SlurmError as error:
        return HTMLResponse(login_page(per_user, refusal(error)), 403)
    session = sessions.open(user, jwt, seconds)
    return with_cookie(HTMLResponse(welcome_page()), session, request.scope, tls)


async def _logout(sessions: Sessions, request: Request) -> Response:
    if await form_of(request) is None:
        return PlainTextResponse("this form is not one of ours", 403)
    sessions.close(session_of(request))
    return RedirectResponse("/login", 303)
