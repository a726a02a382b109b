"""Connections of browsers: those that ask for nothing make room for those that do."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds that the head of a request may take to arrive.
HEAD = 10.0
#: Connections at the same time; above it those that wait for nothing are closed, the oldest first.
MOST = 400


class Connection(H11Protocol):
    """One connection of a browser."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A browser came."""
        connections = cast("set[Connection]", self.connections)
        if len(connections) >= MOST:
            silent = [one for one in connections if one.silent]
            for one in sorted(silent, key=lambda one: one.began)[: len(connections) - MOST + 1]:
                one.transport.abort()
                connections.discard(one)
        self.began = self.loop.time()
        super().connection_made(transport)
        self.loop.call_later(HEAD, self._check)

    @property
    def silent(self) -> bool:
        """Whether nobody waits for an answer here."""
        cycle: Any = self.cycle
        # Who has yet to send the rest of a form keeps us waiting, not we them.
        return cycle is None or bool(cycle.response_complete or cycle.more_body)

    def _check(self) -> None:
        cycle: Any = self.cycle
        if cycle is None and not self.transport.is_closing():
            self.transport.abort()
