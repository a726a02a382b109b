"""The bridge as a process: webhook and health on every replica, the rest on the one that leads."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from typing import Any

import msgspec
from aiohttp import web

from slurm.api.rest_client import RestClient
from slurm.bridge.grouping import least_members
from slurm.bridge.kube import Access, Kube, KubeError, Watched
from slurm.bridge.kube_types import Node, Pod, PodGroup
from slurm.bridge.lease import Lease
from slurm.bridge.metrics import Metrics
from slurm.bridge.names import MANAGED
from slurm.bridge.node_sync import NodeSync
from slurm.bridge.paths import api_path
from slurm.bridge.pod_writes import PodWrites
from slurm.bridge.scheduler import Scheduler
from slurm.bridge.settings import Settings
from slurm.bridge.slurm_jobs import SlurmJobs
from slurm.bridge.tasks import end, together
from slurm.bridge.webhook import Webhook

log = logging.getLogger("slurm.bridge")

# The APIs of the two kinds of PodGroup, where the API server serves them.
_GROUPS = {
    "podgroup": "scheduling.k8s.io/v1alpha2",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
}


class Bridge:
    """One replica. `webhook_url` is for a bridge that runs outside of the cluster."""

    def __init__(
        self,
        settings: Settings,
        access: Access,
        *,
        webhook_url: str = "",
        holder: str = "",
        parts: frozenset[str] = frozenset({"webhook", "controllers"}),
    ) -> None:
        self.settings, self._access, self._parts = settings, access, parts
        self.metrics = Metrics()
        self.holder = holder or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._url = webhook_url
        self.lease: Lease | None = None
        self.scheduler: Scheduler | None = None
        self.webhook: Webhook | None = None
        self.started = asyncio.Event()
        self._waited_for: dict[str, Watched[Pod]] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        async with Kube(self._access) as kube:
            slurm = self._slurm(await cluster_identity(kube))
            try:
                await self._run(kube, slurm)
            finally:
                slurm.close()

    def _slurm(self, kubernetes: str) -> SlurmJobs:
        at = self.settings.slurm
        client = RestClient(
            at.url, token_file=at.token_file, user=at.user, ca_file=at.ca_file, timeout=at.timeout
        )
        return SlurmJobs(client, kubernetes, self.metrics, cluster=at.cluster)

    async def _run(self, kube: Kube, slurm: SlurmJobs) -> None:
        settings = self.settings
        self.lease = lease = Lease(
            kube, settings.namespace, settings.lease, self.holder, settings.lease_seconds
        )
        writes = PodWrites(kube)
        self.scheduler = scheduler = Scheduler(settings, slurm, writes, self.metrics, lease.check)
        sync = NodeSync(settings, kube, slurm, lease.check, scheduler.view.node_names.update)

        def node_changed(old: Node | None, new: Node | None) -> None:
            scheduler.node_changed(old, new)
            sync.changed(old, new)

        nodes = Watched(kube, api_path("nodes"), Node, node_changed)
        work = [self._health(), nodes.run()]
        if "webhook" in self._parts:
            name = await own_name(kube)
            self.webhook = Webhook(
                settings, kube, self.metrics, bridge=name, nodes=nodes.items.values, url=self._url
            )
            work.append(self.webhook.run())
        if "controllers" in self._parts:
            pods = self._pods(kube, scheduler)
            self._waited_for = {**pods}
            groups = [
                self._follow_groups(kube, kind, place, scheduler)
                for kind in _GROUPS
                for place in self._places()
            ]
            leading = self._lead(lease, scheduler, sync, writes, [*pods.values(), nodes], slurm)
            work += [*(each.run() for each in pods.values()), lease.run(), leading, *groups]
        self.started.set()
        await together(*work)

    def _places(self) -> list[str]:
        """The namespaces to look into, one by one; "" is all of them, for a selector."""
        return [""] if self.settings.namespace_selector else list(self.settings.namespaces)

    def _pods(self, kube: Kube, scheduler: Scheduler) -> dict[str, Watched[Pod]]:
        """Our pods, by namespace: so the bridge needs rights in those only."""
        found = {
            place: Watched(
                kube,
                api_path("pods", namespace=place),
                Pod,
                scheduler.pod_changed,
                labels=f"{MANAGED}=true",
            )
            for place in self._places()
        }
        scheduler.put = lambda pod: found["" if "" in found else pod.metadata.namespace].put(pod)
        return found

    async def _lead(
        self,
        lease: Lease,
        scheduler: Scheduler,
        sync: NodeSync,
        writes: PodWrites,
        caches: list[Watched[Any]],
        slurm: SlurmJobs,
    ) -> None:
        """Act while the lease is held; stop at once when it is lost."""
        for cache in caches:
            await cache.ready.wait()
        while True:
            await lease.gained.wait()
            self.metrics.leader.set(1)
            acting = asyncio.ensure_future(
                together(scheduler.run(), sync.run(), writes.send_events())
            )
            losing = asyncio.ensure_future(lease.lost.wait())
            try:
                await asyncio.wait({acting, losing}, return_when=asyncio.FIRST_COMPLETED)
                if acting.done():
                    acting.result()
            finally:
                self.metrics.leader.set(0)
                await end([acting, losing])

    async def _follow_groups(
        self, kube: Kube, kind: str, namespace: str, scheduler: Scheduler
    ) -> None:
        """PodGroups of one kind; where the API server does not serve it, ask again now and then."""

        def changed(old: PodGroup | None, new: PodGroup | None) -> None:
            group = new or old
            if group is not None:
                key = f"{kind}/{group.metadata.namespace}/{group.metadata.name}"
                scheduler.group_changed(key, least_members(new) if new else None)

        path = api_path("podgroups", api=_GROUPS[kind], namespace=namespace)
        while True:
            try:
                await kube.ask("GET", path, query={"limit": "1"})
                await Watched(kube, path, PodGroup, changed).run()
            except KubeError as error:
                log.info("no PodGroups of kind %s: %s", kind, error.message)
            await asyncio.sleep(60)

    # ---- health ----------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Why this replica is not ready: nothing where it is."""
        found = []
        if self.webhook is not None and not self.webhook.ready.is_set():
            found.append("the webhook does not serve yet")
        found += [
            f"the pods of {place or 'all namespaces'} cannot be listed yet"
            for place, watched in self._waited_for.items()
            if not watched.ready.is_set()
        ]
        leads = self.lease is not None and self.lease.held()
        if leads and self.scheduler is not None and not self.scheduler.view.fresh():
            found.append("Slurm does not answer")
        return found

    async def _health(self) -> None:
        async def ready(_: web.Request) -> web.Response:
            wrong = self.problems()
            return web.Response(text="\n".join(wrong) or "ok", status=503 if wrong else 200)

        async def live(_: web.Request) -> web.Response:
            return web.Response(text="ok")

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(body=self.metrics.text(), content_type="text/plain")

        app = web.Application()
        routes = {"/readyz": ready, "/healthz": live, "/metrics": metrics}
        app.add_routes([web.get(path, answer) for path, answer in routes.items()])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, port=self.settings.health_port).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


async def cluster_identity(kube: Kube) -> str:
    """What tells this Kubernetes from every other: the UID of its oldest namespace."""
    while True:
        try:
            content = await kube.ask("GET", api_path("namespaces", name="kube-system"))
            return str(msgspec.json.decode(content)["metadata"]["uid"])
        except KubeError as error:
            if error.status in (401, 403):
                raise
            log.warning("Kubernetes: %s", error.message)
            await asyncio.sleep(1.0)


async def own_name(kube: Kube) -> str:
    """Who the bridge is to the API server."""
    named = os.environ.get("SLURM_BRIDGE_USER")
    if named:
        return named
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = api_path("selfsubjectreviews", api="authentication.k8s.io/v1")
    content = await kube.ask("POST", path, body=body)
    return str(msgspec.json.decode(content)["status"]["userInfo"]["username"])
