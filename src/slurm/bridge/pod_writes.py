"""Every change that the bridge makes to a pod: the patch as a pure function, and its sending."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timezone
from typing import Any

import msgspec

from slurm.bridge.kube import STRATEGIC, Kube, KubeError
from slurm.bridge.kube_types import Pod
from slurm.bridge.names import CONDITION, FIELD_MANAGER, FINALIZER, GATE, HELD, JOB, NODE
from slurm.bridge.paths import api_path

log = logging.getLogger("slurm.bridge.pods")

_JSON_PATCH = "application/json-patch+json"
_MERGE = "application/merge-patch+json"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EVENTS_WAITING = 2000
Ops = list[dict[str, Any]]


def same_pod(pod: Pod) -> Ops:
    """The patch applies to this pod only, not to a later one of the same name."""
    return [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]


def ungate(pod: Pod, node: str, *, pin: bool) -> Ops:
    """Take the gate away and say which node it is; `pin` makes kube-scheduler use that one."""
    at = pod.gates.index(GATE)
    path = f"/spec/schedulingGates/{at}"
    ops: Ops = [
        *same_pod(pod),
        {"op": "test", "path": path + "/name", "value": GATE},
        {"op": "add", "path": "/metadata/annotations/" + escaped(NODE), "value": node},
    ]
    ops += _pinned(pod, node) if pin else []
    return [*ops, {"op": "remove", "path": path}]


def _pinned(pod: Pod, node: str) -> Ops:
    """Affinity to one node. Terms are alternatives, so each of the user's gets the condition."""
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = pod.spec.affinity
    inner = affinity.nodeAffinity if affinity else None
    required = inner.requiredDuringSchedulingIgnoredDuringExecution if inner else None
    terms = {"nodeSelectorTerms": [{"matchFields": [rule]}]}
    if affinity is None:
        return [
            {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {_REQUIRED: terms}}}
        ]
    base = "/spec/affinity/nodeAffinity"
    if inner is None:
        return [{"op": "add", "path": base, "value": {_REQUIRED: terms}}]
    if required is None:
        return [{"op": "add", "path": f"{base}/{_REQUIRED}", "value": terms}]
    ops: Ops = []
    for number, term in enumerate(required.nodeSelectorTerms):
        path = f"{base}/{_REQUIRED}/nodeSelectorTerms/{number}/matchFields"
        value: object = rule if term.matchFields else [rule]
        ops.append({"op": "add", "path": path + ("/-" if term.matchFields else ""), "value": value})
    return ops


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodWrites:
    """Sends them. Each returns the pod as it is afterwards, or None where it is gone."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_EVENTS_WAITING)

    async def mark(self, pod: Pod, job: int | None) -> Pod | None:
        """Write the job's number on the pod, or take it off."""
        labels = {JOB: None if job is None else str(job)}
        return await self._merge(pod, {"labels": labels})

    async def hold(self, pod: Pod, message: str) -> Pod | None:
        """Leave the pod without a job until somebody removes the annotation."""
        return await self._merge(pod, {"labels": {JOB: None}, "annotations": {HELD: message}})

    async def place(self, pod: Pod, node: str, *, direct: bool) -> Pod | None:
        """Let the pod run on the node: by kube-scheduler, or by binding it here."""
        after: Pod | None = pod
        if GATE in pod.gates:
            after = await self._patch(pod, ungate(pod, node, pin=not direct))
        if direct and after is not None and not after.spec.nodeName:
            await self._bind(pod, node)
        return after

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            # The API server refuses it for a later pod of the same name.
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._kube.ask("POST", _path(pod, "binding"), body=body)

    async def expire(self, pod: Pod) -> Pod | None:
        """The kubelet ends a pod that is over its deadline and says so; its logs stay."""
        if pod.spec.activeDeadlineSeconds == 1:
            return pod
        ops = [*same_pod(pod), {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}]
        return await self._patch(pod, ops)

    async def evict(self, pod: Pod, reason: str, message: str, longest: int) -> None:
        """Say why on the pod, then delete it, and only it; it gets `longest` seconds at most."""
        await self.condition(pod, "DisruptionTarget", "True", reason, message)
        leaving = pod.metadata.deletionGracePeriodSeconds
        asked = leaving if leaving is not None else pod.spec.terminationGracePeriodSeconds or 0
        await self.delete(pod, grace=longest if asked > longest else None)

    async def delete(self, pod: Pod, *, grace: int | None = None) -> None:
        """Delete this pod; grace 0 where no kubelet is there to do it."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.metadata.uid},
        }
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await _gone_is_fine(self._kube.ask("DELETE", _path(pod), body=body))

    async def release(self, pod: Pod) -> Pod | None:
        """Take the finalizer off."""
        at = pod.metadata.finalizers.index(FINALIZER)
        path = f"/metadata/finalizers/{at}"
        test = {"op": "test", "path": path, "value": FINALIZER}
        return await self._patch(pod, [*same_pod(pod), test, {"op": "remove", "path": path}])

    async def condition(
        self, pod: Pod, kind: str, status: str, reason: str, message: str
    ) -> Pod | None:
        """Set a condition of the pod; the same one again costs nothing."""
        there = next((c for c in pod.status.conditions if c.type == kind), None)
        if there and (there.status, there.reason, there.message) == (status, reason, message):
            return pod
        shown = {"type": kind, "status": status, "reason": reason, "message": message}
        body = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{**shown, "lastTransitionTime": now()}]},
        }
        return await self._send(pod, "status", body, STRATEGIC)

    async def tell(self, pod: Pod, reason: str, message: str) -> Pod | None:
        """Say what is being waited for, as a condition and, where it is news, as an event."""
        after = await self.condition(pod, CONDITION, "False", reason, message)
        if after is not pod:
            self.event(pod, reason, message)
        return after

    def event(self, pod: Pod, reason: str, message: str, kind: str = "Normal") -> None:
        """An event for `kubectl describe`; sent in the background, dropped where too many wait."""
        meta = pod.metadata
        about = {"kind": "Pod", "apiVersion": "v1", "name": meta.name}
        body = {
            "metadata": {"generateName": meta.name[:40] + "-", "namespace": meta.namespace},
            "involvedObject": {**about, "namespace": meta.namespace, "uid": meta.uid},
            "reason": reason,
            "message": message[:1000],
            "type": kind,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
        }
        if not self._events.full():
            self._events.put_nowait(body)

    async def send_events(self) -> None:
        """Send events as they come, until cancelled."""
        while True:
            body = await self._events.get()
            place = api_path("events", namespace=body["metadata"]["namespace"])
            try:
                await self._kube.ask("POST", place, body=body)
            except KubeError as error:
                log.info("event not taken: %s", error.message)

    async def _merge(self, pod: Pod, metadata: dict[str, Any]) -> Pod | None:
        body = {"metadata": {**metadata, "uid": pod.metadata.uid}}
        return await self._send(pod, "", body, _MERGE)

    async def _patch(self, pod: Pod, ops: Ops) -> Pod | None:
        return await self._send(pod, "", ops, _JSON_PATCH)

    async def _send(self, pod: Pod, part: str, body: object, kind: str) -> Pod | None:
        sent = self._kube.ask(
            "PATCH",
            _path(pod, part),
            body=body,
            content_type=kind,
            query={"fieldManager": FIELD_MANAGER},
        )
        content = await _gone_is_fine(sent)
        return msgspec.json.decode(content, type=Pod, strict=False) if content else None


def _path(pod: Pod, part: str = "") -> str:
    meta = pod.metadata
    return api_path("pods", namespace=meta.namespace, name=meta.name, part=part)


async def _gone_is_fine(request: Any) -> bytes | None:
    """The answer, or None where the pod is gone or another has its name."""
    try:
        content: bytes = await request
    except KubeError as error:
        if error.status == 404 or (error.status == 409 and "uid" in error.message.lower()):
            return None
        raise
    return content
