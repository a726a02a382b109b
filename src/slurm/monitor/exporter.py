"""The exporter: serves the last snapshot as metrics; a request never asks Slurm."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from slurm.errors import OptionError
from slurm.monitor.collector import Collector
from slurm.monitor.events import Event
from slurm.monitor.exposition import OPENMETRICS, PLAIN, render
from slurm.monitor.measure import Caps, measure, measure_health, measure_tally
from slurm.monitor.snapshot import Snapshot
from slurm.monitor.webconfig import WebConfig

#: The port that Prometheus is told of in the files of `slurm cluster render`.
PORT = 9341
#: Seconds that a client may keep a connection without saying anything.
PATIENCE = 10.0
#: Connections at the same time; one more ends the oldest that has not asked for anything yet.
MOST_AT_ONCE = 32

_INDEX = b"""<!doctype html><html lang="en"><title>Slurm exporter</title>
<h1>Slurm exporter</h1><p><a href="metrics">metrics</a></p></html>
"""


class Exporter:
    """Turns what a collector finds into the answers to scrapes."""

    def __init__(
        self, collector: Collector, *, caps: Caps | None = None, version: str = ""
    ) -> None:
        self._collector = collector
        self._caps = caps or Caps()
        self._version = version
        # Both formats, made when a snapshot is: a scrape only puts the pieces together.
        self._snapshot: dict[bool, bytes] = {True: b"", False: b""}
        self._tally: dict[bool, bytes] = {True: b"", False: b""}
        collector.listen(self._prepare)

    def _prepare(self, snapshot: Snapshot, _: list[Event]) -> None:
        found = measure(snapshot, self._caps)
        with self._collector.lock:
            counted = measure_tally(self._collector.tally, [p.name for p in snapshot.partitions])
        self._tally = {form: render(counted, form) for form in (True, False)}
        self._snapshot = {form: render(found, form) for form in (True, False)}

    def metrics(self, openmetrics: bool) -> bytes:
        """The answer to a scrape. What is too old to be true is left out; counters stay."""
        view = self._collector.view()
        parts = [render(measure_health(view, self._version), openmetrics)]
        if not view.stale:
            parts.append(self._snapshot[openmetrics])
        parts.append(self._tally[openmetrics])
        return b"".join(parts) + (b"# EOF\n" if openmetrics else b"")

    @property
    def ready(self) -> bool:
        """Whether there is something to serve."""
        return not self._collector.view().stale


class ExporterServer(ThreadingHTTPServer):
    """The port: HTTP or HTTPS, with passwords where web.yml names some."""

    daemon_threads = True
    allow_reuse_address = True
    # Who comes while five wait would come back a second later.
    request_queue_size = 128

    def __init__(self, exporter: Exporter, address: str, port: int, web: WebConfig) -> None:
        self.exporter = exporter
        self.web = web
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        #: Connections whose request has not come whole, the oldest first.
        self._waiting: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self.address_family = _family(address)
        try:
            super().__init__((address, port), _Request)
        except OSError as error:
            raise OptionError(
                f"{address} port {port} cannot be listened on: {error.strerror}",
                hint="choose another: --port 0 takes any that is free",
            ) from error

    @property
    def url(self) -> str:
        """Where it is to be asked."""
        host, port = str(self.server_address[0]), self.server_address[1]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.web.tls else 'http'}://{name}:{port}/metrics"

    def server_bind(self) -> None:
        """Bind without asking the name service for our own name, which may hang."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread; who drips a request byte by byte makes room for the next client."""
        if not self._room.acquire(blocking=False):
            with self._lock, contextlib.suppress(OSError, StopIteration):
                next(iter(self._waiting)).shutdown(socket.SHUT_RDWR)
            if not self._room.acquire(timeout=1):
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def waits(self, connection: socket.socket, waiting: bool) -> None:
        """Note whether a connection has asked for something that is not answered yet."""
        with self._lock:
            self._waiting.pop(connection, None)
            if waiting:
                self._waiting[connection] = None

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The handshake is made here, in the client's own thread: a slow one delays nobody."""
        try:
            request.settimeout(PATIENCE)
            if self.web.tls is not None:
                request = self.web.tls.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
                self.waits(request, True)
                request.do_handshake()
            super().process_request_thread(request, client_address)
        except (OSError, ssl.SSLError):
            with contextlib.suppress(OSError):
                request.close()
        finally:
            self.waits(request, False)
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


class _Request(BaseHTTPRequestHandler):
    server: ExporterServer
    protocol_version = "HTTP/1.1"
    server_version = "slurm-sdk"
    sys_version = ""
    timeout = PATIENCE
    # Head and body go out in one piece and at once: in two, on a connection that is kept open as
    # Prometheus does, the second waits 40 ms for the client's word on the first.
    wbufsize = -1
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        """Read a request and answer it."""
        self.server.waits(self.connection, True)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the head, after which the client waits for us."""
        good = super().parse_request()
        self.server.waits(self.connection, False)
        return good

    def do_GET(self) -> None:
        """Answer one of the few paths there are."""
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer(HTTPStatus.OK, "text/plain", b"healthy\n")
        elif not self.server.web.passwords.admit(self.headers.get("Authorization")):
            self._answer(HTTPStatus.UNAUTHORIZED, "text/plain", b"Unauthorized\n")
        elif path == "/metrics":
            newer = "application/openmetrics-text" in self.headers.get("Accept", "")
            body = self.server.exporter.metrics(newer)
            self._answer(HTTPStatus.OK, OPENMETRICS if newer else PLAIN, body)
        elif path == "/-/ready":
            ready = self.server.exporter.ready
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, "text/plain", b"ready\n" if ready else b"no fresh snapshot\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", _INDEX)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is /metrics\n")

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="slurm"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line for every scrape is noise."""


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
