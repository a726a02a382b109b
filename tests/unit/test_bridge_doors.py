"""The webhook under many connections of others: those of the API server are answered."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientSession, ClientTimeout, TCPConnector

from slurm.bridge import doors
from slurm.bridge import webhook as hooks
from slurm.bridge.certificates import make_certificate
from slurm.bridge.kube import Kube
from slurm.bridge.metrics import Metrics
from slurm.bridge.settings import Rule, Settings
from slurm.bridge.webhook import Webhook
from slurm.stack.ports import free_ports

pytestmark = pytest.mark.attack

API_SERVER, STRANGER = "127.0.0.1", "127.0.0.2"
_HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n"
_TLS = ssl.create_default_context()
_TLS.check_hostname, _TLS.verify_mode = False, ssl.CERT_NONE


def question(size: int) -> bytes:
    """A whole question of the API server about a pod of this size."""
    pod = {
        "metadata": {"name": "p", "annotations": {"note": "x" * size}},
        "spec": {"containers": [{"name": "c"}]},
    }
    asked = {"uid": "u", "operation": "CREATE", "namespace": "team", "object": pod}
    asked["userInfo"] = {"username": "ada"}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return json.dumps(review).encode()


@asynccontextmanager
async def webhook(folder: Path) -> AsyncIterator[int]:
    """The webhook on a port, with a certificate in files; it asks Kubernetes for nothing here."""
    made = make_certificate(["localhost"])
    for name, data in made.data().items():
        (folder / name).write_bytes(base64.b64decode(data))
    (port,) = free_ports(1)
    settings = Settings(
        namespaces=["team"],
        identity=[Rule(user="ada")],
        certificates="files",
        certificate_dir=str(folder),
        webhook_port=port,
    )
    hook = Webhook(settings, cast("Kube", None), Metrics(), bridge="b", nodes=lambda: ())
    running = asyncio.ensure_future(hook.run())
    await asyncio.wait_for(hook.ready.wait(), 30)
    try:
        yield port
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def ask(port: int, size: int) -> float:
    """Ask as the API server does; the seconds until the answer."""
    began = time.monotonic()
    connector = TCPConnector(local_addr=(API_SERVER, 0), ssl=_TLS)
    async with ClientSession(connector=connector, timeout=ClientTimeout(20)) as session:
        url = f"https://127.0.0.1:{port}/mutate"
        async with session.post(url, data=question(size)) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["response"]["uid"] == "u"
    return time.monotonic() - began


async def _large_half(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_TLS, local_addr=(STRANGER, 0))
    writer.write(_HEAD)
    while True:
        writer.write(b" " * 10_000)
        await writer.drain()
        await asyncio.sleep(0.2)


async def _small_half(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_TLS, local_addr=(STRANGER, 0))
    writer.write(_HEAD.replace(b"8000000", b"1000"))
    await asyncio.sleep(600)


async def _silent(port: int) -> None:
    reader, _ = await asyncio.open_connection("127.0.0.1", port, local_addr=(STRANGER, 0))
    await reader.read()


Attack = Callable[[int], Awaitable[None]]


async def _again(attack: Attack, port: int) -> None:
    while True:
        with contextlib.suppress(OSError, ssl.SSLError):
            await attack(port)
        await asyncio.sleep(0.3)


@pytest.mark.parametrize(
    ("attack", "count"), [(_large_half, 40), (_small_half, 120), (_silent, 150)]
)
def test_connections_of_others_keep_no_large_question_of_the_api_server_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Attack, count: int
) -> None:
    monkeypatch.setattr(hooks, "MOST", 64)

    async def scenario() -> list[float]:
        async with webhook(tmp_path) as port:
            flood = [asyncio.ensure_future(_again(attack, port)) for _ in range(count)]
            await asyncio.sleep(2)  # the attack is under way
            took = [await ask(port, size) for size in (2_000_000, 100, 2_000_000)]
            for one in flood:
                one.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
            return took

    assert max(asyncio.run(scenario())) < 15


def test_in_a_full_room_the_oldest_of_who_has_most_makes_place() -> None:
    room, out = doors.Room(4), list[str]()

    def come(peer: str, name: str) -> doors.Guest:
        guest = doors.Guest(peer, lambda: out.append(name), since=float(len(seen)))
        seen.append(guest)
        room.enter(guest)
        return guest

    seen: list[Any] = []
    api = come("api", "api")
    first, second, _ = (come("mallory", f"m{n}") for n in range(3))
    come("mallory", "m3")
    assert out == ["m0"] and first.out and not api.out
    second.since = 99.0  # it had an answer
    come("bob", "bob")
    assert out == ["m0", "m2"]
    room.leave(first)
    room.leave(second)
    come("bob", "bob2")
    assert out == ["m0", "m2"]
