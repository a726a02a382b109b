"""What the bridge knows of its jobs in Slurm, kept up to date by one small request at a time.

One list of states serves any number of pods; a job is looked at in detail only when its state
changed. A job counts as gone only when Slurm has said twice, some time apart, that it has none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from slurm.bridge.actions import JobView
from slurm.bridge.settings import Settings
from slurm.bridge.slurm_jobs import SlurmJobs
from slurm.bridge.tasks import together, woken
from slurm.bridge.translation import Claim, read_claim
from slurm.errors import SlurmError
from slurm.model.states import JobState

log = logging.getLogger("slurm.bridge.slurm")

# Reasons and estimates of waiting jobs are renewed this often, so many of them a round.
_REASON_S, _REASONS_A_ROUND = 10.0, 4
# Without an answer for so long nothing is decided.
_FRESH_S = 15.0
# After a change the next look comes soon.
_SOONEST_S, _BRISK_S = 0.1, 5.0


class JobsView:
    """The jobs, by number and by gang; `changed(gang)` is called when one of them changed."""

    def __init__(
        self, settings: Settings, slurm: SlurmJobs, changed: Callable[[str], None]
    ) -> None:
        self._settings, self._slurm, self._changed = settings, slurm, changed
        self.jobs: dict[int, JobView] = {}
        self.node_names: set[str] = set()
        self.listed = asyncio.Event()
        self._wake = asyncio.Event()
        self._gang: dict[int, str] = {}
        self._of_gang: dict[str, set[int]] = defaultdict(set)
        self._suspects: dict[int, float] = {}
        self._missing: set[int] = set()
        self._doubts: dict[str, float] = {}
        self._submitted: dict[int, float] = {}
        self._looked: dict[int, float] = {}
        self._good = self._list_at = self._stirred = 0.0

    # ---- what others tell it ---------------------------------------------------------------------

    def follow(self, job: int, gang: str) -> None:
        """A pod names this job."""
        self._gang[job] = gang
        self._of_gang[gang].add(job)

    def submitted(self, job: int, gang: str, description: Mapping[str, Any]) -> None:
        """A job was just made."""
        claim = read_claim(str(description["admin_comment"]), self._slurm.kubernetes)
        self.follow(job, gang)
        self._submitted[job] = time.monotonic()
        self.jobs[job] = JobView(job, JobState.PENDING, claim or Claim("", gang, ()))
        self._stir()

    def ended(self, job: int) -> None:
        """A job was just ended."""
        if job in self.jobs:
            self.jobs[job] = replace(self.jobs[job], state=JobState.CANCELLED)

    def doubt(self, gang: str) -> None:
        """A submission got no answer: nothing for this gang before Slurm's jobs were listed."""
        self._doubts[gang] = time.monotonic()
        self._stir()

    # ---- what it says ----------------------------------------------------------------------------

    def unsure(self, gang: str) -> bool:
        """Whether a job for this gang may exist that nobody knows of."""
        return gang in self._doubts

    def fresh(self) -> bool:
        """Whether Slurm has answered lately."""
        return time.monotonic() - self._good < _FRESH_S

    def of_gang(self, gang: str, named: set[int]) -> dict[int, JobView]:
        """The jobs that name the gang or that its pods name."""
        return {j: self.jobs[j] for j in {*self._of_gang.get(gang, ()), *named} if j in self.jobs}

    def missing_of(self, jobs: set[int]) -> frozenset[int]:
        """Those that are proved to be gone."""
        return frozenset(jobs & self._missing)

    def live_count(self) -> int:
        """How many jobs wait or run."""
        return sum(job.live for job in self.jobs.values())

    # ---- keeping it up to date -------------------------------------------------------------------

    def _stir(self) -> None:
        self._stirred = time.monotonic()
        self._wake.set()

    async def run(self) -> None:
        """Follow Slurm until cancelled. What cannot be read leaves everything as it was."""
        self.listed.clear()
        # Side by side: a list of a large cluster may take long, and no pod waits for it.
        await together(self._again(self._list_when_due), self._again(self._poll_and_pause))

    async def _again(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except SlurmError as error:
                log.warning("Slurm: %s", error.message)
                await asyncio.sleep(0.5)

    async def _list_when_due(self) -> None:
        age = time.monotonic() - self._list_at
        if age > self._settings.resync or self._doubts or not self.listed.is_set():
            await self._list()
        await asyncio.sleep(_SOONEST_S)

    async def _poll_and_pause(self) -> None:
        await self._poll()
        self._good = time.monotonic()
        await self._pause()

    async def _pause(self) -> None:
        """Soon after a change, then more and more slowly: Slurm starts a job at once or late."""
        quiet = time.monotonic() - self._stirred
        waits = any(job.state.pending for job in self.jobs.values()) or bool(self._suspects)
        if waits or quiet < _BRISK_S:
            await asyncio.sleep(min(self._settings.poll, max(_SOONEST_S, quiet / 3)))
            return
        self._wake.clear()
        await woken(self._wake, self._settings.idle_poll)

    async def _list(self) -> None:
        """Slurm's live jobs, whoever made them; what was learned meanwhile counts more."""
        begun = time.monotonic()
        found = await self._slurm.live_jobs()
        over = {j: job for j, job in self.jobs.items() if not job.live}
        times = {**self._submitted, **self._looked}
        recent = {j: job for j, job in self.jobs.items() if times.get(j, 0.0) >= begun}
        self.jobs = {**over, **found, **recent}
        self._submitted = {j: t for j, t in self._submitted.items() if t >= begun}
        for job in found.values():
            self.follow(job.id, job.claim.gang)
        self._doubts = {g: t for g, t in self._doubts.items() if t >= begun}
        self._list_at = begun
        self.listed.set()
        for gang in {job.claim.gang for job in found.values()}:
            self._changed(gang)

    async def _poll(self) -> None:
        live = [j for j, job in self.jobs.items() if job.live]
        unknown = [j for j in self._gang if j not in self.jobs and j not in self._missing]
        watched = [*live, *unknown]
        # Where nobody is waited for it asks all the same, so that readiness is known. A ping would
        # not do: it is answered without a controller and with any token.
        states = await self._slurm.states(watched or [1])
        changed = [j for j in watched if j in states and self._differs(j, states[j])]
        await asyncio.gather(*(self._look(j) for j in [*changed, *self._stale(states)]))
        for job in watched:
            if job in states:
                self._suspects.pop(job, None)
            else:
                await self._suspect(job)

    def _differs(self, job: int, state: JobState) -> bool:
        known = self.jobs.get(job)
        return known is None or known.state != state

    def _stale(self, states: Mapping[int, JobState]) -> list[int]:
        """A few waiting jobs whose reason was read longest ago."""
        old = time.monotonic() - _REASON_S
        waiting = [
            j
            for j, state in states.items()
            if state.pending and j in self.jobs and self._looked.get(j, 0.0) < old
        ]
        return sorted(waiting, key=lambda j: self._looked.get(j, 0.0))[:_REASONS_A_ROUND]

    async def _look(self, number: int) -> None:
        """Read one job in full."""
        job = await self._slurm.job(number)
        self._looked[number] = time.monotonic()
        if job is not None and job != self.jobs.get(number):
            self.jobs[number] = job
            self._stir()
            self.follow(number, self._gang.get(number, job.claim.gang))
            self._changed(self._gang[number])
        elif job is None:
            await self._suspect(number, asked=True)

    async def _suspect(self, number: int, *, asked: bool = False) -> None:
        """Slurm did not list a job: the second proof, some time after the first, settles it."""
        now = time.monotonic()
        first = self._suspects.setdefault(number, now)
        if not asked and first != now:
            if now - first < self._settings.brakes.proof_interval:
                return
            if await self._slurm.job(number) is None:
                self._suspects.pop(number, None)
                self.jobs.pop(number, None)
                self._missing.add(number)
                self._changed(self._gang.get(number, ""))

    def forget(self, gang: str) -> None:
        """The gang has no pods any more: drop what is remembered of its finished jobs."""
        for number in list(self._of_gang.get(gang, ())):
            job = self.jobs.get(number)
            if job is None or not job.live:
                self._of_gang[gang].discard(number)
                for memory in (self.jobs, self._gang, self._suspects, self._looked):
                    memory.pop(number, None)
                self._missing.discard(number)
        if not self._of_gang.get(gang):
            self._of_gang.pop(gang, None)
