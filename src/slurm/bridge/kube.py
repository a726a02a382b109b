"""Kubernetes over its HTTP API: requests, and lists that keep themselves up to date.

Only the fields that the bridge reads are decoded, which costs less than any general client; tokens
are read again for each request; deletions carry the identity of what they delete.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import aiohttp
import msgspec
from yarl import URL

from slurm.bridge.kube_types import ListMeta, Meta
from slurm.errors import ConfigError, SlurmError

log = logging.getLogger("slurm.bridge.kube")

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
# A watch is renewed after this long, and given up where nothing came for longer.
_WATCH_S = 240


class KubeError(SlurmError):
    """The API server said no, or nothing: `status` is that of HTTP, 0 where there was none."""

    code = "SLURM-E800"

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Access:
    """How to reach an API server."""

    url: str
    context: ssl.SSLContext | None = None
    token: str | None = None
    token_file: Path | None = None
    namespace: str = "default"


def find_access(kubeconfig: str | Path | None = None) -> Access:
    """From a kubeconfig, `KUBECONFIG`, the pod that this runs in, or `~/.kube/config`."""
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if not named and (_IN_CLUSTER / "token").exists():
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        context = ssl.create_default_context(cafile=str(_IN_CLUSTER / "ca.crt"))
        home = (_IN_CLUSTER / "namespace").read_text().strip()
        bracketed = f"[{host}]" if ":" in host else host
        return Access(
            f"https://{bracketed}:{port}", context, token_file=_IN_CLUSTER / "token", namespace=home
        )
    path = Path(named) if named else Path.home() / ".kube" / "config"
    try:
        return read_kubeconfig(msgspec.yaml.decode(path.read_bytes()))
    except (OSError, msgspec.DecodeError, KeyError, StopIteration) as error:
        raise ConfigError(
            f"no access to Kubernetes: {path}: {error!r}",
            hint="set KUBECONFIG, or run it in the cluster",
        ) from error


def read_kubeconfig(config: Mapping[str, Any]) -> Access:
    """The current context of a kubeconfig; certificates, tokens and token files are understood."""

    def named(kind: str, name: str) -> Mapping[str, Any]:
        found = next(item for item in config[kind + "s"] if item["name"] == name)
        value: Mapping[str, Any] = found[kind]
        return value

    context = named("context", config["current-context"])
    cluster, user = named("cluster", context["cluster"]), named("user", context["user"])
    if "exec" in user or "auth-provider" in user:
        raise ConfigError("the kubeconfig's user needs a program to log in", hint="use a token")
    tls = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=_decoded(cluster)
    )
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    _load_client(tls, user)
    file = user.get("tokenFile")
    return Access(
        cluster["server"].rstrip("/"),
        tls if cluster["server"].startswith("https") else None,
        user.get("token"),
        Path(file) if file else None,
        context.get("namespace", "default"),
    )


def _decoded(cluster: Mapping[str, Any]) -> str | None:
    data = cluster.get("certificate-authority-data")
    return base64.b64decode(data).decode() if data else None


def _load_client(tls: ssl.SSLContext, user: Mapping[str, Any]) -> None:
    if "client-certificate" in user:
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        # ssl reads client certificates from files only.
        with tempfile.NamedTemporaryFile() as both:
            for key in ("client-certificate-data", "client-key-data"):
                both.write(base64.b64decode(user[key]) + b"\n")
            both.flush()
            tls.load_cert_chain(both.name)


class Kube:
    """One API server. Use it as `async with Kube(access) as kube`."""

    def __init__(self, access: Access, *, timeout: float = 10.0) -> None:
        self.access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Kube:
        tls = self.access.context if self.access.context is not None else False
        connector = aiohttp.TCPConnector(ssl=tls, limit=64)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """One request; anything but success is a `KubeError`."""
        data = None if body is None else msgspec.json.encode(body)
        limit = aiohttp.ClientTimeout(total=timeout) if timeout else self._timeout
        try:
            async with self._request(method, path, data, content_type, query, limit) as response:
                content: bytes = await response.read()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise KubeError(f"{method} {path}: no answer: {error!r}") from error
        if response.status >= 400:
            raise _error(method, path, response.status, content)
        return content

    def _request(
        self,
        method: str,
        path: str,
        data: bytes | None,
        content_type: str,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        if self._session is None:
            raise RuntimeError("use `async with Kube(...)`")
        headers = {"Accept": JSON, "User-Agent": "slurm-bridge"}
        if data is not None:
            headers["Content-Type"] = content_type
        token = self.access.token
        if self.access.token_file is not None:
            token = self.access.token_file.read_text().strip()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return self._session.request(
            method,
            URL(self.access.url + path, encoded=True),
            data=data,
            params=query,
            headers=headers,
            timeout=timeout,
        )

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a watch, until the server or the time ends it."""
        full = {**query, "watch": "1", "timeoutSeconds": str(_WATCH_S)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_S + 30)
        try:
            async with self._request("GET", path, None, JSON, full, timeout) as response:
                if response.status >= 400:
                    raise _error("WATCH", path, response.status, await response.read())
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise KubeError(f"WATCH {path}: {error!r}") from error


def _error(method: str, path: str, status: int, content: bytes) -> KubeError:
    try:
        said = msgspec.json.decode(content)
    except msgspec.DecodeError:
        said = {}
    said = said if isinstance(said, dict) else {}
    words = said.get("message") or content[:200].decode(errors="replace")
    return KubeError(
        f"{method} {path}: {words}", status=status, reason=str(said.get("reason") or "")
    )


class _Object(Protocol):
    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=_Object)


class _Bookmark(msgspec.Struct):
    metadata: Meta


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Watched(Generic[T]):
    """All objects of a kind, kept up to date by a list and a watch, by UID.

    `changed(old, new)` is called for every difference, also for those that happened while the
    connection was away. An expired watch (410) begins again with a list.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        kind: type[T],
        changed: Callable[[T | None, T | None], None],
        *,
        labels: str = "",
    ) -> None:
        self._kube, self._path, self._kind, self._changed = kube, path, kind, changed
        self._query = {"labelSelector": labels} if labels else {}
        self._decoder = msgspec.json.Decoder(kind, strict=False)
        page = msgspec.defstruct("Page", [("items", list[kind]), ("metadata", ListMeta)])  # type: ignore[valid-type]
        self._page: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page, strict=False)
        self.items: dict[str, T] = {}
        self.ready = asyncio.Event()
        self.lists = 0

    async def run(self) -> None:
        """Keep it up to date until cancelled."""
        pause = 0.1
        while True:
            try:
                version = await self._list()
                pause = 0.1
                while version:
                    version = await self._follow(version)
            except (KubeError, msgspec.MsgspecError) as error:
                log.warning("watch %s: %s", self._path, error)
            await asyncio.sleep(pause)
            pause = min(10.0, pause * 2)

    def put(self, item: T) -> None:
        """Take in what a write returned: the next decision sees it before the watch does."""
        meta = item.metadata
        old = self.items.get(meta.uid)
        # What is no longer there must not come back through a late answer.
        if old is not None and _newer(meta.resourceVersion, old.metadata.resourceVersion):
            self.items[meta.uid] = item
            self._changed(old, item)

    async def _list(self) -> str:
        found: dict[str, T] = {}
        query, more = {**self._query, "limit": "500"}, ""
        version = ""
        while True:
            content = await self._kube.ask(
                "GET", self._path, query={**query, **({"continue": more} if more else {})}
            )
            page = self._page.decode(content)
            found |= {item.metadata.uid: item for item in page.items}
            version, more = str(page.metadata.resourceVersion), page.metadata.continue_
            if not more:
                break
        before, self.items = self.items, found
        for uid in {*before, *found}:
            old, new = before.get(uid), found.get(uid)
            if old is None or new is None or old != new:
                self._changed(old, new)
        self.lists += 1
        self.ready.set()
        return version

    async def _follow(self, version: str) -> str:
        """Watch from a version on; returns the version to go on from, or nothing for a new list."""
        query = {**self._query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async for line in self._kube.watch(self._path, query):
            if not line.strip():
                continue
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                return ""
            if event.type == "BOOKMARK":
                version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resourceVersion
                continue
            item = self._decoder.decode(event.object)
            uid, version = item.metadata.uid, item.metadata.resourceVersion
            old = self.items.get(uid)
            if event.type == "DELETED":
                self.items.pop(uid, None)
                self._changed(old or item, None)
            elif old is None or _newer(version, old.metadata.resourceVersion):
                self.items[uid] = item
                self._changed(old, item)
        return version


def _newer(one: str, other: str) -> bool:
    """Versions of one API server are numbers that grow."""
    return not (one.isdigit() and other.isdigit()) or int(one) > int(other)
