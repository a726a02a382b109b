"""What strangers and spent sessions can do to a dashboard: nothing that others would notice."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from served import Served, dashboard, events, until
from slurm import Cluster, task
from slurm.web.connections import HEAD, MOST
from slurm.web.sessions import STREAMS

pytestmark = pytest.mark.attack


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with dashboard("--cluster", "embedded", "--job-base-dir", str(tmp_path)) as found:
        yield found


def test_a_flood_of_strangers_keeps_nobody_out(served: Served) -> None:
    seen = [served.ask("/", Cookie="")[0] for _ in range(120)]
    assert set(seen) == {303}
    assert {served.ask("/login?token=wrong", Cookie="")[0] for _ in range(60)} == {403}
    served.enter()
    assert served.ask("/")[0] == 200


def test_silent_connections_make_room_for_those_that_ask(served: Served) -> None:
    place = urlsplit(served.base)
    with contextlib.ExitStack() as held:
        silent = [
            held.enter_context(socket.create_connection((place.hostname, place.port), timeout=60))
            for _ in range(MOST + 80)
        ]
        silent[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")  # a head that never ends
        served.enter()
        assert served.ask("/")[0] == 200
        began = time.monotonic()
        assert silent[-1].recv(1) == b""
        assert time.monotonic() - began < HEAD + 20


def test_forms_that_never_end_make_room_for_those_that_ask(served: Served) -> None:
    place = urlsplit(served.base)
    head = f"POST /login HTTP/1.1\r\nHost: {place.netloc}\r\nOrigin: {served.base}\r\n"
    form = f"{head}Content-Length: 60000\r\n\r\nj".encode()
    with contextlib.ExitStack() as held:
        for _ in range(MOST + 200):
            at = (place.hostname, place.port)
            stranger = held.enter_context(socket.create_connection(at, timeout=60))
            stranger.sendall(form)
        assert served.ask("/login", Cookie="")[0] == 401
        served.enter()
        assert served.ask("/")[0] == 200


def test_a_session_has_so_many_streams_however_fast_they_are_opened(served: Served) -> None:
    served.enter()
    place = urlsplit(served.base)
    granted: list[int] = []
    connections: list[http.client.HTTPConnection] = []

    def open_one() -> None:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        connections.append(connection)
        connection.request(
            "GET", "/", headers={"Accept": "text/event-stream", "Cookie": served.cookie}
        )
        granted.append(connection.getresponse().status)

    threads = [threading.Thread(target=open_one) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(granted) == [200] * STREAMS + [429] * (60 - STREAMS)
    for connection in connections:
        connection.close()

    def room() -> bool:
        with contextlib.suppress(AssertionError):
            return bool(next(events(served, "/")))
        return False

    until("room for a new one", room)


def test_a_stream_ends_with_its_session(served: Served, tmp_path: Path) -> None:
    @task
    def wait(path: str) -> None:
        import os
        import time

        while not os.path.exists(path):
            time.sleep(0.05)

    with Cluster(backend_type="embedded", job_base_dir=str(tmp_path)):
        job = wait(str(tmp_path / "end"))
    served.enter()
    stream = events(served, "/")
    assert next(stream)
    page = served.ask_until(f"/jobs/{job.id}", 'name="csrf"')
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
    form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": served.base}
    body = urlencode({"csrf": csrf})
    assert served.ask("/logout", method="POST", body=body, **form)[0] == 303
    ended = time.monotonic() + 60
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        for _ in stream:
            assert time.monotonic() < ended, "the stream goes on after the logout"
    assert served.ask("/")[0] == 303
    (tmp_path / "end").touch()
    job.result(timeout=60)


@pytest.mark.parametrize("query", ["timeline?hours={}", "?page={}", "?order={}", "jobs/{}"])
def test_a_number_of_thousands_of_digits_ends_no_page(served: Served, query: str) -> None:
    """Python refuses to read such numbers, with an error of its own."""
    served.enter()
    assert served.ask("/" + query.format("9" * 5000))[0] in (200, 404)
