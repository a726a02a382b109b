"""Kubernetes and Slurm in memory, as far as a pod's life needs them, for deaths at every await.

The real ones are in tests/bridge; this pair is for the thousands of lives that those are too slow
for. Each request can be cut before it arrives, after it was done, or arrive late, when the one who
sent it is gone and the next has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec

from slurm.bridge.kube import KubeError
from slurm.bridge.kube_types import Condition, Meta, Node, NodeStatus, Pod
from slurm.bridge.metrics import Metrics
from slurm.bridge.names import FINALIZER, GATE, MANAGED, POD_GROUP_LABEL, USER
from slurm.bridge.pod_writes import PodWrites
from slurm.bridge.scheduler import Scheduler
from slurm.bridge.settings import Settings, parse_settings
from slurm.bridge.slurm_jobs import SlurmJobs
from slurm.errors import RestRefused

HERE = "kube-uid"
NODES = ("n1", "n2")
_LIVE = ("PENDING", "RUNNING")
Json = dict[str, Any]


class Pair:
    """Both sides, and the others who act on them: slurmctld, kube-scheduler and kubelets."""

    def __init__(self, pods: int, mode: str, *, late: bool = False) -> None:
        self.mode, self.late = mode, late
        self.gang = pods > 1
        self.pods = {f"p{n}": _pod(f"p{n}", gang=self.gang) for n in range(pods)}
        self.jobs: dict[int, Json] = {}
        self.waiting_writes: list[Callable[[], object]] = []
        self.version = 0

    async def arrive(self, write: bool, work: Callable[[], Any]) -> Any:
        """A request on its way: done between two suspensions, or, `late`, after its sender."""
        if self.late and write:
            self.waiting_writes.append(work)
            await asyncio.sleep(0)
            # The sender lives: it was only slow.
            self.waiting_writes.remove(work)
            answer = work()
        else:
            await asyncio.sleep(0)
            answer = work()
        await asyncio.sleep(0)
        return answer

    def arrive_late(self) -> None:
        """What the dead had sent arrives now; one that is refused has nobody to tell."""
        for work in self.waiting_writes:
            with contextlib.suppress(KubeError, RestRefused):
                work()
        self.waiting_writes.clear()

    # ---- the others ------------------------------------------------------------------------------

    def advance(self) -> None:
        """One step of everybody else."""
        for pod in self.pods.values():
            spec, status = pod["spec"], pod["status"]
            if status["phase"] == "Running":
                status["phase"] = "Succeeded"
            elif spec.get("nodeName") and status["phase"] == "Pending":
                self.started(pod)
            elif self.mode == "gate" and not spec["schedulingGates"] and not spec.get("nodeName"):
                terms = spec["affinity"]["nodeAffinity"]
                (required,) = terms.values()
                spec["nodeName"] = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            self.version += 1
            pod["metadata"]["resourceVersion"] = str(self.version)
        for job in self.jobs.values():
            if job["job_state"] == ["PENDING"]:
                count = int(job["asked"]["nodes"])
                free = [n for n in NODES if n not in self.taken()]
                if len(free) >= count:
                    job.update(job_state=["RUNNING"], nodes=",".join(free[:count]))

    def taken(self) -> set[str]:
        running = [j for j in self.jobs.values() if j["job_state"] == ["RUNNING"]]
        return {name for job in running for name in job["nodes"].split(",")}

    def started(self, pod: Json) -> None:
        """The kubelet starts it: by then Slurm must have given the node to this very pod."""
        name = pod["spec"]["nodeName"]
        mine = [j for j in self.live() if pod["metadata"]["uid"] in j["admin_comment"]]
        assert any(name in j["nodes"].split(",") for j in mine), (name, mine)
        others = [p for p in self.pods.values() if p is not pod and not _over(p)]
        assert name not in [p["spec"].get("nodeName") for p in others], "two pods, one node"
        pod["status"]["phase"] = "Running"

    def live(self) -> list[Json]:
        return [j for j in self.jobs.values() if j["job_state"][0] in _LIVE]

    def done(self) -> bool:
        return not self.live() and all(
            _over(p) and not p["metadata"]["finalizers"] for p in self.pods.values()
        )

    def read(self) -> list[Pod]:
        return [msgspec.convert(p, Pod, strict=False) for p in self.pods.values()]


def _over(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")


def _pod(name: str, *, gang: bool) -> Json:
    labels = {MANAGED: "true", **({POD_GROUP_LABEL: "g"} if gang else {})}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels}
    meta |= {"annotations": {USER: "1234"}, "finalizers": [FINALIZER], "resourceVersion": "0"}
    spec = {"containers": [], "schedulingGates": [{"name": GATE}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending", "conditions": []}}


# ---- the two sides, as the bridge's own clients see them -----------------------------------------


class MemoryKube:
    """Answers what `PodWrites` asks of the API server."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    async def ask(self, method: str, path: str, **more: Any) -> bytes:
        content: bytes = await self._pair.arrive(
            method != "GET", lambda: self._do(method, path, **more)
        )
        return content

    def _do(
        self, method: str, path: str, body: Any = None, content_type: str = "", query: Any = None
    ) -> bytes:
        name, _, part = path.partition("/pods/")[2].partition("/")
        pod = deepcopy(self._pair.pods[name])
        if part == "binding":
            if pod["spec"]["schedulingGates"] or pod["spec"].get("nodeName"):
                raise KubeError("gated or bound", status=409)
            pod["spec"]["nodeName"] = body["target"]["name"]
        elif content_type == "application/json-patch+json":
            for op in body:
                _apply(pod, op)
        else:
            if body["metadata"]["uid"] != pod["metadata"]["uid"]:
                raise KubeError("uid is another", status=409)
            conditions = body.get("status", {}).get("conditions", [])
            kept = [
                c
                for c in pod["status"]["conditions"]
                if c["type"] not in {n["type"] for n in conditions}
            ]
            pod["status"]["conditions"] = [*kept, *conditions]
            for kind in ("labels", "annotations"):
                changed = {**pod["metadata"][kind], **body["metadata"].get(kind, {})}
                pod["metadata"][kind] = {k: v for k, v in changed.items() if v is not None}
        self._pair.version += 1
        pod["metadata"]["resourceVersion"] = str(self._pair.version)
        self._pair.pods[name] = pod
        return json.dumps(pod).encode()


def _apply(pod: Json, op: Json) -> None:
    """One operation of a JSON patch; a test that fails is a 422."""
    *way, last = [p.replace("~1", "/").replace("~0", "~") for p in op["path"].split("/")[1:]]
    place: Any = pod
    try:
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        if op["op"] == "test":
            here = place[int(last)] if isinstance(place, list) else place[last]
            if here != op["value"]:
                raise KubeError("the test failed", status=422)
        elif op["op"] == "remove":
            del place[int(last) if isinstance(place, list) else last]
        else:
            place[last] = op["value"]
    except (IndexError, KeyError) as error:
        raise KubeError(f"no {op['path']}", status=422) from error


class MemoryJobs(SlurmJobs):
    """The bridge's own requests, answered by the pair."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(None, HERE, Metrics())  # type: ignore[arg-type]
        self._pair, self.api = pair, 45

    async def call(
        self, method: str, path: str, *, body: Any = None, query: Any = None, timeout: Any = None
    ) -> dict[str, Any]:
        answer: Json = await self._pair.arrive(
            method != "GET", lambda: self._do(method, path, body)
        )
        return answer

    def _do(self, method: str, path: str, body: Any) -> Json:
        jobs = self._pair.jobs
        if path == "job/submit":
            number = len(jobs) + 1
            row = {"job_id": number, "job_state": ["PENDING"], "nodes": "", "asked": body["job"]}
            jobs[number] = {**row, "admin_comment": body["job"]["admin_comment"]}
            return {"job_id": number}
        if path == "jobs/":
            return {"jobs": deepcopy(list(jobs.values()))}
        if path == "jobs/state/":
            return {"jobs": [{**j, "state": j["job_state"]} for j in jobs.values()]}
        job = jobs.get(int(path.partition("/")[2]))
        if job is None:
            raise RestRefused("no such job", number=2017)
        if method == "POST":
            job.update(body)
        elif method == "DELETE" and job["job_state"][0] in _LIVE:
            job["job_state"] = ["CANCELLED"]
        return {"jobs": [deepcopy(job)]}


def settings(mode: str) -> Settings:
    return parse_settings(json.dumps({"mode": mode, "identity": [{"user": "1234"}]}))


def awake(pair: Pair, fence: Callable[[], None] = lambda: None) -> Scheduler:
    """A bridge that knows the nodes and the group."""
    scheduler = Scheduler(
        settings(pair.mode),
        MemoryJobs(pair),
        PodWrites(MemoryKube(pair)),  # type: ignore[arg-type]
        Metrics(),
        fence,
    )
    scheduler.groups["coscheduling/ns/g"] = 2
    for name in NODES:
        room: dict[str, str | int | float] = {"cpu": "8", "memory": "1Gi"}
        status = NodeStatus(conditions=[Condition("Ready", "True")], allocatable=room)
        scheduler.node_changed(None, Node(Meta(name=name), status=status))
    return scheduler


async def live(pair: Pair, rounds: int = 60) -> None:
    """One bridge's life: one round after the other until all is done."""
    scheduler = awake(pair)
    known: dict[str, Pod] = {}
    for number in range(rounds):
        for pod in pair.read():
            scheduler.pod_changed(known.get(pod.metadata.uid), pod)
            known[pod.metadata.uid] = pod
        if number % 4 == 0:
            await scheduler.view._list()
        await scheduler.view._poll()
        scheduler.view._good = asyncio.get_running_loop().time()
        for key in list(scheduler._gangs):
            await scheduler._round(key)
        if number == 0:
            pair.arrive_late()
        pair.advance()
        if pair.done():
            return
    raise AssertionError(f"not done after {rounds} rounds: {pair.pods} {pair.jobs}")
