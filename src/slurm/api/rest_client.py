"""A small client of slurmrestd: one request, one answer, errors by Slurm's own number."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from slurm.errors import (
    ConfigError,
    RestError,
    RestRefused,
    RestTokenRefused,
    RestUnreachable,
    RestVersionNotServed,
)

# Newest first: the first that slurmrestd serves is spoken.
VERSIONS = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40")

# Slurm's numbers for "the controller did not answer", in slurm_errno.h: the connection could not be
# made, broke, or stayed silent. None of them says anything about the job that was asked for.
UNREACHABLE_NUMBERS = frozenset({1001, 1800, 1801, 1802, 1803, 5004, 9001})
JOB_NOT_FOUND = 2017
# An idle connection that the other side may have closed is not used for what must not happen twice.
_FRESH_S = 2.0
_TOKEN_STATUS = frozenset({401, 403, 511})


class RestClient:
    """Requests to one slurmrestd, from any thread; a thread keeps its connection open.

    `url` is `http://host:6820`, `https://...` (checked against `ca_file` or the system's
    authorities) or `unix:/path`. `token_file` is read again for every request, so that a renewed
    token is used at once; a leading `SLURM_JWT=` in it is fine. The API version is agreed on with
    the first request and again when slurmrestd stops serving it.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        user: str | None = None,
        ca_file: str | Path | None = None,
        timeout: float = 15.0,
        versions: Sequence[str] = VERSIONS,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "unix"):
            raise ConfigError(
                f"url is {url!r}; slurmrestd is reached by http, https or unix",
                hint="for example http://127.0.0.1:6820, https://slurm.example:6820 or unix:/path",
            )
        self.url, self.timeout = url, timeout
        self._parts, self._user = parts, user
        self._token, self._token_file = token, Path(token_file) if token_file else None
        self._ca_file, self._versions = ca_file, tuple(versions)
        self._version: str | None = None
        self._local = threading.local()

    @property
    def version(self) -> str:
        """The API version that both sides speak, such as `v0.0.45`."""
        if self._version is None:
            self._version = self._negotiate()
        return self._version

    def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        plugin: str = "slurm",
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Ask for `path` of a plugin (`slurm` or `slurmdb`) and return the answer.

        Only a GET is ever sent twice; the error of anything else says with `perhaps_done` whether
        it may have arrived.
        """
        for again in (True, False):
            asked = self.version
            full = f"/{plugin}/{asked}/{quote(path.lstrip('/'), safe='/,')}"
            if query:
                full += "?" + urlencode(query, safe=",")
            try:
                return self._ask(method, full, body, timeout or self.timeout)
            except RestVersionNotServed:
                # The daemon was upgraded. What it does not serve it did not do.
                self._version = None
                if not again:
                    raise
        raise AssertionError("not reached")

    def _negotiate(self) -> str:
        for version in self._versions:
            try:
                self._ask("GET", f"/slurm/{version}/ping/", None, self.timeout)
            except RestVersionNotServed:
                continue
            except RestRefused:
                pass  # it is served, and that was the question
            return version
        raise RestVersionNotServed(
            f"slurmrestd at {self.url} serves none of {', '.join(self._versions)}",
            hint="start slurmrestd with a data parser of that list, or use Slurm 24.05 or later",
            status=404,
        )

    def _ask(self, method: str, path: str, body: object, timeout: float) -> dict[str, Any]:
        """One request; a GET goes out again where a connection that was kept open had closed."""
        kept = getattr(self._local, "connection", None)
        if method == "GET" and kept is not None and kept.sock is not None:
            try:
                return self._send(method, path, body, timeout)
            except RestUnreachable as error:
                if error.status or isinstance(error.__cause__, TimeoutError):
                    raise
        return self._send(method, path, body, timeout)

    def _send(self, method: str, path: str, body: object, timeout: float) -> dict[str, Any]:
        """Send it once. Whatever goes wrong on the way becomes one of our errors."""
        data = None if body is None else _bytes(body)
        headers = {"Accept": "application/json", **self._credentials()}
        if data is not None:
            headers["Content-Type"] = "application/json"
        connection, sent = self._connection(timeout, fresh=method != "GET"), False
        try:
            if connection.sock is None:
                connection.connect()
            sent = True
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RestUnreachable(
                f"slurmrestd at {self.url} did not answer: {error!r}",
                perhaps_done=sent,
                hint="is slurmrestd running, and does its address and port match?",
            ) from error
        self._local.used = time.monotonic()
        return read_answer(response.status, response.getheader("Content-Type") or "", content, path)

    def _connection(self, timeout: float, *, fresh: bool) -> http.client.HTTPConnection:
        """This thread's connection, or a new one where the old may be stale."""
        held: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        old = time.monotonic() - getattr(self._local, "used", 0.0) > _FRESH_S
        if held is not None and fresh and old:
            held.close()
        if held is None:
            held = self._local.connection = self._connect(timeout)
        held.timeout = timeout
        if held.sock is not None:
            held.sock.settimeout(timeout)
        return held

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        parts = self._parts
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, timeout)
        host, port = parts.hostname or "localhost", parts.port or 6820
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca_file)
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _credentials(self) -> dict[str, str]:
        token = self._token
        if self._token_file is not None:
            try:
                token = self._token_file.read_text().strip().removeprefix("SLURM_JWT=").strip()
            except OSError as error:
                raise RestTokenRefused(
                    f"the token file {self._token_file} cannot be read: {error.strerror}",
                    hint="write it with: scontrol token lifespan=3600 > FILE",
                ) from error
        headers = {"X-SLURM-USER-TOKEN": token} if token else {}
        return {**headers, "X-SLURM-USER-NAME": self._user} if self._user else headers


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def read_answer(status: int, content_type: str, content: bytes, path: str) -> dict[str, Any]:
    """The answer as a value, or the error that it is: a pure function of what came back."""
    answer = _json(content) if "json" in content_type else None
    if status in _TOKEN_STATUS:
        raise RestTokenRefused(
            f"slurmrestd refuses the token (HTTP {status})",
            status=status,
            hint="make a new one: scontrol token username=USER lifespan=3600",
        )
    if answer is None:
        # A path that is not served is answered in plain text: it is the version, never the job.
        kind = RestVersionNotServed if status == 404 else RestUnreachable
        text = content[:200].decode(errors="replace").strip()
        raise kind(f"{path} answered HTTP {status}: {text}", status=status, perhaps_done=True)
    errors = [e for e in answer.get("errors") or () if isinstance(e, dict)]
    if not errors and status < 400:
        return answer
    raise _refusal(status, errors, path)


def _refusal(status: int, errors: list[dict[str, Any]], path: str) -> RestError:
    numbers = [int(e.get("error_number") or 0) for e in errors]
    number = next((n for n in numbers if n), 0)
    words = dict.fromkeys(str(e.get(key) or "") for e in errors for key in ("error", "description"))
    said = "; ".join(w for w in words if w) or "no reason given"
    away = status in (502, 503, 504) or number in UNREACHABLE_NUMBERS
    kind = RestUnreachable if away else RestRefused
    return kind(
        f"{path}: {said} (Slurm error {number}, HTTP {status})",
        number=number,
        status=status,
        perhaps_done=away,
    )


def _bytes(body: object) -> bytes:
    """JSON with all text as it is: what is no UTF-8 in a path or a variable arrives unchanged."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _json(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def number_of(value: object) -> int | None:
    """A number as slurmrestd writes it: plain, or with `set` and `infinite` beside it."""
    if isinstance(value, dict):
        usable = value.get("set") and not value.get("infinite")
        return int(value.get("number") or 0) if usable else None
    return int(value) if isinstance(value, (int, float)) else None


def infinite(value: object) -> bool:
    """Whether slurmrestd says that there is no limit."""
    return isinstance(value, dict) and bool(value.get("infinite"))
