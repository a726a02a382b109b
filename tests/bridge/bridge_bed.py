"""One scenario's world: a namespace, nodes, a kubelet and bridges on the real control planes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from bridge_kubelet import EXIT, Kubelet
from bridge_kubernetes import BRIDGE, BRIDGE_USER, USER, ControlPlane
from bridge_processes import Daemon, free_port
from bridge_slurm import SlurmRest

from slurm.bridge.install import installation
from slurm.bridge.kube import APPLY, MERGE, STRATEGIC, Kube, KubeError
from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.manifests import webhooks
from slurm.bridge.names import JOB
from slurm.bridge.service import Bridge
from slurm.bridge.settings import Settings, parse_settings
from slurm.errors import RestError

PATIENCE = 120.0
_RBAC = "/apis/rbac.authorization.k8s.io/v1/"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": _RBAC + "clusterroles",
    "ClusterRoleBinding": _RBAC + "clusterrolebindings",
    "Role": _RBAC + "namespaces/{}/roles",
    "RoleBinding": _RBAC + "namespaces/{}/rolebindings",
}


class Bed:
    """What a test does to Kubernetes and Slurm, and what it waits for."""

    def __init__(self, plane: ControlPlane, slurm: SlurmRest, kube: Kube, user: Kube) -> None:
        self.plane, self.slurm, self.kube, self.user = plane, slurm, kube, user
        self.token = secrets.token_hex(4)
        self.namespace = f"t-{self.token}"
        self.label = f"test/{self.token}"
        self.kubelet = Kubelet(kube)
        self.nodes: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.webhook_port = free_port()

    # ---- set-up ----------------------------------------------------------------------------------

    async def prepare(self, nodes: int, cpu: str = "8", gpus: int = 0) -> None:
        await self.kube.ask(
            "POST", "/api/v1/namespaces", body={"metadata": {"name": self.namespace}}
        )
        await self._rights()
        for number in range(nodes):
            await self.add_node(f"n{number}-{self.token}", cpu, gpus)
        self._tasks.append(asyncio.ensure_future(self.kubelet.run()))

    async def _rights(self) -> None:
        """What the bridge may do in the namespace: as shipped, for both modes."""
        for body in installation(self.settings(mode="direct")):
            if body["kind"] in ("Role", "RoleBinding"):
                place = body["metadata"]["namespace"]
                if place == self.namespace:
                    await self.kube.ask("POST", PLACES[body["kind"]].format(place), body=body)

    async def install(self, settings: Settings) -> None:
        """The two registrations, as an administrator installs them: without an authority."""
        if settings.registration == "bridge":
            return
        url = f"https://127.0.0.1:{self.webhook_port}"
        for body in webhooks(settings, "", BRIDGE_USER, url=url):
            plural = body["kind"].lower() + "s"
            await self.kube.ask(
                "PATCH",
                f"/apis/admissionregistration.k8s.io/v1/{plural}/slurm-bridge",
                body=body,
                content_type=APPLY,
                query={"fieldManager": "admin", "force": "true"},
            )

    async def add_node(self, name: str, cpu: str = "8", gpus: int = 0) -> None:
        self.nodes.append(name)
        meta = {"name": name, "labels": {self.label: "", "kubernetes.io/hostname": name}}
        await self.kube.ask("POST", "/api/v1/nodes", body={"metadata": meta})
        room = {"cpu": cpu, "memory": "16Gi", "pods": "500"}
        if gpus:
            room["nvidia.com/gpu"] = str(gpus)
        status = {
            "allocatable": room,
            "capacity": room,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        await self.node_status(name, {**status, "conditions": [_ready("True")]})
        # The API server taints new nodes; without a node controller nobody takes that away.
        await self.patch_node(name, {"spec": {"taints": None}})

    async def node_status(self, name: str, status: dict[str, Any]) -> None:
        await self.kube.ask(
            "PATCH", f"/api/v1/nodes/{name}/status", body={"status": status}, content_type=STRATEGIC
        )

    async def ready(self, name: str, status: str) -> None:
        await self.node_status(name, {"conditions": [_ready(status)]})

    async def patch_node(self, name: str, body: dict[str, Any]) -> None:
        await self.kube.ask("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE)

    def settings(self, **changes: Any) -> Settings:
        base: dict[str, Any] = {
            "slurm": {"url": self.slurm.url, "tokenFile": str(self.slurm.token_file)},
            "namespaces": [self.namespace],
            "identity": [
                {"user": "1234", "allowAccounts": ["physics"], "allowPartitions": ["urgent"]}
            ],
            "nodes": {"label": self.label, "downAfter": 1.0},
            "poll": 0.2,
            "idlePoll": 0.5,
            "leaseSeconds": 6.0,
            "lease": f"bridge-{self.token}",
            "healthPort": free_port(),
            "webhookPort": self.webhook_port,
            "stuckAfter": 1.0,
            "brakes": {"proofInterval": 0.5},
        }
        for key, value in changes.items():
            both = isinstance(value, dict) and isinstance(base.get(key), dict)
            base[key] = {**base[key], **value} if both else value
        return parse_settings(msgspec.json.encode(base))

    async def bridge(self, only: str = "", holder: str = "", **changes: Any) -> RunningBridge:
        """Start a bridge as the bridge's own user, with the rights that it ships with."""
        settings = self.settings(**changes)
        await self.install(settings)
        bridge = Bridge(
            settings,
            self.plane.access(BRIDGE),
            webhook_url=f"https://127.0.0.1:{self.webhook_port}",
            holder=holder,
            parts=frozenset({only} if only else {"webhook", "controllers"}),
        )
        running = RunningBridge(bridge, asyncio.ensure_future(bridge.run()))
        self._tasks.append(running.task)

        def up() -> bool:
            if running.task.done():
                running.task.result()
            return bridge.started.is_set() and (
                bridge.webhook is None or bridge.webhook.ready.is_set()
            )

        await self.until(up, "the bridge serves")
        return running

    async def registered(self, count: int | None = None) -> None:
        """Wait until Slurm has the nodes."""
        names = set(self.nodes[:count])
        await self.until(
            lambda: names <= {n for n, s in self.slurm_nodes().items() if "IDLE" in s["state"]},
            "Slurm has the nodes",
        )

    # ---- doing -----------------------------------------------------------------------------------

    def pod(self, name: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
        """A pod's manifest; `annotations`, `labels`, `limits` and parts of `spec` may be given."""
        meta: dict[str, Any] = {"name": name, "namespace": self.namespace}
        for key in ("annotations", "labels", "ownerReferences"):
            if key in more:
                meta[key] = more.pop(key)
        limits = {"cpu": cpu, "memory": "64Mi", **more.pop("limits", {})}
        container = {"name": "main", "image": "none", "resources": {"limits": limits}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1, **more}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    async def create(self, name: str, cpu: str = "1", **more: Any) -> Pod:
        return await self.apply(self.pod(name, cpu, **more))

    async def apply(self, manifest: dict[str, Any]) -> Pod:
        content = await self.user.ask("POST", self._pods, body=manifest)
        return msgspec.json.decode(content, type=Pod, strict=False)

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def get(self, name: str) -> Pod | None:
        try:
            content = await self.kube.ask("GET", f"{self._pods}/{name}")
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return msgspec.json.decode(content, type=Pod, strict=False)

    async def all_pods(self) -> list[Pod]:
        content = await self.kube.ask("GET", self._pods)
        items = msgspec.json.decode(content)["items"]
        return msgspec.convert(items, list[Pod], strict=False)

    async def delete(self, name: str) -> None:
        await self.user.ask("DELETE", f"{self._pods}/{name}")

    async def exit(self, name: str, code: int = 0) -> None:
        await self.annotate(name, {EXIT: str(code)})

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        body = {"metadata": {"annotations": annotations}}
        await self.user.ask("PATCH", f"{self._pods}/{name}", body=body, content_type=MERGE)

    async def events(self, name: str) -> list[str]:
        content = await self.kube.ask("GET", f"/api/v1/namespaces/{self.namespace}/events")
        rows = msgspec.json.decode(content)["items"]
        mine = [r for r in rows if r["involvedObject"]["name"] == name]
        return [f"{r['reason']}: {r['message']}" for r in sorted(mine, key=_when)]

    # ---- Slurm -----------------------------------------------------------------------------------

    def slurm_nodes(self) -> dict[str, dict[str, Any]]:
        return {n["name"]: n for n in self.slurm.client.call("GET", "nodes/")["nodes"]}

    def jobs(self) -> list[dict[str, Any]]:
        """This scenario's jobs, as Slurm has them."""
        found = self.slurm.client.call("GET", "jobs/")["jobs"]
        return [j for j in found if self.namespace in j["admin_comment"]]

    def live_jobs(self) -> list[dict[str, Any]]:
        return [j for j in self.jobs() if j["job_state"][0] in ("PENDING", "RUNNING")]

    def cancel(self, job: int) -> None:
        self.slurm.client.call("DELETE", f"job/{job}")

    # ---- waiting ---------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with contextlib.suppress(RestError):
                if holds():
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"waited {patience:.0f} s in vain: {what}")

    async def until_pod(
        self, name: str, holds: Callable[[Pod | None], bool], what: str
    ) -> Pod | None:
        end = time.monotonic() + PATIENCE
        pod = None
        while time.monotonic() < end:
            with contextlib.suppress(KubeError):
                pod = await self.get(name)
                if holds(pod):
                    return pod
            await asyncio.sleep(0.05)
        raise AssertionError(
            f"waited in vain: {name} {what}; it is {pod}; {await self.events(name)}"
        )

    async def until_node(self, name: str, holds: Callable[[Node], bool], what: str) -> None:
        for _ in range(int(PATIENCE * 5)):
            with contextlib.suppress(KubeError):
                content = await self.kube.ask("GET", f"/api/v1/nodes/{name}")
                if holds(msgspec.json.decode(content, type=Node, strict=False)):
                    return
            await asyncio.sleep(0.2)
        raise AssertionError(f"waited in vain: node {name} {what}")

    async def running(self, *names: str) -> list[Pod]:
        found = []
        for name in names:
            pod = await self.until_pod(
                name, lambda p: p is not None and p.status.phase == "Running", "runs"
            )
            assert pod is not None
            found.append(pod)
        return found

    async def gone(self, *names: str) -> None:
        for name in names:
            await self.until_pod(name, lambda p: p is None, "is gone")

    async def job_of(self, name: str) -> int:
        pod = await self.until_pod(
            name, lambda p: p is not None and JOB in p.metadata.labels, "has a job"
        )
        assert pod is not None
        return int(pod.metadata.labels[JOB])

    # ---- the end ---------------------------------------------------------------------------------

    async def clean(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for kind in ("mutating", "validating"):
            await _quietly(
                self.kube.ask(
                    "DELETE",
                    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/slurm-bridge",
                )
            )
        for pod in await self.all_pods():
            path = f"{self._pods}/{pod.metadata.name}"
            body = {"metadata": {"finalizers": None}}
            await _quietly(self.kube.ask("PATCH", path, body=body, content_type=MERGE))
            await _quietly(self.kube.ask("DELETE", path, body={"gracePeriodSeconds": 0}))
        await _quietly(self.kube.ask("DELETE", f"/api/v1/namespaces/{self.namespace}"))
        for name in self.nodes:
            await _quietly(self.kube.ask("DELETE", f"/api/v1/nodes/{name}"))
        self._clean_slurm()

    def _clean_slurm(self) -> None:
        for job in self.live_jobs():
            self.cancel(job["job_id"])
        for name in self.slurm_nodes():
            if self.token in name:
                with contextlib.suppress(RestError):
                    self.slurm.client.call("DELETE", f"node/{name}")


class RunningBridge:
    def __init__(self, bridge: Bridge, task: asyncio.Task[None]) -> None:
        self.bridge, self.task = bridge, task

    def errors(self, kind: str) -> float:
        """How many requests to Slurm have failed in this way."""
        rows = [s for m in self.bridge.metrics.rest_errors.collect() for s in m.samples]
        mine = [r for r in rows if r.name.endswith("_total") and r.labels["kind"] == kind]
        return sum(row.value for row in mine)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _ready(status: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": "Test", "message": ""}


def _when(event: dict[str, Any]) -> str:
    return str(event.get("firstTimestamp") or "")


async def _quietly(request: Awaitable[Any]) -> None:
    with contextlib.suppress(KubeError):
        await request


@contextlib.asynccontextmanager
async def bed(
    plane: ControlPlane, slurm: SlurmRest, nodes: int = 2, **more: Any
) -> AsyncIterator[Bed]:
    """A new world, cleaned up at the end."""
    async with Kube(plane.access()) as admin, Kube(plane.access(USER)) as user:
        made = Bed(plane, slurm, admin, user)
        await made.prepare(nodes, **more)
        try:
            yield made
        finally:
            await made.clean()


class Program:
    """`slurm bridge` as a process of its own, with its configuration in files."""

    def __init__(self, bed: Bed, folder: Path, **changes: Any) -> None:
        self.bed = bed
        self.settings = bed.settings(**changes)
        self.config = folder / f"bridge-{bed.token}.yaml"
        self.config.write_bytes(msgspec.json.encode(self.settings))
        self.kubeconfig = folder / f"bridge-{bed.token}.kubeconfig"
        self.kubeconfig.write_bytes(msgspec.json.encode(bed.plane.kubeconfig(BRIDGE)))
        self.daemon = Daemon(f"bridge-{bed.token}", self.words("run", *self._where()), folder)

    def words(self, *more: str) -> list[str]:
        files = ["--config", str(self.config), "--kubeconfig", str(self.kubeconfig)]
        start = "from slurm.cli import main; main()"
        return [sys.executable, "-c", start, "bridge", *more, *files]

    def _where(self) -> list[str]:
        return ["--webhook-url", f"https://127.0.0.1:{self.bed.webhook_port}"]

    async def start(self) -> None:
        await self.bed.install(self.settings)
        self.daemon.start()
        port = self.settings.health_port
        await self.bed.until(lambda: self._ready(port), f"ready: {self.daemon.tail()}")

    @staticmethod
    def _ready(port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> dict[str, float]:
        url = f"http://127.0.0.1:{self.settings.health_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def say(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.words(*more), capture_output=True, text=True, timeout=60)
