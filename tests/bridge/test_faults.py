"""The bridge when things go wrong: on the real API server, slurmctld and slurmrestd."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bridge_bed import Bed
from bridge_faults import Road, death_at
from bridge_kubernetes import ControlPlane
from bridge_slurm import SlurmRest

from slurm.bridge.kube import MERGE, KubeError, Watched
from slurm.bridge.kube_types import PodGroup
from slurm.bridge.names import FINALIZER, HELD, JOB, REASON

World = Callable[..., None]
FULL = pytest.mark.full


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("mode", "every"),
    [("gate", 3), pytest.param("gate", 1, marks=FULL), pytest.param("direct", 1, marks=FULL)],
)
def test_a_bridge_killed_at_any_await_makes_no_second_job_and_loses_no_pod(
    world: World, mode: str, every: int
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(only="webhook", mode=mode)
        at, dead = 1, True
        while dead:
            name = f"p{at}"
            with death_at(at) as fate:
                dying = await bed.bridge(only="controllers", holder="one", mode=mode)
                await bed.registered()
                await bed.create(name, annotations={"test/exit": "0"})
                await _until_dead_or_done(bed, name, dying.task)
                await dying.stop()
                dead = fate.dead
            heir = await bed.bridge(only="controllers", holder="one", mode=mode)
            await _done(bed, name)
            await heir.stop()
            jobs = [j for j in bed.jobs() if f"{bed.namespace}/{name}" in j["admin_comment"]]
            assert len(jobs) == 1, (at, jobs)
            at += every
        # Submit, label, ungate, two requests to end the job, release: each waits at least once.
        assert fate.suspensions >= 6

    world(scenario, nodes=1, limit=1100)


async def _until_dead_or_done(bed: Bed, name: str, task: asyncio.Task[None]) -> None:
    for _ in range(600):
        pod = await bed.get(name)
        if task.done() or (pod is None or FINALIZER not in pod.metadata.finalizers):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name}: neither dead nor done: {await bed.get(name)}")


async def _done(bed: Bed, name: str) -> None:
    pod = await bed.until_pod(
        name, lambda p: p is not None and FINALIZER not in p.metadata.finalizers, "is done"
    )
    assert pod is not None
    assert pod.status.phase == "Succeeded"
    await bed.until(lambda: not bed.live_jobs(), "its job ended")


def test_an_administrator_s_cancel_wins_over_waiting_and_running_pods(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("runs")
        await bed.create("waits", cpu="64")
        await bed.running("runs")
        bed.cancel(await bed.job_of("runs"))
        await bed.gone("runs")
        bed.cancel(await bed.job_of("waits"))
        held = await bed.until_pod(
            "waits", lambda p: p is not None and HELD in p.metadata.annotations, "is held"
        )
        assert held is not None
        assert JOB not in held.metadata.labels
        assert not bed.live_jobs()
        # Whoever owns the pod may try again.
        await bed.annotate("waits", {HELD: None})
        await bed.until(lambda: len(bed.live_jobs()) == 1, "it is submitted again")

    world(scenario, nodes=1)


def test_a_preempted_pod_leaves_with_the_reason_and_the_urgent_one_gets_its_node(
    world: World,
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("low", cpu="8")
        await bed.running("low")
        await bed.create("high", cpu="8", annotations={"slurm-sdk/partition": "urgent"})
        await bed.gone("low")
        await bed.running("high")
        assert any(e.startswith("SlurmPreempted") for e in await bed.events("low"))

    world(scenario, nodes=1)


def test_slurm_unreachable_freezes_everything_and_then_all_goes_on(
    world: World, slurm_rest: SlurmRest
) -> None:
    async def scenario(bed: Bed) -> None:
        async with Road(slurm_rest.rest_port) as road:
            url = f"http://127.0.0.1:{road.port}"
            running = await bed.bridge(slurm={"url": url})
            await bed.registered()
            await bed.create("stays")
            (before,) = await bed.running("stays")

            async def unharmed(why: str, kind: str) -> None:
                name = why.replace(" ", "-")
                await bed.create(name)
                seen = running.errors(kind)
                await bed.until(lambda: running.errors(kind) >= seen + 4, f"it notices: {why}")
                pod = await bed.get("stays")
                assert pod is not None, why
                assert pod.metadata.deletionTimestamp is None, why
                new = await bed.get(name)
                assert new is not None
                assert not new.spec.nodeName, why

            # slurmrestd away.
            road.lead(None)
            await unharmed("slurmrestd away", "RestUnreachable")
            # An API that is not served is answered with 404 in plain text.
            body = (
                b"HTTP/1.1 404 NOT FOUND\r\nContent-Length: 9\r\nContent-Type: text/plain\r\n\r\n"
            )
            road.lead(None, body + b"Not Found")
            await unharmed("version not served", "RestVersionNotServed")
            # The token has run out.
            road.lead(slurm_rest.rest_port)
            await bed.until(running.bridge.scheduler.view.fresh, "Slurm is back")  # type: ignore[union-attr]
            slurm_rest.write_token(2)
            try:
                refused = "RestTokenRefused"
                await bed.until(lambda: running.errors(refused) > 0, "the token's time is over")
                await unharmed("token expired", refused)
            finally:
                slurm_rest.write_token()
            await bed.running("slurmrestd-away", "version-not-served", "token-expired")
            # slurmctld restarted.
            await asyncio.to_thread(slurm_rest.controller.stop)
            await asyncio.sleep(1.0)
            await asyncio.to_thread(slurm_rest.start_controller)
            await bed.create("after")
            await bed.running("after")
            pod = await bed.get("stays")
            assert pod is not None
            assert pod.metadata.uid == before.metadata.uid
            assert len(bed.jobs()) == 5
            text = running.bridge.metrics.text().decode()
            assert 'slurm_bridge_rest_errors_total{kind="RestTokenRefused"' in text

    world(scenario, nodes=1)


def test_another_cluster_behind_the_url_is_not_believed(
    world: World, slurm_rest: SlurmRest
) -> None:
    async def scenario(bed: Bed, other: SlurmRest) -> None:
        async with Road(slurm_rest.rest_port) as road:
            running = await bed.bridge(slurm={"url": f"http://127.0.0.1:{road.port}"})
            await bed.registered()
            await bed.create("stays")
            await bed.running("stays")
            road.lead(other.rest_port)
            await bed.until(lambda: running.errors("WrongCluster") >= 4, "it notices")
            pod = await bed.get("stays")
            assert pod is not None
            assert pod.metadata.deletionTimestamp is None
            assert other.client.call("GET", "nodes/")["nodes"] == []
            road.lead(slurm_rest.rest_port)
            await bed.create("next")
            await bed.running("next")

    with tempfile.TemporaryDirectory(prefix="other-", dir="/tmp") as place:
        other = SlurmRest(Path(place), name="other")
        # One key for both, so that the other believes the bridge's token.
        (Path(place) / "etc").mkdir()
        shutil.copy(slurm_rest.folder / "etc" / "jwt.key", Path(place) / "etc" / "jwt.key")
        try:
            other.start()
            world(lambda bed: scenario(bed, other), nodes=1)
        finally:
            other.stop()


def test_a_pod_recreated_with_the_same_name_gets_a_job_of_its_own(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("p")
        (first,) = await bed.running("p")
        await bed.delete("p")
        await bed.gone("p")
        await bed.create("p")
        (second,) = await bed.running("p")
        assert first.metadata.labels[JOB] != second.metadata.labels[JOB]
        assert len(bed.live_jobs()) == 1

    world(scenario, nodes=1)


def test_a_node_that_leaves_either_side_takes_its_pods_and_no_others(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("a", cpu="8")
        await bed.create("b", cpu="8")
        a, b = await bed.running("a", "b")
        # Its kubelet dies: Slurm hears of it, the pod is evicted, and released without a kubelet.
        bed.kubelet.dead.add(a.spec.nodeName)
        await bed.ready(a.spec.nodeName, "False")
        await bed.gone("a")
        # The node object goes: Slurm's node goes too.
        await bed.kube.ask("DELETE", f"/api/v1/nodes/{a.spec.nodeName}")
        await bed.until(lambda: a.spec.nodeName not in bed.slurm_nodes(), "Slurm forgets it")
        # Cordon is drain, and back.
        await bed.patch_node(b.spec.nodeName, {"spec": {"unschedulable": True}})
        await bed.until(
            lambda: "DRAIN" in bed.slurm_nodes()[b.spec.nodeName]["state"], "Slurm drains it"
        )
        assert bed.slurm_nodes()[b.spec.nodeName]["reason"].startswith(REASON)
        await bed.patch_node(b.spec.nodeName, {"spec": {"unschedulable": None}})
        await bed.until(
            lambda: "DRAIN" not in bed.slurm_nodes()[b.spec.nodeName]["state"], "and takes it back"
        )
        # Deleted in Slurm, it is made again; the other pod never noticed.
        still = await bed.get("b")
        assert still is not None
        assert still.metadata.uid == b.metadata.uid
        await bed.exit("b")
        await bed.until(lambda: not bed.live_jobs(), "b is over")
        bed.slurm.client.call("DELETE", f"node/{b.spec.nodeName}")
        await bed.until(lambda: b.spec.nodeName in bed.slurm_nodes(), "the node is back")

    world(scenario, nodes=2)


def test_of_two_replicas_one_acts_and_the_other_takes_over(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(only="webhook")
        replicas = [await bed.bridge(only="controllers") for _ in range(2)]
        await bed.registered()
        await bed.create("first")
        await bed.running("first")

        def leaders() -> list[bool]:
            return [bool(r.bridge.lease and r.bridge.lease.held()) for r in replicas]

        assert sorted(leaders()) == [False, True]
        leader = replicas[leaders().index(True)]
        await leader.stop()
        await bed.create("second")
        await bed.running("second")
        assert len(bed.jobs()) == 2

    world(scenario, nodes=1)


def test_a_webhook_that_is_away_stops_pods_of_opted_in_namespaces_only(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        webhook = await bed.bridge(only="webhook")
        await webhook.stop()
        with pytest.raises(KubeError):
            await bed.create("blocked")
        pod = {**bed.pod("free"), "metadata": {"name": "free", "namespace": "default"}}
        await bed.kube.ask("POST", "/api/v1/namespaces/default/pods", body=pod)
        await bed.kube.ask("DELETE", "/api/v1/namespaces/default/pods/free")
        await bed.bridge()
        await bed.registered()
        await bed.create("blocked")
        await bed.running("blocked")

    world(scenario, nodes=1)


def test_an_api_server_that_restarts_and_forgets_its_watches_loses_nothing(
    world: World, control_plane: ControlPlane
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("before")
        (before,) = await bed.running("before")
        server = control_plane.daemons["apiserver"]
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        await asyncio.to_thread(control_plane.start_apiserver)
        await bed.create("after")
        await bed.running("after")
        pod = await bed.get("before")
        assert pod is not None
        assert pod.metadata.uid == before.metadata.uid
        assert len(bed.jobs()) == 2
        await _an_expired_watch_lists_again(bed)

    world(scenario, nodes=1)


async def _an_expired_watch_lists_again(bed: Bed) -> None:
    """The API server that was just started remembers nothing of version 1: it answers 410."""
    watched = Watched(bed.kube, "/api/v1/namespaces", PodGroup, lambda old, new: None)
    listed = watched._list

    async def stale() -> str:
        version = await listed()
        return "1" if watched.lists == 1 else version

    watched._list = stale  # type: ignore[method-assign]
    task = asyncio.ensure_future(watched.run())
    await bed.until(lambda: watched.lists >= 2, "it lists again")
    name = f"late-{bed.token}"
    await bed.kube.ask("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
    await bed.until(
        lambda: any(n.metadata.name == name for n in watched.items.values()), "it follows"
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await bed.kube.ask("DELETE", f"/api/v1/namespaces/{name}")


@FULL
def test_a_state_that_slurm_lost_trips_the_breaker_before_all_pods_are_gone(
    world: World,
) -> None:
    async def scenario(bed: Bed) -> None:
        brakes = {"proofInterval": 0.3, "missingPerMinute": 2, "cooldown": 600.0}
        running = await bed.bridge(brakes=brakes)
        await bed.registered()
        names = [f"p{n}" for n in range(6)]
        for name in names:
            await bed.create(name)
        await bed.running(*names)
        lost = set()
        slurm = running.bridge.scheduler.slurm  # type: ignore[union-attr]
        ask_states, ask_job = slurm.states, slurm.job

        async def states(jobs: list[int]) -> object:
            return {j: s for j, s in (await ask_states(jobs)).items() if j not in lost}

        async def job(number: int) -> object:
            return None if number in lost else await ask_job(number)

        slurm.states, slurm.job = states, job  # type: ignore[method-assign]
        lost |= {j["job_id"] for j in bed.jobs()}
        await bed.until(
            lambda: b"slurm_bridge_breaker_open 1.0" in running.bridge.metrics.text(), "it trips"
        )
        await asyncio.sleep(3.0)
        assert len(await bed.all_pods()) >= 4

    world(scenario, nodes=1)


@FULL
def test_another_s_jobs_and_nodes_are_never_touched(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        for comment in ("{}", '{"pods": []}', "hello", '{"schema": "slurm-sdk-bridge/1"}'):
            description = {
                "name": "foreign", "admin_comment": comment, "flags": ["EXTERNAL_JOB"],
                "current_working_directory": "/tmp", "environment": ["A=B"], "tasks": 1,
                "cpus_per_task": 1, "memory_per_node": {"set": True, "number": 10},
            }  # fmt: skip
            bed.slurm.client.call("POST", "job/submit", body={"job": description})
        await bed.create("p")
        await bed.running("p")
        await bed.delete("p")
        await bed.gone("p")
        await asyncio.sleep(2.0)
        jobs = [j for j in bed.slurm.client.call("GET", "jobs/")["jobs"] if j["name"] == "foreign"]
        states = [j["job_state"][0] for j in jobs if j["job_state"][0] in ("RUNNING", "PENDING")]
        assert len(states) == 4
        for job in jobs:
            bed.cancel(job["job_id"])

    world(scenario, nodes=1)


@FULL
def test_uninstalling_by_the_page_leaves_no_pod_behind(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        running = await bed.bridge()
        await bed.registered()
        await bed.create("p")
        await bed.running("p")
        await running.stop()
        for kind in ("mutating", "validating"):
            await bed.kube.ask(
                "DELETE",
                f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/slurm-bridge",
            )
        path = f"/api/v1/namespaces/{bed.namespace}/pods/p"
        body = {"metadata": {"finalizers": None}}
        await bed.kube.ask("PATCH", path, body=body, content_type=MERGE)
        await bed.delete("p")
        await bed.gone("p")

    world(scenario, nodes=1)


@FULL
def test_an_upgraded_slurmrestd_with_fewer_versions_is_spoken_to(
    world: World, slurm_rest: SlurmRest
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("before")
        await bed.running("before")
        await asyncio.to_thread(slurm_rest.serve_only, "v0.0.44")
        await bed.create("after")
        await bed.running("before", "after")

    try:
        world(scenario, nodes=1)
    finally:
        slurm_rest.serve_only()


@FULL
def test_a_job_out_of_time_fails_its_pod_and_keeps_it(world: World) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge()
        await bed.registered()
        await bed.create("p", annotations={"slurm-sdk/timelimit": "1"})
        await bed.running("p")
        pod = await bed.until_pod(
            "p", lambda p: p is not None and p.status.phase == "Failed", "is out of time"
        )
        assert pod is not None
        assert pod.status.reason == "DeadlineExceeded"

    world(scenario, nodes=1)
