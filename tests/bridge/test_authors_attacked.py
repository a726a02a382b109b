"""What authors of pods and users of Slurm may try against the others, on the real services."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bridge_bed import Bed
from bridge_slurm import SlurmRest
from bridge_workloads import POD_GROUP, make

from slurm.api.rest_client import RestClient
from slurm.bridge.kube import MERGE, KubeError
from slurm.bridge.kube_types import Pod

World = Callable[..., None]
pytestmark = pytest.mark.attack
_GROUP = "leaderworkerset.sigs.k8s.io/group-key"
_SIZE = "leaderworkerset.sigs.k8s.io/size"
_COSCHEDULED = "scheduling.x-k8s.io/pod-group"
# A user of Debian's images: games.
_SOMEBODY, _NUMBER = "games", "5"


def _greater_than(text: str) -> dict[str, Any]:
    rule = {"key": "devices", "operator": "Gt", "values": [text]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


_ODD: dict[str, dict[str, Any]] = {
    "a size in digits of another script": {"labels": {_GROUP: "g"}, "annotations": {_SIZE: "²"}},
    "a size of 5000 digits": {"labels": {_GROUP: "g"}, "annotations": {_SIZE: "9" * 5000}},
    "a size that is no size": {"labels": {_GROUP: "g"}, "annotations": {_SIZE: "-4"}},
    "an affinity to words": {"affinity": _greater_than("abc")},
    "an affinity to a long number": {"affinity": _greater_than("9" * 40)},
}


@pytest.mark.attack("stops the bridge for everybody by a pod with odd numbers")
def test_no_pod_stops_the_bridge_for_the_others(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.patch_node(bed.nodes[0], {"metadata": {"labels": {"devices": "4"}}})
        running = await bed.bridge()
        await bed.registered()
        for number, odd in enumerate(_ODD.values()):
            await bed.create(f"odd{number}", **odd)
        await make(bed, POD_GROUP, "odd", {"minMember": "²"})
        await bed.create("member", labels={_COSCHEDULED: "odd"})
        await bed.create("other")
        await bed.running("other")
        assert not running.task.done()

    world(scenario, nodes=1)


@pytest.mark.attack("keeps the bridge busy with lists of a hundred thousand nodes")
def test_long_lists_of_nodes_hold_up_nobody(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()

        async def one(number: int) -> str:
            name = "a" * 900 + "[0-90000]"
            try:
                await bed.create(f"x{number}", annotations={"slurm-sdk/exclude": name})
            except KubeError as error:
                return error.message
            return "taken"

        start = time.monotonic()
        said = await asyncio.gather(*map(one, range(20)))
        assert all("at most 1000 nodes" in each for each in said), said
        assert time.monotonic() - start < 10
        with pytest.raises(KubeError, match="at most 1000 nodes"):
            await bed.create("y", annotations={"slurm-sdk/exclude": "[0-99]" * 150})

    world(scenario, nodes=1)


@pytest.mark.attack("has another pay by joining their gang")
def test_a_gang_is_of_one_identity(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        rules = [
            {"serviceAccount": "bob", "user": "1234", "account": "physics"},
            {"serviceAccount": "mallory", "user": "6666"},
        ]
        await bed.bridge(identity=rules)
        await bed.registered()
        await make(bed, POD_GROUP, "g", {"minMember": 2})
        labels = {_COSCHEDULED: "g"}
        await bed.create("a0", labels=labels, serviceAccountName="bob")
        await bed.create("z0", labels=labels, serviceAccountName="mallory")
        await bed.create("a1", labels=labels, serviceAccountName="bob")
        await bed.running("a0", "a1")
        (job,) = bed.jobs()
        assert (job["user_id"], job["node_count"]["number"]) == (1234, 2)
        stranger = await bed.get("z0")
        assert stranger is not None and stranger.status.phase == "Pending"

    world(scenario, nodes=3)


@pytest.mark.attack("asks for another rule's partition by an update")
def test_no_later_rule_allows_an_update_what_the_first_refuses(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        rules = [
            {"users": ["bob"], "user": "1234", "allowPartitions": ["urgent"]},
            {"namespace": bed.namespace, "user": "1234"},
            {"user": "1234", "allowPartitions": ["*"]},
        ]
        await bed.bridge(identity=rules)
        await bed.registered()
        wish = {"slurm-sdk/partition": "urgent"}
        with pytest.raises(KubeError, match="'urgent' is not allowed here"):
            await bed.create("p", annotations=wish)
        await bed.create("later", cpu="64")
        with pytest.raises(KubeError, match="'urgent' is not allowed here"):
            await bed.annotate("later", wish)

    world(scenario, nodes=1)


@pytest.mark.attack("goes on without a job by a grace of years")
def test_no_pod_outlives_its_job_by_its_grace(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(longestGrace=30)
        await bed.registered()
        with pytest.raises(KubeError, match="the pod would outlive its job; at most 30"):
            await bed.create("x", terminationGracePeriodSeconds=100_000_000)
        await bed.create("y")
        await bed.running("y")
        path = f"{bed._pods}/y"
        with pytest.raises(KubeError, match="finalizer slurm-sdk/placeholder is removed when"):
            body = {"metadata": {"finalizers": None}}
            await bed.user.ask("PATCH", path, body=body, content_type=MERGE)
        # A process that does not care for SIGTERM, and a deletion that waits for it.
        bed.kubelet.slow_exit = 20.0
        await bed.user.ask("DELETE", path, body={"gracePeriodSeconds": 100_000_000})
        bed.cancel(await bed.job_of("y"))

        def shortened(pod: Pod | None) -> bool:
            return pod is None or pod.metadata.deletionGracePeriodSeconds == 30

        await bed.until_pod("y", shortened, "gets 30 seconds at most")

    world(scenario, nodes=1)


def _as_somebody(slurm: SlurmRest, folder: Path) -> RestClient:
    token = folder / "token"
    token.write_bytes(slurm.token(_SOMEBODY))
    return RestClient(slurm.url, token_file=token, user=_SOMEBODY)


@pytest.mark.attack("makes the job of a waiting pod smaller in Slurm")
@pytest.mark.parametrize(
    "change",
    [
        {"minimum_cpus": 1, "cpus_per_task": 1, "tasks": 1},
        {"memory_per_node": {"set": True, "number": 1}},
        {"memory_per_cpu": {"set": True, "number": 1}},
        {"tres_per_node": "gres/gpu:1"},
    ],
    ids=["cpus", "memory", "memory-per-cpu", "gpus"],
)
def test_a_pod_runs_in_no_job_that_became_smaller(
    world: World, slurm_rest: SlurmRest, tmp_path: Path, change: dict[str, Any]
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(identity=[{"user": _NUMBER}])
        await bed.registered()
        await bed.create("fills", cpu="8")
        await bed.running("fills")
        await bed.create("waits", cpu="8", limits={"memory": "1Gi", "nvidia.com/gpu": "4"})
        small = await bed.job_of("waits")
        client = _as_somebody(slurm_rest, tmp_path)
        await asyncio.to_thread(client.call, "POST", f"job/{small}", body=change)
        await bed.delete("fills")
        await bed.running("waits")
        number = await bed.job_of("waits")
        assert number != small
        (job,) = [j for j in bed.live_jobs() if j["job_id"] == number]
        assert job["cpus"]["number"] == 8
        assert job["memory_per_node"]["number"] == 1024
        assert job["tres_per_node"] == "gres/gpu:4"
        assert any("somebody changed the job" in line for line in await bed.events("waits"))

    world(scenario, nodes=1, gpus=4)


@pytest.mark.attack("gives nodes of a running gang back to Slurm and stays on them")
def test_a_pod_leaves_the_node_that_its_job_gave_back(
    world: World, slurm_rest: SlurmRest, tmp_path: Path
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(identity=[{"user": _NUMBER}], resync=2.0)
        await bed.registered()
        await make(bed, POD_GROUP, "g", {"minMember": 2})
        for name in ("a", "b"):
            await bed.create(name, labels={_COSCHEDULED: "g"})
        await bed.running("a", "b")
        number = await bed.job_of("a")
        client = _as_somebody(slurm_rest, tmp_path)
        await asyncio.to_thread(client.call, "POST", f"job/{number}", body={"minimum_nodes": 1})
        (job,) = bed.live_jobs()
        kept = [n for n in ("a", "b") if (await bed.running(n))[0].spec.nodeName == job["nodes"]]
        await bed.gone(*({"a", "b"} - set(kept)))
        await bed.running(*kept)

    world(scenario, nodes=2)


@pytest.mark.attack("fills Slurm with jobs that it drops at once")
def test_jobs_that_slurm_drops_are_not_made_anew_without_end(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        with pytest.raises(KubeError, match="65537 CPUs are more than Slurm can count"):
            await bed.create("wraps", cpu="65537")
        await bed.create("drops", annotations={"slurm-sdk/gres": "gpu:999999999"})
        await bed.until(lambda: len(bed.jobs()) >= 4, "it was dropped some times")
        start = time.monotonic()
        await bed.until(lambda: len(bed.jobs()) >= 5, "and is tried again")
        assert time.monotonic() - start > 2
        await bed.create("other")
        await bed.running("other")

    world(scenario, nodes=1)


@pytest.mark.attack("fills the memory of the bridge with halves of questions")
def test_the_webhook_holds_few_large_questions_at_a_time(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        writers = []

        async def half() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", bed.webhook_port, ssl=tls)
            writers.append(writer)
            writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n")
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                for _ in range(78):
                    writer.write(b" " * 100_000)
                    await asyncio.wait_for(writer.drain(), 8)

        before = _resident()
        floods = [asyncio.ensure_future(half()) for _ in range(40)]
        most = 0
        for number in range(5):
            await bed.create(f"p{number}")
            most = max(most, _resident() - before)
        await asyncio.gather(*floods)
        most = max(most, _resident() - before)
        for writer in writers:
            writer.close()
        assert most < 200, f"{most} MiB"

    world(scenario, nodes=1)


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024
