"""Slurm through slurmrestd: the scheduler behind `backend_type="rest"`."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm import errors
from slurm.api import rest_jobs, unshared
from slurm.api.agent import AgentError
from slurm.api.embedded.sbatch_lines import BadRequest
from slurm.api.rest_client import JOB_NOT_FOUND, RestClient
from slurm.api.slurm_commands import JobStatus

#: Slurm's number for "more jobs would be queued than the user may have".
_LIMIT_NUMBERS = frozenset({2050, 2051, 2060})
#: Older ones have no word for it.
_REQUEUE_SINCE = "v0.0.45"


class RestScheduler:
    """Slurm, by HTTP with a token; jobs are those of the token's user."""

    kind = "slurm"

    def __init__(self, url: str, token_file: str | None = None) -> None:
        self.calls = 0
        self._shared: dict[str, bool] = {}
        self._token_file = token_file
        token = None if token_file else os.environ.get("SLURM_JWT")
        self._client = RestClient(url, token=token, token_file=token_file)

    def submit(self, script: str, env: Mapping[str, str], cwd: str) -> str:
        """Submit a script with the options of its own lines; returns the job id."""
        text = Path(script).read_text(encoding="utf-8", errors="surrogateescape")
        try:
            job = rest_jobs.job_of(text, env, cwd)
        except (rest_jobs.NotOverRest, BadRequest, ValueError) as error:
            hint = 'use a backend that runs sbatch: backend_type="local" or "ssh"'
            raise AgentError("refused", str(error), [], hint) from error
        self._refuse_unshared(str(job.get("partition") or ""))
        body = {"script": text, "job": job}
        answer = self._ask("POST", "job/submit", body=body, submission=True)
        return str(answer["job_id"])

    def _refuse_unshared(self, partitions: str) -> None:
        """No run is sent to where its files are not; each partition is asked for once."""
        for name in filter(None, partitions.split(",")):
            if name not in self._shared:
                rows = self._told(f"partition/{name}").get("partitions") or [{}]
                sets = str(rows[0].get("node_sets") or "")
                self._shared[name] = not sets.startswith(f"{unshared.FEATURE}_")
            if not self._shared[name]:
                what = f"partition={name} is on a host without the shared directory"
                raise AgentError("unshared", f"{what}: the run would not find its files")

    def _told(self, path: str) -> dict[str, Any]:
        """What is known under a path; nothing where slurmrestd would not tell."""
        try:
            return self._ask("GET", path)
        except (AgentError, errors.RestRefused):
            return {}

    def status(self, job_ids: Sequence[str]) -> list[JobStatus]:
        """All jobs that the controller remembers, in one call."""
        return [rest_jobs.controller_row(row) for row in self._jobs()]

    def accounting(self, job_ids: Sequence[str], since: float) -> list[JobStatus]:
        """What accounting knows of these jobs, oldest first."""
        query = {
            "step": ",".join(job_ids),
            "start_time": str(int(max(since, 0))),
            "show_duplicates": "true",
            "skip_steps": "true",
        }
        answer = self._ask("GET", "jobs/", query=query, plugin="slurmdb")
        rows = [rest_jobs.accounting_row(row) for row in answer.get("jobs") or ()]
        rows.sort(key=lambda row: row.submit or 0)
        attempts: dict[tuple[str, str], int] = {}
        for place, row in enumerate(rows):
            key = (row.job_id, row.work_dir)
            rows[place] = row._replace(restarts=attempts.get(key, 0))
            attempts[key] = attempts.get(key, 0) + 1
        return rows

    def queue(self) -> list[JobStatus]:
        """The jobs of the token's user that have not ended."""
        user = self._user()
        mine = [row for row in self._jobs() if user in ("", row.get("user_name"))]
        return [row for row in map(rest_jobs.controller_row, mine) if row.end is None]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs."""
        self._each(job_ids, lambda job: self._ask("DELETE", f"job/{job}"))

    def signal(self, job_ids: Sequence[str], signal: int) -> None:
        """Send a signal to the batch shells of jobs; our script passes it on."""
        query = {"signal": str(signal), "flags": "BATCH_JOB"}
        self._each(job_ids, lambda job: self._ask("DELETE", f"job/{job}", query=query))

    def requeue(self, job_ids: Sequence[str]) -> None:
        """Put jobs back into the queue."""
        if self._version() < _REQUEUE_SINCE:
            raise AgentError(
                "request",
                f"slurmrestd {self._version()} has no word for requeue; {_REQUEUE_SINCE} has",
                [],
                "scontrol requeue on the login node, or Slurm 26.05",
            )
        # Slurm made it a GET: it is not repeated by anybody but the client, on a dead connection.
        self._each(job_ids, lambda job: self._ask("GET", f"job/{job}/requeue"))

    def hold(self, job_ids: Sequence[str]) -> None:
        """Keep pending jobs from starting."""
        self._each(job_ids, lambda job: self._ask("POST", f"job/{job}", body={"hold": True}))

    def release(self, job_ids: Sequence[str]) -> None:
        """Let held jobs start."""
        self._each(job_ids, lambda job: self._ask("POST", f"job/{job}", body={"hold": False}))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes, as dictionaries."""
        rows = self._ask("GET", "nodes/").get("nodes") or ()
        return [dict(rest_jobs.node_row(row)._asdict()) for row in rows]

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions, as dictionaries."""
        nodes = self.nodes()
        rows = self._ask("GET", "partitions/").get("partitions") or ()
        return [dict(rest_jobs.partition_row(row, nodes)._asdict()) for row in rows]

    def limits(self) -> dict[str, Any]:
        """What is known of limits: slurmrestd does not tell the controller's settings."""
        return {}

    # ---- one request ----------------------------------------------------------------------------

    def _jobs(self) -> list[dict[str, Any]]:
        return list(self._ask("GET", "jobs/").get("jobs") or ())

    def _each(self, job_ids: Sequence[str], act: Callable[[str], object]) -> None:
        for job in job_ids:
            try:
                act(job)
            except errors.RestRefused as error:
                # A job that has ended meanwhile needs no more.
                if error.number != JOB_NOT_FOUND:
                    raise AgentError("request", error.message, error.evidence) from error

    def _version(self) -> str:
        try:
            return self._client.version
        except errors.RestError as error:
            raise AgentError("unreachable", error.message, error.evidence, error.hint) from error

    def _ask(
        self, method: str, path: str, *, submission: bool = False, **more: Any
    ) -> dict[str, Any]:
        self.calls += 1
        try:
            return self._client.call(method, path, **more)
        except errors.RestRefused as error:
            if not submission:
                raise
            kind = "limit" if error.number in _LIMIT_NUMBERS else "refused"
            raise AgentError(kind, error.message, error.evidence, error.hint) from error
        except errors.RestError as error:
            kind = "timeout" if error.perhaps_done and submission else "unreachable"
            raise AgentError(kind, error.message, error.evidence, error.hint) from error

    def _user(self) -> str:
        """Whom the token is for."""
        try:
            file = Path(self._token_file) if self._token_file else None
            token = file.read_text() if file else os.environ.get("SLURM_JWT", "")
            body = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (OSError, IndexError, ValueError):
            return ""
        return str(claims.get("sun") or claims.get("username") or "")
