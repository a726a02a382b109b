"""Ways to hurt a bridge: death at a chosen await, and a road to Slurm that leads elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from unittest.mock import patch

from mortal import Fate, Mortal
from slurm.bridge.scheduler import Scheduler


@contextlib.contextmanager
def death_at(at: int) -> Iterator[Fate]:
    """Every bridge of this process dies where it waits for the `at`-th time while it acts."""
    fate = Fate(at)
    round_ = Scheduler._round

    async def dying(self: Scheduler, key: str) -> None:
        await Mortal(round_(self, key), fate)

    with patch.object(Scheduler, "_round", dying):
        yield fate


class Road:
    """A port that leads to another port, to nowhere, or to somebody who answers in plain text."""

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target: int | None = target
        self._tls = tls
        self.text: bytes | None = None
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Road:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in list(self._open):
            writer.close()

    def lead(self, target: int | None, text: bytes | None = None) -> None:
        """Lead elsewhere from now on, for open connections too."""
        self.target, self.text = target, text
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self.text is not None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.text)
                await writer.drain()
            elif self.target is not None:
                there = await asyncio.open_connection("127.0.0.1", self.target)
                self._open.add(there[1])
                await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
