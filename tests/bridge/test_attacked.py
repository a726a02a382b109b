"""What the author of a pod may try, on a real API server and a real Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from bridge_bed import Bed
from bridge_workloads import make

from slurm.bridge.kube import Kube, KubeError
from slurm.bridge.kube_types import Pod
from slurm.bridge.names import GATE, MANAGED

World = Callable[..., None]
pytestmark = pytest.mark.attack
_BATCH = ("batch", "v1", "Job", "jobs")
_DAEMON = ("apps", "v1", "DaemonSet", "daemonsets")


def _owner(**more: Any) -> dict[str, Any]:
    base = {"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "u", "controller": True}
    return {**base, **more}


def test_slurm_counts_a_pod_at_least_as_large_as_kubernetes_does(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        small = {
            "slurm-sdk/cpu-per-task": "1",
            "slurm-sdk/mem-per-node": "1Mi",
            "slurm-sdk/gres": "gpu:0",
        }
        limits = {"memory": "2Gi", "nvidia.com/gpu": "3"}
        await bed.create("liar", cpu="6", annotations=small, limits=limits)
        await bed.running("liar")
        (job,) = bed.jobs()
        assert job["cpus_per_task"]["number"] == 6
        assert job["memory_per_node"]["number"] == 2048
        assert job["tres_per_node"] == "gres/gpu:3"
        # Nor does it help to say so later.
        await bed.create("waits", cpu="7", limits=limits)
        await bed.annotate("waits", {"slurm-sdk/cpu-per-task": "1"})
        await bed.until(lambda: len(bed.live_jobs()) == 2, "the second has a job")
        assert {j["cpus_per_task"]["number"] for j in bed.live_jobs()} == {6, 7}
        contradiction = {"slurm-sdk/gres": "gpu:a100:1,gpu:v100:1"}
        with pytest.raises(KubeError, match="fewer than the 3 gpu requested"):
            await bed.create("both", annotations=contradiction, limits=limits)

    world(scenario, nodes=1, gpus=4)


def test_a_partition_that_no_rule_lists_is_refused(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(identity=[{"user": "1234"}])
        for name in ("partition", "qos", "reservation"):
            with pytest.raises(KubeError, match="'urgent' is not allowed here; allowed: none"):
                await bed.create("p", annotations={f"slurm-sdk/{name}": "urgent"})
        await bed.create("later", cpu="64")
        with pytest.raises(KubeError, match="'urgent' is not allowed here"):
            await bed.annotate("later", {"slurm-sdk/partition": "urgent"})

    world(scenario, nodes=1)


def test_no_owner_leads_the_bridge_to_other_objects(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        there = await make(bed, _BATCH, "work", {"suspend": True, "template": _template()})
        bad = [
            (_owner(name="../../other/jobs/x"), "not one that Kubernetes gives"),
            (_owner(name="work?watch=1"), "not one that Kubernetes gives"),
            (_owner(name="nobody"), "cannot be read"),
            (_owner(), "another uid"),
            (_owner(apiVersion="apps/v1", kind="DaemonSet", name="nobody"), "cannot be read"),
        ]
        for owner, words in bad:
            with pytest.raises(KubeError, match=words):
                await bed.create("bad", ownerReferences=[owner])
        group = {"scheduling.x-k8s.io/pod-group": "A_b"}
        with pytest.raises(KubeError, match="not one that Kubernetes gives"):
            await bed.create("bad", labels=group)
        good = await bed.create("good", cpu="64", ownerReferences=[there])
        assert GATE in good.gates

    world(scenario, nodes=1)


def test_a_daemon_set_is_neither_a_way_around_nor_a_way_to_shrink_nodes(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        # A DaemonSet of an opted-in namespace: its pods wait for Slurm like all others.
        await make(bed, _DAEMON, "mine", _set(cpu="2"))
        pods = await _eventually(bed, lambda found: len(found) == 1 and not _gated(found))
        assert MANAGED in pods[0].metadata.labels
        (job,) = bed.live_jobs()
        assert job["nodes"] == pods[0].spec.nodeName
        shape = bed.slurm_nodes()[bed.nodes[0]]
        assert shape["cpus"] == 8
        assert "DRAIN" not in shape["state"]

    world(scenario, nodes=1)


def test_a_listed_daemon_set_is_exempt_and_counted_and_a_forged_one_neither(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        listed = {"daemonSetNamespaces": [bed.namespace]}
        await _rights(bed)
        real = await make(bed, _DAEMON, "system", _set(cpu="1"))
        tolerant = {"nodeName": bed.nodes[0]}
        await bed.kube.ask("POST", _pods(bed), body=bed.pod("old", cpu="3", **tolerant))
        await bed.bridge(nodes=listed)
        pods = await _eventually(bed, lambda found: len(found) >= 2)
        system = next(p for p in pods if p.metadata.name.startswith("system"))
        assert MANAGED not in system.metadata.labels
        # Made by a person: a gate for both, whatever they say of their owner.
        await bed.create("forged", cpu="64", ownerReferences=[real])
        forged = await bed.get("forged")
        assert forged is not None
        assert GATE in forged.gates
        with pytest.raises(KubeError, match="cannot be read"):
            await bed.create("made-up", ownerReferences=[{**real, "name": "nobody"}])
        await bed.until(
            lambda: bed.slurm_nodes().get(bed.nodes[0], {}).get("cpus") == 7, "one CPU is taken"
        )

    world(scenario, nodes=1)


def test_the_bridge_s_token_reaches_no_other_namespace(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        registration = {"metadata": {"name": "mine"}, "webhooks": []}
        admission = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        tried = [
            ("GET", "/api/v1/pods", None),
            ("GET", "/api/v1/namespaces/kube-system/secrets", None),
            ("GET", "/api/v1/namespaces/default/pods", None),
            ("DELETE", "/api/v1/namespaces/default/pods/x", None),
            ("DELETE", "/api/v1/namespaces/kube-system/pods/x", None),
            ("POST", admission, registration),
            ("DELETE", admission + "/slurm-bridge", None),
            ("POST", _pods(bed), bed.pod("x")),
        ]
        async with Kube(bed.plane.access("bridge-token")) as stolen:
            for method, path, body in tried:
                with pytest.raises(KubeError) as refused:
                    await stolen.ask(method, path, body=body)
                assert refused.value.status == 403, (method, path)

    world(scenario, nodes=1)


def _template() -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _set(cpu: str) -> dict[str, Any]:
    labels = {"matchLabels": {"a": "b"}}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"selector": labels, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}


def _pods(bed: Bed) -> str:
    return f"/api/v1/namespaces/{bed.namespace}/pods"


def _gated(pods: list[Pod]) -> bool:
    return any(GATE in pod.gates for pod in pods)


async def _rights(bed: Bed) -> None:
    """What `slurm bridge render` gives for a namespace whose DaemonSets are the nodes' own."""
    from bridge_bed import PLACES

    from slurm.bridge.install import installation

    settings = bed.settings(nodes={"daemonSetNamespaces": [bed.namespace]})
    for body in installation(settings):
        if body["metadata"]["name"] == "slurm-bridge-daemons":
            place = PLACES[body["kind"]].format(bed.namespace)
            await bed.kube.ask("POST", place, body=body)


async def _eventually(bed: Bed, holds: Callable[[list[Pod]], bool]) -> list[Pod]:
    for _ in range(600):
        found = await bed.all_pods()
        if holds(found):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(msgspec.json.encode(await bed.all_pods()).decode())
