"""A limit on connections: when it is reached, the peer with the most loses its oldest one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger("slurm.bridge.webhook")

T = TypeVar("T")

#: Connections at the same time, and the seconds that TLS may take to begin.
MOST, SHAKE_S = 256, 4.0
#: Bytes of a question that are taken before anybody asks for them.
_AHEAD = 1 << 16


@dataclass(eq=False)
class Guest:
    """One connection, or one question, of a peer."""

    peer: str
    #: Ends it.
    end: Callable[[], object]
    #: When it came, or had its last answer.
    since: float = field(default_factory=time.monotonic)
    #: Whether it had to make room.
    out: bool = False


class Room:
    """Holds up to a number of guests; a new one is never refused.

    In a full room the peer with the most guests loses the oldest. So strangers at one address
    never cost another address its place, and those that hold on to theirs lose it first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._guests: list[Guest] = []

    def enter(self, guest: Guest) -> None:
        """Come in."""
        if len(self._guests) >= self._most:
            count = Counter(other.peer for other in self._guests)
            oldest = max(self._guests, key=lambda other: (count[other.peer], -other.since))
            self._guests.remove(oldest)
            oldest.out = True
            oldest.end()
        self._guests.append(guest)

    def leave(self, guest: Guest) -> None:
        """Go; who was shown out has gone already."""
        with contextlib.suppress(ValueError):
            self._guests.remove(guest)

    async def hold(self, peer: str, work: Awaitable[T], seconds: float) -> T | None:
        """What the work gives; None where it is late or had to make room."""
        task = asyncio.ensure_future(work)
        guest = Guest(peer, task.cancel)
        self.enter(guest)
        try:
            return await asyncio.wait_for(task, seconds)
        except asyncio.TimeoutError:
            return None
        except asyncio.CancelledError:
            if guest.out:
                return None
            raise
        finally:
            self.leave(guest)


class _Connection(RequestHandler):
    """A connection that tells when it is over."""

    guest: Guest
    gone: Callable[[], None]

    def connection_lost(self, exc: BaseException | None) -> None:
        """Its place is free."""
        self.gone()
        super().connection_lost(exc)


def answered(request: web.Request) -> None:
    """Who gets answers is no idle guest."""
    if isinstance(request.protocol, _Connection):
        request.protocol.guest.since = time.monotonic()


class Door:
    """Accepts connections for a server, up to a number at a time, before and after TLS begins."""

    def __init__(self, server: web.Server, tls: ssl.SSLContext, most: int) -> None:
        self._server, self._tls = server, tls
        self._room = Room(most)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, port: int, opened: Callable[[], None]) -> None:
        """Take connections until cancelled; `opened` is called when there may be some."""
        with _listening(port) as listening:
            opened()
            loop = asyncio.get_running_loop()
            while True:
                try:
                    connection, address = await loop.sock_accept(listening)
                except OSError as error:  # such as no descriptor left
                    log.warning("webhook: a connection was not taken: %s", error)
                    await asyncio.sleep(0.1)
                    continue
                self._begin(connection, str(address[0]))

    def _begin(self, connection: socket.socket, peer: str) -> None:
        task = asyncio.ensure_future(self._shake(connection, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, connection: socket.socket, peer: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        guest = Guest(peer, task.cancel)
        self._room.enter(guest)
        loop = asyncio.get_running_loop()
        handler = _Connection(self._server, loop=loop, lingering_time=0, read_bufsize=_AHEAD)
        handler.guest, handler.gone = guest, lambda: self._room.leave(guest)
        try:
            made = loop.connect_accepted_socket(
                lambda: handler, connection, ssl=self._tls, ssl_handshake_timeout=SHAKE_S
            )
            transport, _ = await made
        except (OSError, asyncio.CancelledError):  # not TLS, too slow, or shown out
            self._room.leave(guest)
            return
        guest.end = transport.abort


def _listening(port: int) -> socket.socket:
    """A socket on all addresses of this host, of both families where there are both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _quick(
                socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
                )
            )
    return _quick(socket.create_server(("", port), backlog=1024))


def _quick(listening: socket.socket) -> socket.socket:
    listening.setblocking(False)
    return listening
