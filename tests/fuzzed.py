"""Servers of ours without a network: bytes of a client go in, for both ways to fuzz.

Each raises where an answer is missing or says that something broke.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

from slurm.api.agent_error import AgentError
from slurm.bridge import admission, owners
from slurm.bridge.kube_types import Meta
from slurm.bridge.paths import BadName, api_path
from slurm.bridge.settings import Rule, Settings
from slurm.cli import verbs
from slurm.cli.frame import COMMON
from slurm.cli.jsonrpc import Server
from slurm.cli.mcp import tool_of
from slurm.errors import SlurmError
from slurm.monitor.collector import Collector
from slurm.monitor.exporter import Exporter, _Request
from slurm.monitor.webconfig import WebConfig

BROKEN = re.compile(rb"HTTP/1\.[01] 500 ")
#: In a request these stand for the id and the mark of a session that was let in.
SESSION, CSRF = b"SESSION", b"CSRF"
_PORT = 9342


class Broken(Exception):
    """A server answered that it broke, or nothing."""


# ---- the exporter and the dashboard -------------------------------------------------------------


class _Told:
    """A backend whose Slurm is away."""

    kind = "local"

    def call(self, verb: str, *args: Any) -> Any:
        raise AgentError("timeout", "it did not answer within 60 s")

    def __getattr__(self, name: str) -> Any:
        if name in ("_agent", "agent"):
            raise AttributeError(name)

        def away(*_: object, **__: object) -> Any:
            raise SlurmError(f"{name}: Slurm is away")

        return away


class _Socket:
    """A connection on which a client has said all that it will say."""

    def __init__(self, data: bytes) -> None:
        self._data, self.said = data, b""

    def makefile(self, mode: str, *_: object) -> Any:
        return io.BytesIO(self._data) if "r" in mode else _Out(self)

    def settimeout(self, _: object) -> None: ...

    def setsockopt(self, *_: object) -> None: ...


class _Out(io.BytesIO):
    def __init__(self, to: _Socket) -> None:
        super().__init__()
        self._to = to

    def write(self, data: Any, /) -> int:
        self._to.said += bytes(data)
        return len(data)


@cache
def _exporter() -> Any:
    exporter = Exporter(Collector(_Told()))  # type: ignore[arg-type]
    return SimpleNamespace(exporter=exporter, web=WebConfig(), waits=lambda *_: None)


def exporter(data: bytes) -> bytes:
    """What the exporter answers to these bytes."""
    connection = _Socket(data)
    _Request(connection, ("127.0.0.1", 1), _exporter())  # type: ignore[arg-type]
    return _whole(connection.said)


def _whole(said: bytes) -> bytes:
    if BROKEN.search(said):
        raise Broken(said[:2000].decode(errors="replace"))
    return said


class _Wire(asyncio.Transport):
    """The transport under a connection of the dashboard."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", _PORT)})
        self.said, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Noted(logging.Handler):
    """What uvicorn says of an application that raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        # A stream that its browser has left has no end.
        if record.exc_info:
            self.told.append(record)


@cache
def _dashboard() -> tuple[Any, Any, _Noted]:
    import uvicorn

    from slurm.web.app import build_app
    from slurm.web.kept import Bucket
    from slurm.web.logfiles import Opener
    from slurm.web.sessions import Sessions
    from slurm.web.site import Site

    cluster: Any = SimpleNamespace(backend=_Told(), name="fuzz")
    site = Site(Collector(_Told()), cluster, Opener())  # type: ignore[arg-type]
    sessions = Sessions()
    session = sessions.open()
    session.bucket = Bucket(1e12, 1e12)
    app = build_app(site, sessions, frozenset({"localhost"}), False)
    config = uvicorn.Config(app, ws="none", log_config=None, lifespan="off", access_log=False)
    config.load()
    noted = _Noted()
    logging.getLogger("uvicorn.error").addHandler(noted)
    return config, session, noted


def dashboard(data: bytes) -> bytes:
    """What the dashboard answers to these bytes of a browser that was let in."""
    config, session, noted = _dashboard()
    noted.told.clear()
    data = data.replace(SESSION, session.id.encode()).replace(CSRF, session.csrf.encode())
    said = asyncio.run(_spoken(config, data))
    for record in noted.told:
        wrong = record.exc_info[1] if record.exc_info else None
        raise Broken(record.getMessage()) from wrong
    return _whole(said)


async def _spoken(config: Any, data: bytes) -> bytes:
    from uvicorn.server import ServerState

    from slurm.web.connections import Connection

    state, wire = ServerState(), _Wire()
    connection = Connection(config=config, server_state=state, app_state={})
    connection.connection_made(wire)
    if data:  # a transport never says that nothing came
        connection.data_received(data)
    if state.tasks:
        await asyncio.wait(set(state.tasks), timeout=0.2)
    # Streams go on until the browser leaves.
    connection.connection_lost(None)
    if state.tasks:
        _, rest = await asyncio.wait(set(state.tasks), timeout=10)
        if rest:
            raise Broken("the request goes on though its browser has left")
    return wire.said


# ---- assistants ---------------------------------------------------------------------------------


@cache
def _assistant() -> Server:
    tools = [tool_of(verb, COMMON) for verb in verbs() if verb.name in ("show", "logs", "queue")]
    echo = [dataclasses.replace(tool, call=lambda given: (dict(given), False)) for tool in tools]
    return Server("slurm", "1", "", echo)


def assistant(data: bytes) -> str:
    """What `slurm mcp` answers to these lines; its tools only repeat what they are given."""
    answers = io.StringIO()
    _assistant().serve(data.decode("utf-8", "surrogateescape").splitlines(), answers)
    for line in answers.getvalue().splitlines():
        json.loads(line)
    return answers.getvalue()


# ---- the webhook of the bridge ------------------------------------------------------------------

_BRIDGE = Settings(identity=[Rule(user="alice", allow_partitions=["gpu"])])


def webhook(data: bytes) -> None:
    """An AdmissionReview: as a new pod, as a changed one, and the paths of what stands above it."""
    request = admission.read_review(data)
    question = admission.read_question(request, {})
    _paths(question.pod.metadata)
    for answer in (
        admission.mutate(question, _BRIDGE),
        admission.validate(question, _BRIDGE, "bridge"),
    ):
        if not answer.allowed and not answer.message:
            raise Broken("refused without a word")
        json.dumps(answer.patch)


def _paths(meta: Meta) -> None:
    owner = owners.controller_of(meta)
    if owner is None or (owner.apiVersion, owner.kind) not in owners.PLURALS:
        return
    plural = owners.PLURALS[owner.apiVersion, owner.kind]
    try:
        path = api_path(plural, api=owner.apiVersion, namespace="team", name=owner.name)
    except BadName:
        return
    if ".." in path or set("?#%\\") & set(path) or path.count("/") > 7:
        raise Broken(path)
