"""What waits, for resources, other jobs or its time, and what it is told when they change."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable

from slurm.api.embedded.engine import Facts, Lanes, Place, Verdict, judge
from slurm.api.embedded.live import LiveBatch, Timers, facts_of
from slurm.api.embedded.queue import Job, Queue
from slurm.api.embedded.request import Request
from slurm.api.sbatch_lines import BadRequest
from slurm.api.sbatch_values import Edge

NO_REASON = "None"


class Waiting:
    """The unfinished jobs by what they wait for. An event costs as much as it concerns jobs."""

    def __init__(self, queue: Queue, finish: Callable[[Job, str, float, str], None]) -> None:
        self.queue = queue
        self.live: dict[int, LiveBatch] = {}
        self.jobs: dict[int, Job] = {}
        self.lanes = Lanes()
        self.timers = Timers()
        self._finish = finish
        self._dependents: dict[int, set[int]] = {}
        self._names: dict[str, list[int]] = {}
        self._touched: collections.deque[tuple[int, int | None, str]] = collections.deque()

    def check(self, request: Request) -> None:
        """Refuse a dependency on a job that does not exist."""
        for edge in request.dependency.edges if request.dependency else ():
            if edge.kind != "singleton" and self._facts(edge, edge.index) is None:
                raise BadRequest(f"Job dependency problem: there is no job {edge.job}.")

    def enter(self, live: LiveBatch) -> None:
        """Take a batch in; `consider_batch` then decides about its jobs."""
        batch = live.batch
        self.live[batch.id] = live
        self.jobs.update((job.id, job) for job in live.jobs.values())
        heapq.heappush(self._names.setdefault(batch.name, []), batch.id)
        for edge in live.request.dependency.edges if live.request.dependency else ():
            target = self.jobs.get(edge.job)
            target_batch = target.batch if target is not None else edge.job
            if target_batch in self.live:
                self._dependents.setdefault(target_batch, set()).add(batch.id)

    def touch(self, job: Job) -> None:
        """A job started or ended: those that wait for it are told when things settle."""
        self._touched.append((job.batch, job.index, self.live[job.batch].batch.name))

    def consider_batch(self, batch_id: int, now: float, index: int | None = None) -> None:
        """Decide anew about the waiting jobs of a batch, or about one element."""
        live = self.live.get(batch_id)
        if live is None:
            return
        chosen = list(live.jobs.values()) if index is None else [live.jobs[index]]
        verdict, reason = self._judge(live, chosen[0], now)
        if not live.per_element and verdict is Verdict.WAIT and reason == live.waits_for:
            return  # they know; an array of thousands is not told at each event
        live.waits_for = reason
        for job in chosen:
            if job.state == "PENDING" and job.id not in self.lanes:
                if live.per_element:
                    verdict, reason = self._judge(live, job, now)
                self._place(live, job, verdict, reason, now)

    def consider(self, job: Job, now: float) -> None:
        """Decide anew about one waiting job."""
        live = self.live[job.batch]
        self._place(live, job, *self._judge(live, job, now), now)

    def _judge(self, live: LiveBatch, job: Job, now: float) -> tuple[Verdict, str]:
        """Whether a job may go to its lane, and the reason if it may not."""
        request = live.request
        if request.begin is not None and request.begin > now:
            self._look_again(live, job, request.begin)
            return Verdict.WAIT, "BeginTime"
        if request.dependency is None or live.satisfied:
            return Verdict.READY, NO_REASON
        first = self._first_of_name(live.batch.name) == live.batch.id
        decision = judge(request.dependency, lambda edge: self._facts(edge, job.index), first, now)
        if decision.look_again is not None:
            self._look_again(live, job, decision.look_again)
        live.satisfied = decision.verdict is Verdict.READY and not live.per_element
        never = decision.verdict is Verdict.NEVER
        return decision.verdict, "DependencyNeverSatisfied" if never else "Dependency"

    def _look_again(self, live: LiveBatch, job: Job, at: int) -> None:
        if at not in live.alarms:
            live.alarms.add(at)
            self.timers.add(at, "consider", job)

    def _place(self, live: LiveBatch, job: Job, verdict: Verdict, reason: str, now: float) -> None:
        if verdict is Verdict.NEVER and live.request.kill_on_invalid_dependency:
            self._finish(job, "CANCELLED", now, reason)
            return
        if job.held:
            reason = "JobHeldUser"
        elif verdict is Verdict.READY:
            reason = NO_REASON
            group = live.batch.id if live.request.throttle is not None else 0
            self.lanes.add(job.id, Place(live.need, group, (-live.request.priority, job.id)))
        if reason != job.reason:
            job.reason = reason
            self.queue.changed(job)

    def _facts(self, edge: Edge, index: int | None) -> Facts | None:
        """What is known about the job, array or element that an edge names."""
        wanted = edge.index
        live = self.live.get(edge.job)
        job = self.jobs.get(edge.job)
        if live is not None:
            if wanted is None and edge.kind == "aftercorr" and live.request.array is not None:
                wanted = index
            if wanted is None:
                return live.facts()
            return facts_of([live.jobs[wanted]]) if wanted in live.jobs else None
        if job is not None:
            return facts_of([job])
        found = self.queue.jobs_of([edge.job]) or self.queue.jobs([edge.job])
        if wanted is None and edge.kind == "aftercorr" and any(j.index is not None for j in found):
            wanted = index
        return facts_of([j for j in found if wanted is None or j.index == wanted])

    def _first_of_name(self, name: str) -> int | None:
        heap = self._names.get(name, [])
        while heap and self._is_over(heap[0]):
            heapq.heappop(heap)
        if not heap:
            self._names.pop(name, None)
        return heap[0] if heap else None

    def _is_over(self, batch_id: int) -> bool:
        live = self.live.get(batch_id)
        return live is None or live.over

    def settle(self, now: float) -> None:
        """Tell the jobs that wait for others what has happened to those."""
        while self._touched:
            batch_id, index, name = self._touched.popleft()
            for waiting in sorted(self._dependents.get(batch_id, ())):
                live = self.live.get(waiting)
                alone = live is not None and live.per_element and index in live.jobs
                one = index if alone and not self._is_over(batch_id) else None
                self.consider_batch(waiting, now, one)
            if self._is_over(batch_id):
                self._dependents.pop(batch_id, None)
                following = self._first_of_name(name)
                if following is not None and self.live[following].singleton:
                    self.consider_batch(following, now)
