"""Pods on a real Kubernetes placed by a real Slurm, in both modes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from bridge_bed import Bed

from slurm.bridge.kube import KubeError
from slurm.bridge.names import FINALIZER, GATE, HELD, JOB, NODE, USER

World = Callable[..., None]
_CLAIM = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
BOTH = pytest.mark.parametrize("mode", ["gate", pytest.param("direct", marks=pytest.mark.full)])


@BOTH
def test_a_pod_takes_its_eight_steps_from_applied_to_started(world: World, mode: str) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(mode=mode)
        await bed.registered()
        # 1, 2: applied, and admitted with gate, finalizer and identity.
        admitted = await bed.create("p", cpu="2")
        assert GATE in admitted.gates
        assert FINALIZER in admitted.metadata.finalizers
        assert admitted.metadata.annotations[USER] == "1234"
        assert admitted.spec.nodeName == ""
        # 3, 4: placement has begun, and a placeholder stands for it.
        number = await bed.job_of("p")
        (job,) = bed.jobs()
        assert (job["job_id"], job["user_id"]) == (number, 1234)
        assert "EXTERNAL_JOB" in job["flags"]
        # 5, 6: Slurm has chosen a node, and the bridge has seen it.
        pod = await bed.until_pod(
            "p", lambda p: p is not None and NODE in p.metadata.annotations, ""
        )
        assert pod is not None
        (job,) = bed.jobs()
        assert job["job_state"] == ["RUNNING"]
        assert pod.metadata.annotations[NODE] == job["nodes"]
        # 7, 8: bound to that node, and started by its kubelet.
        (running,) = await bed.running("p")
        assert running.spec.nodeName == job["nodes"]
        # The end of the pod is the end of the job, with its outcome on record.
        await bed.exit("p")
        await bed.until(lambda: bed.jobs()[0]["job_state"] == ["CANCELLED"], "the job ended")
        assert '"outcome": "Succeeded"' in bed.jobs()[0]["admin_comment"]
        reasons = [e.partition(":")[0] for e in await bed.events("p")]
        assert {"Submitted", "Placed"} <= set(reasons)

    world(scenario)


def test_a_gang_starts_together_on_nodes_of_its_own_and_blocks_nobody(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        group = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": bed.namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        place = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{bed.namespace}/podgroups"
        await bed.kube.ask("POST", place, body=group)
        member = {"podGroupName": "train"}
        await bed.create("g0", schedulingGroup=member)
        # Larger than the cluster: it waits, and nobody waits for it.
        await bed.create("huge", cpu="64")
        await bed.create("alone")
        await bed.running("alone")
        pod = await bed.get("g0")
        assert pod is not None
        assert JOB not in pod.metadata.labels
        await bed.create("g1", schedulingGroup=member)
        one, two = await bed.running("g0", "g1")
        assert one.metadata.labels[JOB] == two.metadata.labels[JOB]
        assert {one.spec.nodeName, two.spec.nodeName} == set(bed.nodes)
        waiting = await bed.until_pod(
            "huge", lambda p: p is not None and bool(p.status.conditions), "says why it waits"
        )
        assert waiting is not None

    world(scenario)


def test_a_job_s_pods_share_nodes_with_devices_and_run_to_completion(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        template = bed.pod("x", limits={"nvidia.com/gpu": "1"}, annotations={"test/exit": "0"})
        spec = {**template["spec"], "restartPolicy": "Never"}
        meta = {"annotations": template["metadata"]["annotations"]}
        job = {
            "metadata": {"name": "work", "annotations": {"slurm-sdk/comment": "from the Job"}},
            "spec": {
                "completions": 6,
                "parallelism": 4,
                "template": {"metadata": meta, "spec": spec},
            },
        }
        place = f"/apis/batch/v1/namespaces/{bed.namespace}/jobs"
        await bed.user.ask("POST", place, body=job)

        async def pods() -> list[str]:
            return [p.status.phase for p in await bed.all_pods()]

        for _ in range(1200):
            if (await pods()).count("Succeeded") == 6:
                break
            await asyncio.sleep(0.1)
        assert (await pods()).count("Succeeded") == 6, await pods()
        await bed.until(lambda: not bed.live_jobs(), "all placeholders ended")
        jobs = bed.jobs()
        assert len(jobs) == 6
        assert {j["comment"] for j in jobs} == {"from the Job"}
        assert {j["tres_per_node"] for j in jobs} == {"gres/gpu:1"}

    world(scenario, nodes=1, gpus=4)


def test_admission_refuses_what_slurm_must_not_see_and_protects_what_it_wrote(
    world: World,
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        bad: list[tuple[dict[str, Any], str]] = [
            ({"annotations": {"slurm-sdk/user-id": "root"}}, "'root' is not allowed here"),
            ({"annotations": {"slurm-sdk/partition": "a\nb"}}, "cannot be used"),
            ({"annotations": {"slurm-sdk/partion": "a"}}, "did you mean slurm-sdk/partition?"),
            ({"labels": {JOB: "1"}}, "is the bridge's own"),
            ({"resourceClaims": [_CLAIM]}, "resourceClaims are not supported"),
            ({"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}, "map it in nodes.gres"),
            ({"annotations": {NODE: "n0"}}, "is the bridge's own"),
        ]
        for more, words in bad:
            with pytest.raises(KubeError) as refused:
                await bed.create("bad", **more)
            assert words in str(refused.value)
        await bed.create("good", cpu="64", annotations={"slurm-sdk/account": "physics"})
        for change in ({USER: "root"}, {HELD: "x"}, {"slurm-sdk/priority": "5"}):
            with pytest.raises(KubeError) as refused:
                await bed.annotate("good", change)
            assert refused.value.status in (403, 422)

    world(scenario, nodes=1)
