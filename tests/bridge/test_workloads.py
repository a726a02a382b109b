"""Pods of JobSets, LeaderWorkerSets and PodGroups of both kinds, on the real API server."""

from __future__ import annotations

from collections.abc import Callable

from bridge_bed import Bed
from bridge_workloads import JOB_SET, LEADER_WORKERS, POD_GROUP, make

from slurm.bridge.names import (
    JOB,
    LWS_GROUP,
    LWS_SIZE,
    LWS_WORKER_INDEX,
    POD_GROUP_LABEL,
)

World = Callable[..., None]
_BATCH = ("batch", "v1", "Job", "jobs")
_STATEFUL = ("apps", "v1", "StatefulSet", "statefulsets")


def test_each_group_of_a_leaderworkerset_starts_together_with_the_set_s_wishes(
    world: World,
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        comment = {"slurm-sdk/comment": "from the set"}
        above = await make(bed, LEADER_WORKERS, "serve", {"replicas": 1}, annotations=comment)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": bed.pod("x")["spec"]}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s", "template": template}
        leaders = await make(bed, _STATEFUL, "serve", spec, ownerReferences=[above])

        async def member(name: str, index: int) -> None:
            labels = {LWS_GROUP: "key0"}
            await bed.create(
                name,
                labels={**labels, LWS_WORKER_INDEX: str(index)},
                annotations={LWS_SIZE: "2"},
                ownerReferences=[leaders],
            )

        await member("serve-0", 0)
        await bed.until_pod("serve-0", _says("1 of 2 pods are there"), "waits for its worker")
        await member("serve-0-1", 1)
        leader, worker = await bed.running("serve-0", "serve-0-1")
        assert leader.metadata.labels[JOB] == worker.metadata.labels[JOB]
        assert {leader.spec.nodeName, worker.spec.nodeName} == set(bed.nodes)
        (job,) = bed.jobs()
        assert job["comment"] == "from the set"

    world(scenario)


def test_a_jobset_s_pods_start_one_by_one_with_the_set_s_wishes(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        comment = {"slurm-sdk/comment": "from the set", "slurm-sdk/timelimit": "30"}
        above = await make(bed, JOB_SET, "train", {"replicatedJobs": []}, annotations=comment)
        pod = bed.pod("x", annotations={"test/exit": "0"})
        template = {
            "metadata": {"annotations": pod["metadata"]["annotations"]},
            "spec": {**pod["spec"], "restartPolicy": "Never"},
        }
        spec = {"completions": 2, "parallelism": 2, "template": template}
        await make(bed, _BATCH, "train-workers-0", spec, ownerReferences=[above])
        await bed.until(lambda: len(bed.jobs()) == 2, "each pod has a job")
        await bed.until(lambda: not bed.live_jobs(), "both have run")
        assert {j["comment"] for j in bed.jobs()} == {"from the set"}
        assert {j["time_limit"]["number"] for j in bed.jobs()} == {30}

    world(scenario, nodes=1)


def test_a_coscheduling_group_keeps_to_its_least_and_its_most(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        bounds = {"slurm-sdk/min-nodes": "2", "slurm-sdk/max-nodes": "2"}
        await make(bed, POD_GROUP, "mpi", {"minMember": 1}, annotations=bounds)
        labels = {POD_GROUP_LABEL: "mpi"}
        await bed.create("m0", labels=labels)
        await bed.until_pod("m0", _says("1 of 2 pods are there"), "waits for another")
        await bed.create("m1", labels=labels)
        one, two = await bed.running("m0", "m1")
        assert one.metadata.labels[JOB] == two.metadata.labels[JOB]
        # Another group of the same name in another namespace is another gang; one too large waits.
        await make(bed, POD_GROUP, "wide", {"minMember": 3}, annotations=bounds)
        for number in range(3):
            await bed.create(f"w{number}", labels={POD_GROUP_LABEL: "wide"})
        await bed.until_pod("w0", _says("max-nodes is 2"), "is told that it is too large")

    world(scenario)


def _says(words: str) -> Callable[..., bool]:
    return lambda pod: pod is not None and any(words in c.message for c in pod.status.conditions)
