"""Serve the dashboard until SIGTERM or Ctrl-C: what `slurm dashboard` does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm.errors import OptionError
from slurm.monitor.collector import STALE, Collector
from slurm.monitor.exporter import is_loopback
from slurm.monitor.serving import SHORTEST
from slurm.shutdown import Shutdown
from slurm.web.logfiles import Opener
from slurm.web.sessions import Sessions
from slurm.web.site import Rules, Site

if TYPE_CHECKING:
    import uvicorn

    from slurm.cluster import Cluster

#: The port that is tried first where none was asked for.
PORT = 9342
#: Seconds between two collections at least; a large cluster is asked less often by itself.
INTERVAL = 5.0


@dataclass(frozen=True)
class Serving:
    """What a person asked for; the names are those of the options."""

    address: str = "127.0.0.1"
    port: int | None = None
    interval: float = INTERVAL
    read_only: bool = False
    per_user: bool = False
    certificate: Path | None = None
    key: Path | None = None
    name: tuple[str, ...] = ()
    helper: str = ""

    @property
    def beyond(self) -> bool:
        """Whether other machines reach it."""
        return not is_loopback(self.address)

    def check(self) -> None:
        """Refuse what cannot be meant, or must not be."""
        if self.interval < SHORTEST:
            raise OptionError(
                f"--interval {self.interval:g} is too short: the controller serves everybody",
                hint=f"{SHORTEST:g} second or more; {INTERVAL:g} is usual",
            )
        if self.port is not None and not 0 <= self.port <= 65535:
            raise OptionError(f"--port {self.port} is no port", hint="0 takes any that is free")
        if (self.certificate is None) != (self.key is None):
            raise OptionError("TLS needs both --certificate and --key")
        if self.beyond and self.certificate is None:
            raise OptionError(
                f"--address {self.address} is reached by other machines, and without TLS anybody "
                "between could read along",
                hint="give --certificate and --key, or stay on loopback and come through "
                "ssh -L 9342:127.0.0.1:9342 HOST",
            )
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise OptionError(f"{path} is not there, or not a file")


@dataclass
class Dashboard:
    """A dashboard that is being served."""

    server: uvicorn.Server
    sessions: Sessions
    site: Site
    base: str

    def link(self) -> str:
        """An address that lets one browser in, once; where users have tokens, the plain one."""
        if self.site.rules.per_user:
            return f"{self.base}/"
        return f"{self.base}/login?token={self.sessions.link()}"


@contextmanager
def prepared(
    connect: Callable[[], Cluster],
    asked: Serving,
    acting: Callable[[], Cluster] | None = None,
) -> Iterator[tuple[Dashboard, socket.socket]]:
    """A dashboard that collects, and the socket that it is to answer on.

    `connect` gives what looks; `acting` what cancels, holds and releases, once a viewer asks.
    """
    import uvicorn

    from slurm.web.app import build_app
    from slurm.web.connections import Connection

    asked.check()
    opener = Opener(asked.helper)
    opener.start()  # first of all: the process must be split off before any thread begins
    try:
        cluster = connect()
        rules = Rules(asked.read_only, asked.per_user or asked.beyond)
        if rules.per_user and cluster.backend.kind != "local":
            raise OptionError(
                "several users need Slurm's own commands on this machine, for their tokens",
                hint="start it on the cluster, or on loopback for yourself alone",
            )
        collector = Collector(cluster.backend, interval=asked.interval, stale_after=STALE)
        site, sessions = Site(collector, cluster, opener, acting, rules), Sessions()
        tls = asked.certificate is not None
        app = build_app(site, sessions, _names(asked), tls)
        config = uvicorn.Config(
            app,
            loop="asyncio",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            http=Connection,
            # Far above what `Connection` keeps: it closes those that wait for nothing first, and
            # what they asked takes a moment to end.
            limit_concurrency=1600,
            ssl_ciphers="ECDHE+AESGCM:ECDHE+CHACHA20",
            timeout_graceful_shutdown=2,
            ssl_certfile=asked.certificate,
            ssl_keyfile=asked.key,
        )
        listening = _listen(asked)
        place = listening.getsockname()
        host = f"[{place[0]}]" if ":" in place[0] else place[0]
        host = asked.name[0] if asked.name else host
        base = f"{'https' if tls else 'http'}://{host}:{place[1]}"
        with contextlib.closing(listening):
            site.start()
            try:
                yield Dashboard(uvicorn.Server(config), sessions, site, base), listening
            finally:
                collector.stop()
    finally:
        opener.stop()


def serve(
    connect: Callable[[], Cluster],
    asked: Serving,
    began: Callable[[Dashboard], None],
    acting: Callable[[], Cluster] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; `began` is told once it listens."""
    with prepared(connect, asked, acting) as (dashboard, listening), Shutdown() as shutdown:
        began(dashboard)
        asyncio.run(_answer(dashboard.server, listening, shutdown))


async def _answer(server: uvicorn.Server, listening: socket.socket, shutdown: Shutdown) -> None:
    def stop() -> None:
        server.should_exit = True

    # uvicorn would install handlers of its own, and only while it serves.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    with shutdown.calling(stop):
        await server.serve(sockets=[listening])


def _names(asked: Serving) -> frozenset[str]:
    """The host names that it answers to."""
    names = {name.lower() for name in asked.name} | {asked.address.lower()}
    return frozenset(
        names | ({"localhost"} if not asked.beyond else {socket.gethostname().lower()})
    )


def _listen(asked: Serving) -> socket.socket:
    family = socket.AF_INET6 if ":" in asked.address else socket.AF_INET
    # Where nobody chose a port, that of another user's dashboard is no reason to stop.
    ports = [PORT, 0] if asked.port is None else [asked.port]
    for port in ports:
        try:
            return socket.create_server((asked.address, port), family=family, backlog=256)
        except OSError as error:
            if port == ports[-1]:
                raise OptionError(
                    f"{asked.address} port {port} cannot be listened on: {error.strerror}",
                    hint="choose another: --port 0 takes any that is free",
                ) from error
    raise AssertionError("there is always a last port")
