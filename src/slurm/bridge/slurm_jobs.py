"""Slurm as the bridge sees it: placeholders and external nodes, over slurmrestd.

Every answer must come from the one cluster that this bridge belongs to; what another one says is
never believed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from slurm.api.rest_client import JOB_NOT_FOUND, RestClient, number_of
from slurm.bridge.actions import JobView
from slurm.bridge.allotment import read_allotment
from slurm.bridge.metrics import Metrics
from slurm.bridge.nodes import Shape, SlurmNode
from slurm.bridge.translation import SLEEPER, read_claim
from slurm.errors import RestError, RestRefused
from slurm.model.hostlist import expand_hostlist
from slurm.model.states import JobState, parse_state

log = logging.getLogger("slurm.bridge.slurm")

# Fewer jobs are asked for by number, so that a large shared cluster's queue is not read each time.
_BY_NUMBER = 200
# A list of all jobs may take so long on a large cluster.
_LONG_S = 60.0
# Errors that say "no such node".
NODE_NOT_FOUND = frozenset({2018})


class WrongCluster(RestError):
    """Another cluster answers behind the URL; nothing that it says is believed."""

    code = "SLURM-E710"


class SlurmJobs:
    """Requests to Slurm, several at a time, each off the event loop."""

    def __init__(
        self,
        client: RestClient,
        kubernetes: str,
        metrics: Metrics,
        *,
        cluster: str | None = None,
    ) -> None:
        self.client = client
        self.kubernetes = kubernetes
        self.cluster = cluster
        self.metrics = metrics
        # The number of the API version, such as 45, as the last good answer came with it.
        self.api = 0
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="slurmrestd")

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def external_jobs(self) -> bool:
        """Whether placeholders can be external jobs (Slurm 25.05)."""
        return self.api >= 43

    @property
    def registers_nodes(self) -> bool:
        """Whether nodes can be made over REST (Slurm 25.11)."""
        return self.api >= 44

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Any = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """One request, timed and counted; an answer of another cluster is an error."""
        loop, start = asyncio.get_running_loop(), time.monotonic()
        try:
            answer, version = await loop.run_in_executor(
                self._threads, self._call, method, path, body, query, timeout
            )
            self._check(answer)
            self.api = int(version.rpartition(".")[2])
        except RestError as error:
            self.metrics.rest_errors.labels(
                number=str(error.number), kind=type(error).__name__
            ).inc()
            self.metrics.slurm_up.set(isinstance(error, RestRefused))
            raise
        self.metrics.slurm_up.set(1)
        self.metrics.rest_seconds.labels(method=method).observe(time.monotonic() - start)
        return answer

    def _call(
        self, method: str, path: str, body: object, query: Any, timeout: float | None
    ) -> tuple[dict[str, Any], str]:
        """In a thread: agreeing on a version may take requests of its own."""
        answer = self.client.call(method, path, body=body, query=query, timeout=timeout)
        return answer, self.client.version

    def _check(self, answer: Mapping[str, Any]) -> None:
        name = (((answer.get("meta") or {}).get("slurm")) or {}).get("cluster")
        if not name:
            return
        if self.cluster is None:
            self.cluster = str(name)
        elif name != self.cluster:
            raise WrongCluster(
                f"cluster {name!r} answers where {self.cluster!r} is expected",
                hint="check slurm.url; the bridge does nothing until the right one answers",
            )

    # ---- jobs ------------------------------------------------------------------------------------

    async def states(self, jobs: Sequence[int]) -> dict[int, JobState]:
        """The state of each job that Slurm knows: one request, whatever their number."""
        query = [("job_id", str(j)) for j in jobs] if len(jobs) <= _BY_NUMBER else None
        return _states(await self.call("GET", "jobs/state/", query=query))

    async def job(self, number: int) -> JobView | None:
        """One of our jobs; None where Slurm does not know it, or another's job has the number."""
        try:
            answer = await self.call("GET", f"job/{number}")
        except RestRefused as error:
            if error.number == JOB_NOT_FOUND:
                return None
            raise
        return next((v for v in self._views(answer["jobs"]) if v.id == number), None)

    async def live_jobs(self) -> dict[int, JobView]:
        """Our jobs that wait or run. Thousands that are over cost no more than their states."""
        answer = await self.call("GET", "jobs/state/", timeout=_LONG_S)
        live = [job for job, state in _states(answer).items() if not state.finished]
        if len(live) <= _BY_NUMBER:
            found: Iterable[JobView | None] = await asyncio.gather(*map(self.job, live))
        else:
            found = self._views((await self.call("GET", "jobs/", timeout=_LONG_S))["jobs"])
        return {view.id: view for view in found if view is not None and view.live}

    def _views(self, rows: Iterable[Mapping[str, Any]]) -> Iterable[JobView]:
        for row in rows:
            claim = read_claim(str(row.get("admin_comment") or ""), self.kubernetes)
            if claim is None:
                continue
            state = parse_state(row.get("job_state"))
            nodes = str(row.get("nodes") or "")
            start = number_of(row.get("start_time")) if state.pending else None
            yield JobView(
                int(row["job_id"]),
                state,
                claim,
                tuple(expand_hostlist(nodes)),
                str(row.get("state_reason") or ""),
                start or None,
                read_allotment(row),
            )

    async def submit(self, description: Mapping[str, Any]) -> int:
        """Make a placeholder; returns its number."""
        body: dict[str, Any] = {"job": dict(description)}
        if not self.external_jobs:
            body["script"] = SLEEPER
        return int((await self.call("POST", "job/submit", body=body))["job_id"])

    async def end(self, job: JobView, outcome: str) -> None:
        """Write down how the pods ended, then end the job: accounting shows it as AdminComment."""
        claim = replace(job.claim, outcome=outcome)
        try:
            await self.call("POST", f"job/{job.id}", body={"admin_comment": claim.text()})
        except RestRefused as error:
            log.info("job %s: its outcome was not taken: %s", job.id, error.message)
        try:
            await self.call("DELETE", f"job/{job.id}")
        except RestRefused as error:
            if error.number != JOB_NOT_FOUND:
                raise

    # ---- nodes -----------------------------------------------------------------------------------

    async def nodes(self) -> dict[str, SlurmNode]:
        """All nodes of Slurm."""
        return {
            str(row["name"]): SlurmNode(
                name=str(row["name"]),
                states=frozenset(row.get("state") or ()),
                cpus=int(row.get("cpus") or 0),
                memory=int(row.get("real_memory") or 0),
                gres=str(row.get("gres") or ""),
                features=tuple(row.get("features") or ()),
                topology=str(row.get("topology") or ""),
                address=str(row.get("address") or ""),
                reason=str(row.get("reason") or ""),
            )
            for row in (await self.call("GET", "nodes/"))["nodes"]
        }

    async def create_node(self, shape: Shape) -> None:
        """Register an external node."""
        await self.call("POST", "new/node/", body={"node_conf": shape.conf()})

    async def delete_node(self, name: str) -> None:
        """Take a node out; one that is not there is fine."""
        try:
            await self.call("DELETE", f"node/{name}")
        except RestRefused as error:
            if error.number not in NODE_NOT_FOUND:
                raise

    async def update_node(self, name: str, **changes: object) -> None:
        """Change a node's state, reason, features or topology."""
        await self.call("POST", f"node/{name}", body=changes)


def _states(answer: Mapping[str, Any]) -> dict[int, JobState]:
    return {
        int(row["job_id"]): parse_state(row["state"])
        for row in answer["jobs"]
        if str(row.get("job_id", "")).isdigit()
    }
