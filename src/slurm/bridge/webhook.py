"""The admission webhook: HTTPS in front of `admission`, and its registration in Kubernetes."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from aiohttp import web

from slurm.bridge.admission import (
    DAEMON_SETS,
    Answer,
    Request,
    mutate,
    read_question,
    read_review,
    validate,
)
from slurm.bridge.certificates import Certificate, CertificateSecret, load, read_files
from slurm.bridge.doors import MOST, Door, Room, answered
from slurm.bridge.kube import APPLY, STRATEGIC, Kube, KubeError
from slurm.bridge.kube_types import Node
from slurm.bridge.manifests import (
    ADMISSION,
    HOOK,
    REGISTRATIONS,
    WEBHOOK_NAME,
    failure_policy,
    webhooks,
    writes_registration,
)
from slurm.bridge.metrics import Metrics
from slurm.bridge.names import FIELD_MANAGER
from slurm.bridge.owners import Made, Owners
from slurm.bridge.paths import api_path
from slurm.bridge.settings import Settings
from slurm.errors import SlurmError

log = logging.getLogger("slurm.bridge.webhook")

_RENEW_S = 3600.0
_LOOK_S = 10.0
# Less than the API server waits: it hears the reason, not a silence that may let the pod in.
_PATIENCE_S = 4.0
# Bytes of a question that is read at once, and how many larger ones are in memory together.
_SMALL, _LARGE_AT_A_TIME = 256 * 1024, 8


class Webhook:
    """Answers the API server; `bridge` is the user that the bridge itself is to it."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        metrics: Metrics,
        *,
        bridge: str,
        nodes: Callable[[], Iterable[Node]],
        url: str = "",
    ) -> None:
        self._settings, self._kube, self._metrics = settings, kube, metrics
        self._bridge, self._url, self._nodes = bridge, url, nodes
        self._owners = Owners(kube)
        self._policy = ""
        self._large, self._small = Room(_LARGE_AT_A_TIME), Room(MOST)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ready = asyncio.Event()
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.add_routes([web.post("/mutate", self._mutate), web.post("/validate", self._validate)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_PATIENCE_S)

    async def run(self) -> None:
        """Serve until cancelled, with a certificate that is renewed."""
        while True:
            try:
                certificate = await self._certificate()
                await self._register(certificate)
                break
            except (KubeError, OSError) as error:
                log.warning("webhook: %s", error)
                await asyncio.sleep(1.0)
        load(self._tls, certificate)
        await self._runner.setup()
        assert self._runner.server is not None
        door = Door(self._runner.server, self._tls, MOST)
        port = self._settings.webhook_port
        try:
            await asyncio.gather(door.serve(port, self.ready.set), self._keep_current())
        finally:
            await self._runner.cleanup()

    async def _keep_current(self) -> None:
        """Renew the certificate in time, and the registration where nodes ask for another."""
        since = 0.0
        while True:
            await asyncio.sleep(_LOOK_S)
            since += _LOOK_S
            changed = self._policy != failure_policy(self._settings, self._nodes())
            if since >= _RENEW_S or changed:
                since = 0.0
                await self._renew()

    async def _renew(self) -> None:
        try:
            certificate = await self._certificate()
            load(self._tls, certificate)
            await self._register(certificate)
        except (KubeError, OSError) as error:
            log.warning("webhook: the certificate was not renewed: %s", error)

    async def _certificate(self) -> Certificate:
        if self._settings.certificates == "files":
            return read_files(self._settings.certificate_dir)
        service, home = self._settings.service, self._settings.namespace
        names = [f"{service}.{home}.svc", f"{service}.{home}", service, "localhost", "127.0.0.1"]
        return await CertificateSecret(self._kube, home, names).current()

    async def _register(self, certificate: Certificate) -> None:
        """Tell the API server where the webhook is and whom to believe; the same again is fine."""
        authority = base64.b64encode(certificate.authority).decode()
        policy = failure_policy(self._settings, self._nodes())
        if policy != self._settings.failure_policy:
            log.warning("failurePolicy Ignore is refused: a node of Slurm's is without its taint")
        if self._settings.registration == "static":
            if writes_registration(self._settings):
                await self._fill_in(authority, policy)
        else:
            bodies = webhooks(self._settings, authority, self._bridge, url=self._url, policy=policy)
            for body in bodies:
                await self._patch(body["kind"].lower() + "s", body, APPLY)
        self._policy = policy

    async def _fill_in(self, authority: str, policy: str) -> None:
        """Only what changes; the rest is as it was installed."""
        own = self._settings.certificates == "self"
        client = {"clientConfig": {"caBundle": authority}} if own else {}
        body = {"webhooks": [{"name": HOOK, "failurePolicy": policy, **client}]}
        for plural in REGISTRATIONS:
            await self._patch(plural, body, STRATEGIC)

    async def _patch(self, plural: str, body: object, content_type: str) -> None:
        query = {"fieldManager": FIELD_MANAGER}
        await self._kube.ask(
            "PATCH",
            api_path(plural, api=ADMISSION, name=WEBHOOK_NAME),
            body=body,
            content_type=content_type,
            query={**query, "force": "true"} if content_type == APPLY else query,
        )

    async def _mutate(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._mutated)

    async def _validate(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._validated)

    async def _mutated(self, asked_for: Request) -> Answer:
        daemon, inherited = await self._is_daemon(asked_for), {}
        if not daemon:
            inherited = await self._owners.wishes(asked_for.namespace, _made(asked_for))
        return mutate(read_question(asked_for, inherited, daemon=daemon), self._settings)

    async def _validated(self, asked_for: Request) -> Answer:
        daemon = asked_for.operation == "CREATE" and await self._is_daemon(asked_for)
        return validate(read_question(asked_for, {}, daemon=daemon), self._settings, self._bridge)

    async def _is_daemon(self, asked_for: Request) -> bool:
        """Whether a DaemonSet of a listed namespace makes the pod: by its controller, and there."""
        listed = asked_for.namespace in self._settings.nodes.daemon_set_namespaces
        if not listed or asked_for.userInfo.username != DAEMON_SETS:
            return False
        return await self._owners.daemon(asked_for.namespace, _made(asked_for))

    async def _body(self, request: web.Request) -> bytes | None:
        """The question, or None where it is late or made room.

        Anybody in the network may send some: of large ones few are in memory. No error of it is
        kept, for it would keep what has come so far.
        """
        small = request.content_length is not None and request.content_length <= _SMALL
        room = self._small if small else self._large
        return await room.hold(request.remote or "", request.read(), _PATIENCE_S)

    async def _answer(
        self, request: web.Request, decide: Callable[[Request], Awaitable[Answer]]
    ) -> web.Response:
        """Whatever goes wrong is a refusal with the reason: an error may let the pod in."""
        try:
            if (content := await self._body(request)) is None:
                late = web.Response(status=408, text="the question did not come in time")
                late.force_close()
                return late
            asked_for = read_review(content)
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text=f"no AdmissionReview: {error}") from error
        try:
            answer = await asyncio.wait_for(decide(asked_for), _PATIENCE_S)
        except (msgspec.MsgspecError, ArithmeticError, ValueError) as error:
            answer = Answer(False, f"slurm bridge: the pod cannot be read: {error}")
        except asyncio.TimeoutError:
            answer = Answer(False, "slurm bridge: its owners were not read in time; try again")
        except SlurmError as error:
            answer = Answer(False, f"slurm bridge: {error.message}")
        answered(request)
        self._metrics.admissions.labels(answer="yes" if answer.allowed else "no").inc()
        return web.json_response(_review(asked_for.uid, answer))


def _made(asked_for: Request) -> Made:
    return msgspec.json.decode(asked_for.object, type=Made, strict=False)


def _review(uid: str, answer: Answer) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.message:
        response["status"] = {"message": answer.message, "reason": "Invalid", "code": 422}
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(answer.patch).encode()).decode()
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return {**kind, "response": response}
