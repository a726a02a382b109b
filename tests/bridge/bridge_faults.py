"""Ways to hurt a bridge: death at a chosen write, and a road to Slurm that leads elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from bridge_kubernetes import BRIDGE

from slurm.bridge.kube import Kube
from slurm.bridge.slurm_jobs import SlurmJobs

# Writes that a death may interrupt; leases, events and registrations are not about a pod.
_OF_PODS = ("/pods/",)


class Killed(BaseException):
    """The process is gone: nothing catches it, nothing is tidied up."""


class Deaths:
    """Kills every bridge of this process at write number `at`, before or after it is sent."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.count = at, after, 0
        self.dead = False
        self.seen: list[str] = []

    async def around(self, name: str, counts: bool, send: Any) -> Any:
        if self.dead:
            raise Killed
        if counts:
            self.count += 1
            self.seen.append(name)
        here = counts and self.count == self.at
        if here and not self.after:
            self.dead = True
            raise Killed
        answer = await send
        if here or self.dead:
            self.dead = True
            raise Killed
        return answer


@contextlib.contextmanager
def deaths(at: int, *, after: bool) -> Iterator[Deaths]:
    made = Deaths(at, after=after)
    ask, call = Kube.ask, SlurmJobs.call

    async def dying_ask(self: Kube, method: str, path: str, **more: Any) -> bytes:
        if self.access.token != BRIDGE:
            return await ask(self, method, path, **more)
        counts = method != "GET" and any(part in path for part in _OF_PODS)
        work = ask(self, method, path, **more)
        try:
            content: bytes = await made.around(f"{method} {path}", counts, work)
        finally:
            work.close()
        return content

    async def dying_call(self: SlurmJobs, method: str, path: str, **more: Any) -> dict[str, Any]:
        counts = method != "GET" and path.startswith("job/")
        work = call(self, method, path, **more)
        try:
            answer: dict[str, Any] = await made.around(f"{method} {path}", counts, work)
        finally:
            work.close()
        return answer

    with patch.object(Kube, "ask", dying_ask), patch.object(SlurmJobs, "call", dying_call):
        yield made


class Road:
    """A port that leads to another port, to nowhere, or to somebody who answers in plain text."""

    def __init__(self, target: int) -> None:
        self.target: int | None = target
        self.text: bytes | None = None
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Road:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
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
