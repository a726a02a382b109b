"""The scheduler: follows pods and Slurm, and does for each gang what `gang.decide` says.

Gangs are independent: each is worked on by one worker at a time, and one that waits, or whose
requests fail, holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

from slurm.bridge.actions import (
    Action,
    End,
    Evict,
    Expire,
    Hold,
    Mark,
    Place,
    Release,
    Submit,
    Tell,
)
from slurm.bridge.brakes import Breaker, Resubmissions
from slurm.bridge.feasibility import infeasible
from slurm.bridge.gang import World, decide, job_of
from slurm.bridge.grouping import gang_key, gang_of, group_of
from slurm.bridge.identity import problem_of
from slurm.bridge.jobs_view import JobsView
from slurm.bridge.kube import KubeError
from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.lease import NotLeader
from slurm.bridge.metrics import Metrics
from slurm.bridge.names import GATE, OUT_OF_SERVICE
from slurm.bridge.nodes import slurm_name
from slurm.bridge.pod_writes import PodWrites
from slurm.bridge.room import room_for
from slurm.bridge.settings import Settings
from slurm.bridge.sizes import Contradiction
from slurm.bridge.slurm_jobs import SlurmJobs
from slurm.bridge.tasks import together
from slurm.bridge.translation import job_description
from slurm.errors import RestError, RestRefused, SlurmError

log = logging.getLogger("slurm.bridge.scheduler")

# Members of a gang beyond its least number have this long to appear.
_SETTLE_S = 1.0
_TICK_S = 2.0
# A job that starts within this time is not said to wait: two writes fewer for each pod.
_TELL_S = 2.0
_LONGEST_PAUSE = 60.0


class Later(Exception):
    """Not now: the gang is looked at again."""


class Scheduler:
    """Call `pod_changed` and `node_changed` for what Kubernetes says; `run` does the rest."""

    def __init__(
        self,
        settings: Settings,
        slurm: SlurmJobs,
        writes: PodWrites,
        metrics: Metrics,
        fence: Callable[[], None],
    ) -> None:
        self.settings, self.slurm, self.writes = settings, slurm, writes
        self.metrics, self.fence = metrics, fence
        self.view = JobsView(settings, slurm, self._wake_gang)
        self.breaker, self._asks = Breaker(settings.brakes), Resubmissions()
        self.groups: dict[str, int | None] = {}
        self.nodes: dict[str, Node] = {}
        self.put: Callable[[Pod], None] = self._put
        self._gangs: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._gang_of: dict[str, str] = {}
        self._seen: dict[str, float] = {}
        self._ungated: dict[str, float] = {}
        self._grown: dict[str, float] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._pause: dict[str, float] = {}

    # ---- what Kubernetes says --------------------------------------------------------------------

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod appeared, changed or went away."""
        pod = new or old
        if pod is None:
            return
        uid = pod.metadata.uid
        before = self._gang_of.get(uid)
        key = gang_key(pod, self.groups)
        if before and before != key:
            self._gangs[before].pop(uid, None)
        if new is None:
            self._gangs[key].pop(uid, None)
            for memory in (self._gang_of, self._seen, self._ungated):
                memory.pop(uid, None)
        else:
            self._remember(key, uid, new, old)
        if not self._gangs[key]:
            del self._gangs[key]
            self._grown.pop(key, None)
            self._asks.forget(key)
            self.view.forget(key)
        job = job_of(pod)
        if job is not None and new is not None:
            self.view.follow(job, key)
        self._wake_gang(key)

    def _remember(self, key: str, uid: str, pod: Pod, old: Pod | None) -> None:
        now = time.monotonic()
        if uid not in self._gangs[key]:
            self._grown[key] = now
            self._seen.setdefault(uid, now)
        self._gang_of[uid], self._gangs[key][uid] = key, pod
        if GATE not in pod.gates and not pod.spec.nodeName:
            self._ungated.setdefault(uid, now)
        elif pod.spec.nodeName:
            self._ungated.pop(uid, None)
            if old is not None and not old.spec.nodeName and uid in self._seen:
                self.metrics.bind_seconds.observe(now - self._seen[uid])

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node appeared, changed or went away."""
        if old is not None:
            self.nodes.pop(slurm_name(old), None)
        if new is not None:
            self.nodes[slurm_name(new)] = new

    def group_changed(self, key: str, least: int | None) -> None:
        """A PodGroup appeared or went away."""
        self.groups[key] = least
        for pod in [p for pods in list(self._gangs.values()) for p in pods.values()]:
            if gang_key(pod, self.groups) != self._gang_of.get(pod.metadata.uid):
                self.pod_changed(pod, pod)
        for gang in [k for k in self._gangs if group_of(k) == key]:
            self._wake_gang(gang)

    def _put(self, pod: Pod) -> None:
        """Take in what a write returned, where no cache does."""
        self.pod_changed(self._gangs.get(gang_key(pod, self.groups), {}).get(pod.metadata.uid), pod)

    # ---- work ------------------------------------------------------------------------------------

    def _wake_gang(self, key: str) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    async def run(self) -> None:
        """Work until cancelled. Begins with what Slurm remembers, so that nothing is made twice."""
        self.view.listed.clear()
        for key in list(self._gangs):
            self._wake_gang(key)
        workers = (self._work() for _ in range(self.settings.workers))
        await together(self.view.run(), self._tick(), *workers)

    async def _work(self) -> None:
        await self.view.listed.wait()
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            self._working.add(key)
            try:
                await self._round(key)
            finally:
                self._working.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self._wake_gang(key)

    async def _round(self, key: str) -> None:
        """Decide once and act; what fails is tried again after a pause that grows."""
        try:
            if not self.view.fresh():
                raise Later("Slurm does not answer")
            for action in decide(self.world(key)):
                await self._do(key, action)
        except Exception as error:
            # Broad: whatever one pod holds, it must not stop all the others.
            pause = self._pause[key] = min(_LONGEST_PAUSE, self._pause.get(key, 0.1) * 2)
            if isinstance(error, SlurmError):
                log.warning("%s: %s", key, error.message)
            elif not isinstance(error, Later):
                log.error("%s", key, exc_info=error)
            if isinstance(error, RestRefused):
                await self._say_refused(key, error)
            # A lease that was renewed late has not been lost, and nobody else wakes the gang.
            quick = isinstance(error, (Later, NotLeader)) or (
                isinstance(error, KubeError) and error.status in (404, 409, 422)
            )
            asyncio.get_running_loop().call_later(
                min(pause, 1.0) if quick else pause, self._wake_gang, key
            )
        else:
            self._pause.pop(key, None)

    async def _say_refused(self, key: str, error: RestRefused) -> None:
        words = f"Slurm refuses the job: {error.message}"
        for pod in list(self._gangs.get(key, {}).values()):
            if GATE in pod.gates:
                try:
                    await self._took(self.writes.tell(pod, "SlurmRefused", words))
                except KubeError as problem:
                    log.info("%s: %s", pod.key, problem.message)

    def world(self, key: str) -> World:
        """All that is known about a gang now."""
        pods = list(self._gangs.get(key, {}).values())
        gang = gang_of(key, pods, self.groups)
        jobs = self.view.of_gang(key, {j for p in pods if (j := job_of(p)) is not None})
        now = time.monotonic()
        full = gang.least is not None and len(pods) == gang.least
        quiet = now - self._grown.get(key, 0.0) >= _SETTLE_S
        direct = self.settings.mode == "direct"
        late = {u for u, t in self._ungated.items() if now - t > self.settings.bind_timeout}
        owned = {p.metadata.uid for p in pods if p.metadata.ownerReferences}
        settled = full or quiet or key.startswith("pod/")
        early = now - self._grown.get(key, 0.0) < _TELL_S
        if early and pods:
            # What only time changes: late members, and what is said of waiting.
            soon = _TELL_S if settled else _SETTLE_S
            asyncio.get_running_loop().call_later(soon, self._wake_gang, key)
        return World(
            gang,
            jobs,
            self.view.missing_of({j for p in pods if (j := job_of(p)) is not None}),
            self.nodes,
            frozenset(p.metadata.uid for p in pods if self._stuck(p)),
            # A pod that nobody would make again is better kept waiting.
            frozenset(late & owned),
            settled=settled,
            direct=direct,
            early=early,
            gres=self.settings.nodes.gres,
            longest_grace=self.settings.longest_grace,
        )

    def _stuck(self, pod: Pod) -> bool:
        """Deleted, its time is over, and no kubelet will say so."""
        gone = pod.metadata.deletionTimestamp
        if gone is None or not pod.spec.nodeName or pod.over:
            return False
        node = next((n for n in self.nodes.values() if n.metadata.name == pod.spec.nodeName), None)
        if node is not None and any(t.key == OUT_OF_SERVICE for t in node.spec.taints):
            return True
        # deletionTimestamp is when the grace is over, by the API server's clock.
        late = time.time() - datetime.fromisoformat(gone.replace("Z", "+00:00")).timestamp()
        return late > self.settings.stuck_after and (node is None or not node.ready)

    # ---- actions ---------------------------------------------------------------------------------

    async def _do(self, key: str, action: Action) -> None:
        self.fence()
        match action:
            case Submit(pods):
                await self._submit(key, pods)
            case Mark(pods, job):
                if job is not None:
                    self.view.follow(job, key)
                for pod in pods:
                    await self._took(self.writes.mark(pod, job))
            case Place(pod, node, job):
                await self._place(pod, node, job)
                self._asks.forget(key)
            case Evict(pod, reason, message, unproved):
                await self._evict(pod, reason, message, unproved)
            case Expire(pod, reason, message):
                await self._took(self.writes.tell(pod, reason, message))
                await self._took(self.writes.expire(pod))
            case Hold(pods, message):
                for pod in pods:
                    await self._took(self.writes.hold(pod, message))
                    self.writes.event(pod, "Held", message, "Warning")
            case End(job, outcome):
                await self.slurm.end(job, outcome)
                self.view.ended(job.id)
            case Release(pod, gone):
                await self._took(self.writes.release(pod))
                if gone:
                    await self.writes.delete(pod, grace=0)
            case Tell(pods, reason, message):
                for pod in pods:
                    await self._took(self.writes.tell(pod, reason, message))

    async def _took(self, write: object) -> None:
        """Do a write and believe its answer at once."""
        pod = await write  # type: ignore[misc]
        if pod is not None:
            self.put(pod)

    async def _submit(self, key: str, pods: tuple[Pod, ...]) -> None:
        # Admission wrote who the pods are; somebody may have got past it.
        if wrong := problem_of(self.settings, pods):
            raise RestRefused(wrong)
        if self.view.unsure(key):
            raise Later("an earlier submission may have arrived")
        if self._asks.wait(key, time.monotonic()) > 0:
            raise Later("the job before this one ended at once")
        away = [slurm_name(n) for n in infeasible(pods, self.nodes.values())]
        try:
            description = self._description(key, pods, away)
        except Contradiction as error:
            raise RestRefused(error.message) from error
        self.fence()
        self._asks.asked(key, time.monotonic())
        try:
            job = await self.slurm.submit(description)
        except RestError as error:
            if error.perhaps_done:
                self.view.doubt(key)
            raise
        self.metrics.submits.inc()
        for pod in pods:
            seen = self._seen.get(pod.metadata.uid, time.monotonic())
            self.metrics.submit_seconds.observe(time.monotonic() - seen)
        self.view.submitted(job, key, description)
        for pod in pods:
            self.fence()
            await self._took(self.writes.mark(pod, job))
            self.writes.event(pod, "Submitted", f"Slurm job {job} stands for this pod")

    def _description(self, key: str, pods: tuple[Pod, ...], away: list[str]) -> dict[str, object]:
        return job_description(
            key,
            pods,
            cluster=self.slurm.kubernetes,
            gres=self.settings.nodes.gres,
            partition=self.settings.slurm.partition,
            mcs_label=self.settings.slurm.mcs_label,
            excluded=[name for name in away if name in self.view.node_names],
            external=self.slurm.external_jobs,
        )

    async def _place(self, pod: Pod, node: str, job: int) -> None:
        if self.settings.mode == "direct" and not self._room(pod, node):
            raise Later(f"{node} is not free yet")
        await self._took(self.writes.place(pod, node, direct=self.settings.mode == "direct"))
        seen = self._seen.get(pod.metadata.uid, time.monotonic())
        self.metrics.place_seconds.observe(time.monotonic() - seen)
        self.writes.event(pod, "Placed", f"Slurm job {job} chose node {node}")

    def _room(self, pod: Pod, node: str) -> bool:
        """Whether pods that are still leaving have left enough of the node."""
        there = [
            p for pods in self._gangs.values() for p in pods.values() if p.spec.nodeName == node
        ]
        found = next((n for n in self.nodes.values() if n.metadata.name == node), None)
        return found is None or room_for(pod, found, there)

    async def _evict(self, pod: Pod, reason: str, message: str, unproved: bool) -> None:
        now = time.monotonic()
        allowed = self.breaker.allows(now, unproved=unproved)
        self.metrics.breaker.set(self.breaker.is_open(now))
        if not allowed:
            raise Later("the breaker stops evictions")
        self.writes.event(pod, reason, message, "Warning")
        await self.writes.evict(pod, reason, message, int(self.settings.longest_grace))
        self.metrics.evictions.labels(reason=reason).inc()

    # ---- time ------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """What only time changes: pods that leave, pods that are not bound; and the gauges."""
        while True:
            await asyncio.sleep(_TICK_S)
            waiting, placed, oldest = 0, 0, 0.0
            now = time.monotonic()
            for key, pods in list(self._gangs.items()):
                for uid, pod in pods.items():
                    gated = GATE in pod.gates
                    waiting, placed = waiting + gated, placed + (not gated and not pod.over)
                    oldest = max(oldest, now - self._seen.get(uid, now)) if gated else oldest
                    if pod.metadata.deletionTimestamp is not None or uid in self._ungated:
                        self._wake_gang(key)
            self.metrics.pods.labels(state="waiting").set(waiting)
            self.metrics.pods.labels(state="placed").set(placed)
            self.metrics.queue_age.set(oldest)
            self.metrics.jobs.set(self.view.live_count())
            self.metrics.breaker.set(self.breaker.is_open(now))
