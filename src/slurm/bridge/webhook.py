"""The admission webhook: HTTPS in front of `admission`, and its registration in Kubernetes."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from slurm.bridge.admission import Answer, mutate, read_question, validate
from slurm.bridge.certificates import Certificate, CertificateSecret, load, read_files
from slurm.bridge.kube import APPLY, Kube, KubeError
from slurm.bridge.kube_types import Meta, Node, SchedulingGroup
from slurm.bridge.manifests import WEBHOOK_NAME, failure_policy, webhooks
from slurm.bridge.metrics import Metrics
from slurm.bridge.names import FIELD_MANAGER, POD_GROUP_LABEL, PREFIX
from slurm.bridge.parameters import asked
from slurm.bridge.settings import Settings
from slurm.errors import SlurmError

log = logging.getLogger("slurm.bridge.webhook")

_RENEW_S = 3600.0
_LOOK_S = 10.0
# How far up a pod's owners are asked for annotations.
_DEEPEST = 6
_PLURALS = {
    ("batch/v1", "Job"): "jobs",
    ("batch/v1", "CronJob"): "cronjobs",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "leaderworkersets",
}


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
        self._policy = ""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ready = asyncio.Event()
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.add_routes([web.post("/mutate", self._mutate), web.post("/validate", self._validate)])
        self._runner = web.AppRunner(app, access_log=None)

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
        try:
            site = web.TCPSite(
                self._runner, port=self._settings.webhook_port, ssl_context=self._tls
            )
            await site.start()
            self.ready.set()
            since = 0.0
            while True:
                await asyncio.sleep(_LOOK_S)
                since += _LOOK_S
                changed = self._policy != failure_policy(self._settings, self._nodes())
                if since >= _RENEW_S or changed:
                    since = 0.0
                    await self._renew()
        finally:
            await self._runner.cleanup()

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
        for body in webhooks(self._settings, authority, self._bridge, url=self._url, policy=policy):
            plural = body["kind"].lower() + "s"
            await self._kube.ask(
                "PATCH",
                f"/apis/admissionregistration.k8s.io/v1/{plural}/{WEBHOOK_NAME}",
                body=body,
                content_type=APPLY,
                query={"fieldManager": FIELD_MANAGER, "force": "true"},
            )
        self._policy = policy

    async def _mutate(self, request: web.Request) -> web.Response:
        review = msgspec.json.decode(await request.read())
        asked_for = review["request"]
        pod = msgspec.convert(asked_for.get("object") or {}, _Made, strict=False)
        inherited = await self._inherited(str(asked_for.get("namespace")), pod)
        return self._answer(
            review, lambda: mutate(read_question(asked_for, inherited), self._settings)
        )

    async def _validate(self, request: web.Request) -> web.Response:
        review = msgspec.json.decode(await request.read())
        return self._answer(
            review,
            lambda: validate(read_question(review["request"], {}), self._settings, self._bridge),
        )

    def _answer(self, review: Mapping[str, Any], decide: Any) -> web.Response:
        try:
            answer: Answer = decide()
        except (msgspec.ValidationError, KeyError, ValueError) as error:
            answer = Answer(False, f"slurm bridge: the pod cannot be read: {error}")
        self._metrics.admissions.labels(answer="yes" if answer.allowed else "no").inc()
        response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": answer.allowed}
        if answer.message:
            response["status"] = {"message": answer.message, "reason": "Invalid", "code": 422}
        if answer.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(answer.patch).encode()).decode()
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**kind, "response": response})

    async def _inherited(self, namespace: str, pod: _Made) -> dict[str, str]:
        """What a pod's owners and its group ask for; the nearest owner's word counts."""
        found: dict[str, str] = {}
        owners = pod.metadata.ownerReferences
        for _ in range(_DEEPEST):
            owner = next((o for o in owners if o.controller), None)
            plural = _PLURALS.get((owner.apiVersion, owner.kind)) if owner else None
            if owner is None or plural is None:
                break
            value = await self._read(owner.apiVersion, namespace, plural, owner.name)
            found = {**_wishes(owner.kind, value), **found}
            owners = value.metadata.ownerReferences
        for api, name in _groups_of(pod):
            value = await self._read(api, namespace, "podgroups", name)
            found = {**_wishes("PodGroup", value), **found}
        return found

    async def _read(self, api: str, namespace: str, plural: str, name: str) -> _Owning:
        """One object above a pod; one that cannot be read asks for nothing."""
        path = f"/apis/{api}/namespaces/{namespace}/{plural}/{name}"
        try:
            content = await self._kube.ask("GET", path)
        except SlurmError as error:
            log.info("%s %s: %s", plural, name, error.message)
            return _Owning()
        return msgspec.json.decode(content, type=_Owning, strict=False)


class _MadeSpec(msgspec.Struct, frozen=True):
    schedulingGroup: SchedulingGroup | None = None


class _Made(msgspec.Struct, frozen=True):
    """A pod that is being created: what says whose it is."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: _MadeSpec = msgspec.field(default_factory=_MadeSpec)


class _OwningSpec(msgspec.Struct, frozen=True):
    activeDeadlineSeconds: int | None = None


class _Owning(msgspec.Struct, frozen=True):
    """An object above a pod."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: _OwningSpec = msgspec.field(default_factory=_OwningSpec)


def _wishes(kind: str, value: _Owning) -> dict[str, str]:
    asks = asked(value.metadata.annotations)
    deadline = value.spec.activeDeadlineSeconds
    if kind == "Job" and deadline is not None:
        asks.setdefault("timelimit", str(-(-deadline // 60)))
    return {PREFIX + name: text for name, text in asks.items()}


def _groups_of(pod: _Made) -> Iterator[tuple[str, str]]:
    """The API and name of the PodGroup that a pod says it is in."""
    if pod.spec.schedulingGroup and pod.spec.schedulingGroup.podGroupName:
        yield "scheduling.k8s.io/v1alpha2", pod.spec.schedulingGroup.podGroupName
    elif label := pod.metadata.labels.get(POD_GROUP_LABEL):
        yield "scheduling.x-k8s.io/v1alpha1", label
