"""Keeps Slurm's external nodes in step with Kubernetes' nodes, as `nodes.plan_node` says."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from slurm.bridge import nodes as n
from slurm.bridge.kube import MERGE, Kube, KubeError
from slurm.bridge.kube_types import Meta, Node, Pod
from slurm.bridge.lease import NotLeader
from slurm.bridge.names import FIELD_MANAGER, TAINT
from slurm.bridge.owners import controller_of, is_daemon
from slurm.bridge.paths import api_path
from slurm.bridge.settings import Settings
from slurm.bridge.slurm_jobs import SlurmJobs
from slurm.bridge.tasks import woken
from slurm.errors import RestError, RestRefused

log = logging.getLogger("slurm.bridge.nodes")

# Node states change on both sides; each round reads Slurm's nodes once.
_ROUND_S = 5.0


class _Pods(msgspec.Struct):
    items: list[Pod]


class _Set(msgspec.Struct):
    metadata: Meta


class _Sets(msgspec.Struct):
    items: list[_Set]


class NodeSync:
    """Call `changed` for what Kubernetes says; `run` does the rest."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        slurm: SlurmJobs,
        fence: Callable[[], None],
        known: Callable[[set[str]], None],
    ) -> None:
        self._settings, self._kube, self._slurm = settings, kube, slurm
        self._fence, self._known = fence, known
        self._nodes: dict[str, Node] = {}
        self._unready: dict[str, float] = {}
        self._daemons: dict[str, frozenset[str]] = {}
        self._wake = asyncio.Event()

    def changed(self, old: Node | None, new: Node | None) -> None:
        """A node of Kubernetes appeared, changed or went away."""
        if old is not None:
            self._nodes.pop(n.slurm_name(old), None)
        if new is not None:
            name = n.slurm_name(new)
            self._nodes[name] = new
            if new.ready:
                self._unready.pop(name, None)
            else:
                self._unready.setdefault(name, time.monotonic())
        if old is None or new is None or _matters(old) != _matters(new):
            self._wake.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._round()
            except (RestError, KubeError, NotLeader) as error:
                log.warning("nodes: %s", error.message)
            if await woken(self._wake, _ROUND_S):
                await asyncio.sleep(0.1)  # several changes at once are one round

    async def _round(self) -> None:
        self._daemons.clear()
        there = await self._slurm.nodes()
        self._known(set(there))
        settings, now = self._settings.nodes, time.monotonic()
        for name in sorted({*there, *self._nodes}):
            node, slurm = self._nodes.get(name), there.get(name)
            if slurm is not None and node is None and not slurm.external:
                continue  # not Kubernetes' business
            standing = await self._standing(node, slurm)
            unready = now - self._unready[name] if name in self._unready else 0.0
            actions = n.plan_node(
                node,
                slurm,
                settings,
                standing=standing,
                unready_for=unready,
                registers=self._slurm.registers_nodes,
            )
            for action in actions:
                await self._try(action)

    async def _standing(self, node: Node | None, slurm: n.SlurmNode | None) -> list[Pod]:
        """The DaemonSets' pods on a node, asked for only where its shape may have changed."""
        label = self._settings.nodes.label
        if node is None or label not in node.metadata.labels:
            return []
        if slurm is not None and n.shape_of(node, self._settings.nodes).fits(slurm):
            return []
        query = {"fieldSelector": f"spec.nodeName={node.metadata.name}"}
        found: list[Pod] = []
        for namespace in self._settings.nodes.daemon_set_namespaces:
            path = api_path("pods", namespace=namespace)
            content = await self._kube.ask("GET", path, query=query)
            pods = msgspec.json.decode(content, type=_Pods, strict=False).items
            if any(is_daemon(controller_of(pod.metadata)) for pod in pods):
                found += n.permanent(pods, await self._daemon_sets(namespace))
        return found

    async def _daemon_sets(self, namespace: str) -> frozenset[str]:
        """The uids of the DaemonSets there, asked for once in a round."""
        if namespace not in self._daemons:
            path = api_path("daemonsets", api="apps/v1", namespace=namespace)
            rows = msgspec.json.decode(await self._kube.ask("GET", path), type=_Sets).items
            self._daemons[namespace] = frozenset(row.metadata.uid for row in rows)
        return self._daemons[namespace]

    async def _try(self, action: n.NodeAction) -> None:
        self._fence()
        log.info("node %s: %s", _name(action), type(action).__name__)
        try:
            await self._do(action)
        except RestRefused as error:
            # One node that Slurm refuses holds up no other.
            log.warning("node %s: %s", _name(action), error.message)

    async def _do(self, action: n.NodeAction) -> None:
        match action:
            case n.Create(shape):
                await self._slurm.create_node(shape)
            case n.Delete(name):
                await self._slurm.delete_node(name)
            case n.SetState(name, state, reason):
                await self._slurm.update_node(name, state=[state], reason=reason)
            case n.SetFeatures(name, features, topology):
                more = {"topology_str": topology} if topology else {}
                await self._slurm.update_node(
                    name, features=list(features), features_act=list(features), **more
                )
            case n.SetTaint(node, effect):
                await self._taint(node, effect)
            case n.Cordon(node):
                await self._patch(node, {"spec": {"unschedulable": True}})

    async def _taint(self, node: Node, effect: str | None) -> None:
        kept = [msgspec.to_builtins(t) for t in node.spec.taints if t.key != TAINT]
        added = [{"key": TAINT, "value": "true", "effect": effect}] if effect else []
        # The version in it: somebody else's taint, added meanwhile, is not lost.
        version = {"metadata": {"resourceVersion": node.metadata.resourceVersion}}
        await self._patch(node, {**version, "spec": {"taints": [*kept, *added]}})

    async def _patch(self, node: Node, body: object) -> None:
        await self._kube.ask(
            "PATCH",
            api_path("nodes", name=node.metadata.name),
            body=body,
            content_type=MERGE,
            query={"fieldManager": FIELD_MANAGER},
        )


def _name(action: n.NodeAction) -> str:
    match action:
        case n.Create(shape):
            return shape.name
        case n.SetTaint(node) | n.Cordon(node):
            return node.metadata.name
        case _:
            return action.name


def _matters(node: Node) -> tuple[object, ...]:
    """What a heartbeat does not change."""
    meta = node.metadata
    return (meta.labels, meta.annotations, node.spec, node.ready, node.status.allocatable)
