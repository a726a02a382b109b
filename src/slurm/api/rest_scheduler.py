"""Slurm through slurmrestd: the scheduler behind `backend_type="rest"`."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from slurm import errors
from slurm.api import rest_facts, rest_rows, unshared
from slurm.api.agent_error import AgentError
from slurm.api.origin import Origin
from slurm.api.rest_client import RestClient
from slurm.api.rest_options import NotOverRest, job_of
from slurm.api.slurm_commands import JobStatus, count_attempts, expand_rows
from slurm.api.slurm_refusals import explain_sbatch_error, is_submit_limit
from slurm.api.slurm_scheduler import collapse
from slurm.api.slurm_site import limits_enforced
from slurm.model.hostlist import expand_hostlist

T = TypeVar("T")

#: The first that tells the controller's settings, and has a word for requeue.
_COMPLETE_SINCE = "v0.0.45"
#: Slurm's own default: the least that can be assumed where the setting is not told.
_USUAL_ARRAY = "1001"
#: Of a job that has ended meanwhile: unknown, or over.
_ENDED = frozenset({2017, 2021})
#: How long nobody may listen where slurmrestd was, and how often that is looked at.
_AWAY_S = 10.0
_AGAIN_S = 0.5


class Refused(AgentError):
    """Slurm's no to a request, with its number for the reason."""

    def __init__(self, said: str, number: int) -> None:
        super().__init__("request", "Slurm refuses it", [said])
        self.said, self.number = said, number


def _unshared(option: str, name: str) -> AgentError:
    what = f"{option}={name} is on a host without the shared directory"
    hint = "leave it out, or name a partition whose hosts have that directory"
    return AgentError("unshared", f"{what}: the run would not find its files", [], hint)


class RestScheduler:
    """Slurm, by HTTP with a token; jobs are those of the token's user."""

    kind = "slurm"

    def __init__(self, url: str, token_file: str | None = None) -> None:
        self.calls = 0
        self._shared: dict[str, bool] = {}
        self._origin: Origin | None = None
        self._token_file = token_file
        token = None if token_file else os.environ.get("SLURM_JWT")
        #: For who asks what no verb of ours does.
        self.client = RestClient(url, token=token, token_file=token_file)

    def submit(self, script: str, env: Mapping[str, str], cwd: str) -> str:
        """Submit a script with the options of its own lines; returns the job id."""
        text = Path(script).read_text(encoding="utf-8", errors="surrogateescape")
        try:
            job = job_of(text, env, cwd, self._version())
        except ValueError as error:
            hint = 'use a backend that runs sbatch: backend_type="local" or "ssh"'
            said = hint if isinstance(error, NotOverRest) else None
            raise AgentError("refused", str(error), [], said) from error
        self._refuse_unshared(job)
        try:
            answer = self._ask("POST", "job/submit", body={"script": text, "job": job})
        except Refused as error:
            reason, hint = explain_sbatch_error(error.said)
            kind = "limit" if is_submit_limit(error.said) else "refused"
            raise AgentError(kind, reason, error.evidence, hint) from error
        return str(answer["job_id"])

    def _refuse_unshared(self, job: Mapping[str, Any]) -> None:
        """No run is sent to where its files are not; each partition is asked for once."""
        for name in filter(None, str(job.get("partition") or "").split(",")):
            if name not in self._shared:
                sets = str(self._partition(name).get("node_sets") or "")
                self._shared[name] = not sets.startswith(f"{unshared.FEATURE}_")
            if not self._shared[name]:
                raise _unshared("partition", name)
        names = self._nodes_asked_for(job)
        for node in self.nodes() if names else ():
            if node["name"] in names and unshared.FEATURE in node["features"]:
                raise _unshared("nodelist", node["name"])

    def _nodes_asked_for(self, job: Mapping[str, Any]) -> set[str]:
        """The nodes that a job insists on; of a list that cannot be read, the submission tells."""
        try:
            return set(expand_hostlist(",".join(job.get("required_nodes") or ())))
        except ValueError:
            return set()

    def _partition(self, name: str) -> dict[str, Any]:
        """What is known of a partition; of one that is not there, the submission will tell."""
        try:
            rows = self._ask("GET", f"partition/{name}").get("partitions") or [{}]
        except Refused:
            return {}
        return dict(rows[0])

    def status(self, job_ids: Sequence[str]) -> list[JobStatus]:
        """All jobs that the controller remembers, in one call.

        The waiting rest of an array whose list is cut (SLURM_BITSTR_LEN) has the array's bare id,
        which stands for every element that has no row of its own.
        """
        rows = map(rest_rows.controller_row, self._jobs())
        return [
            row._replace(job_id=row.job_id.partition("_")[0]) if "..." in row.job_id else row
            for row in rows
        ]

    def accounting(self, job_ids: Sequence[str], since: float) -> list[JobStatus]:
        """What accounting knows of these jobs, oldest first."""
        query = rest_rows.accounting_query(job_ids, since)
        try:
            answer = self._ask("GET", "jobs/", query=query, plugin="slurmdb")
        except Refused as error:
            text = "accounting (slurmdbd) does not answer"
            raise AgentError("unreachable", text, error.evidence) from error
        return count_attempts(rest_rows.accounting_row(row) for row in answer.get("jobs") or ())

    def queue(self) -> list[JobStatus]:
        """The jobs of the token's user that have not ended."""
        user = self._user()
        mine = [row for row in self._jobs() if user in ("", row.get("user_name"))]
        rows = expand_rows(map(rest_rows.controller_row, mine))
        return [row for row in rows if row.end is None]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs, all in one request."""
        self._kill(job_ids)

    def signal(self, job_ids: Sequence[str], signal: int) -> None:
        """Send a signal to the batch shells of jobs; our script passes it on."""
        self._kill(job_ids, signal=str(signal), flags=["BATCH_JOB"])

    def requeue(self, job_ids: Sequence[str]) -> None:
        """Put jobs back into the queue."""
        if self._version() < _COMPLETE_SINCE:
            raise AgentError(
                "request",
                f"slurmrestd {self._version()} has no word for requeue; {_COMPLETE_SINCE} has",
                [],
                "scontrol requeue on the login node, or Slurm 26.05",
            )
        self._told(self._ask("POST", "jobs/requeue", body={"jobs": collapse(job_ids)}))

    def hold(self, job_ids: Sequence[str]) -> None:
        """Keep pending jobs from starting."""
        self._update(job_ids, {"hold": True})

    def release(self, job_ids: Sequence[str]) -> None:
        """Let held jobs start."""
        self._update(job_ids, {"hold": False})

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes, as dictionaries."""
        rows = self._ask("GET", "nodes/").get("nodes") or ()
        return [dict(rest_rows.node_row(row)._asdict()) for row in rows]

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions, as dictionaries."""
        nodes = self.nodes()
        rows = self._ask("GET", "partitions/").get("partitions") or ()
        default = rest_rows.default_partition(rows, self._jobs)
        found = [rest_rows.partition_row(row, nodes, default) for row in rows]
        return [dict(row._asdict()) for row in found]

    def limits(self) -> dict[str, Any]:
        """The settings of the controller that limit jobs, and how many this user may submit.

        Before 26.05 slurmrestd does not tell the settings: then arrays are cut as if MaxArraySize
        were Slurm's default.
        """
        found: dict[str, Any] = {"MaxArraySize": _USUAL_ARRAY}
        if self._version() >= _COMPLETE_SINCE:
            found = rest_rows.settings(self._ask("GET", "conf"))
            if not limits_enforced(found):
                return found
        try:
            mine = {"user": self._user()}
            accounts = self._ask("GET", "associations/", query=mine, plugin="slurmdb")
            qos = self._ask("GET", "qos/", plugin="slurmdb")
        except Refused:
            return found  # no accounting, so no such limit
        limit = rest_rows.submit_limit(accounts, qos)
        return {**found, "MaxSubmitJobs": str(limit)} if limit else found

    def explain(self, job_id: str) -> dict[str, Any]:
        """All that slurmrestd can say about why a job waits."""
        return rest_facts.facts(self._seen, job_id)

    def record(self, job_id: str) -> dict[str, str]:
        """One job in the words of `scontrol show job`; nothing where Slurm does not know it."""
        rows = self._seen(f"job/{job_id}").get("jobs") or ()
        # Of an array all elements come, whichever was asked for.
        rows = sorted(rows, key=lambda row: rest_rows.controller_row(row).job_id != job_id)
        return next(map(rest_facts.job_fields, rows), {})

    def all_jobs(self) -> list[dict[str, Any]]:
        """Every user's jobs that have not ended, as dictionaries."""
        rows = map(rest_rows.queued_job, self._jobs())
        return [dict(row._asdict()) for row in rows if row is not None]

    def version(self) -> str:
        """The release of Slurm, such as 24.11.5."""
        return self._about("release")

    def cluster_name(self) -> str:
        """What the cluster calls itself."""
        return self._about("cluster")

    def identify(self) -> Origin:
        """Which cluster this is; slurmrestd does not say the controller's port."""
        if self._origin is None:
            answer = self._ask("GET", "ping/")
            about = (answer.get("meta") or {}).get("slurm") or {}
            first: dict[str, Any] = next(iter(answer.get("pings") or ()), {})
            cluster = str(about.get("cluster") or "").lower()
            self._origin = Origin("slurm", cluster, str(first.get("hostname") or ""))
        return self._origin

    def _about(self, what: str) -> str:
        about = self._ask("GET", "ping/").get("meta") or {}
        return str((about.get("slurm") or {}).get(what) or "")

    # ---- one request ----------------------------------------------------------------------------

    def _jobs(self) -> list[dict[str, Any]]:
        return list(self._ask("GET", "jobs/").get("jobs") or ())

    def _seen(self, path: str) -> dict[str, Any]:
        """An answer; nothing where it is refused: one with a gap is better than none."""
        try:
            return self._ask("GET", path)
        except Refused:
            return {}

    def _kill(self, job_ids: Sequence[str], **more: Any) -> None:
        self._told(self._ask("DELETE", "jobs/", body={"jobs": collapse(job_ids), **more}))

    def _told(self, answer: Mapping[str, Any]) -> None:
        """Raise what the answer to a request says against it."""
        words = rest_rows.refusals(answer, _ENDED)
        if words:
            raise AgentError("request", "Slurm refuses it", words)

    def _update(self, job_ids: Sequence[str], change: Mapping[str, Any]) -> None:
        for number in rest_rows.numbers_of(job_ids, self._jobs()):
            try:
                self._ask("POST", f"job/{number}", body=change)
            except Refused as error:
                if error.number not in _ENDED:
                    raise

    def _version(self) -> str:
        return self._answer("GET", lambda: self.client.version)

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        def send() -> dict[str, Any]:
            self.calls += 1
            return self.client.call(method, path, **more)

        return self._answer(method, send)

    def _answer(self, method: str, request: Callable[[], T]) -> T:
        """The answer to a request; a refusal may be the caller's to explain.

        One that surely did not arrive is sent again for a while: slurmrestd may be starting anew.
        """
        end = time.monotonic() + _AWAY_S
        while True:
            try:
                return request()
            except errors.RestRefused as error:
                raise Refused(error.message, error.number) from error
            except errors.RestError as error:
                nobody = isinstance(error.__cause__, ConnectionRefusedError)
                if nobody and not error.perhaps_done and time.monotonic() < end:
                    time.sleep(_AGAIN_S)
                    continue
                kind = "timeout" if error.perhaps_done and method == "POST" else "unreachable"
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
