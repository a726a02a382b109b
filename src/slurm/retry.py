"""Retries as the client sees them: which attempt a job is at, and when a failure is for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm.api import retry_rules
from slurm.errors import OptionError
from slurm.evidence import Evidence
from slurm.model.again import Retry
from slurm.outcome import Verdict
from slurm.rendering import Submission

if TYPE_CHECKING:
    from slurm.job import Job
    from slurm.jobview import JobView

#: What ends without any hope that the same would go better another time.
_FOR_GOOD = (Verdict.UNTRUSTED, Verdict.NOT_WRITTEN, Verdict.RESULT_LOST)


@dataclass(frozen=True)
class Attempt:
    """One time that a call was submitted: its job, why it failed, and what it had asked for.

    `kind` is `raised`, `exited`, `died`, `oom`, `timeout`, `preempted`, `node_fail`, `cancelled`,
    `waited` (its upstream was retried, so it went behind that), `untrusted` (what it left was not
    read, since others may have written it), or None while it is not over or where it succeeded.
    """

    job_id: str
    kind: str | None
    error: str
    options: Mapping[str, object]


def attempt(job: JobView[Any], kind: str | None, error: str) -> Attempt:
    """The attempt that a job is at."""
    asked = {name: value for name, value in job.options.items() if name not in ("retry", "cache")}
    return Attempt(job.bare, kind, error, asked)


class Again:
    """Where a call stands whose job may be followed by another one."""

    def __init__(self, policy: dict[str, Any] | None, token: str) -> None:
        self.policy = policy
        self.token = token
        self.attempts: list[Attempt] = []
        self.stopped = False
        #: Whether a failure was seen after which a retry is due, and whether it was asked for.
        self.due = self.asked = False
        self._final = False

    def follow(self, job: Job[Any], progress: dict[str, Any]) -> bool:
        """Go on to the newest job of the call; True if there is a newer one."""
        moved = False
        while True:
            judged = progress["judged"].get(self.token)
            letter = retry_rules.letter_in(judged, job.index)
            following = retry_rules.following(progress, self.token, job.index)
            if following is not None:
                why = (judged or {}).get("why", {}).get(str(job.index), _WAITED)
                self.attempts.append(attempt(job, why["kind"], why["text"]))
                self.token, moved = following, True
                self.due = self.asked = False
                job.options = {**job.options, **self._grown()}
                job.start_over(progress["ids"][following])
                continue
            self._final = judged is not None and (
                letter is None or f"{self.token}{letter}" in progress["refused"]
            )
            return moved

    def _grown(self) -> dict[str, int]:
        if self.policy is None:
            return {}
        first = self.policy["first"]
        found = retry_rules.grown(self.policy["rules"], self.token, first)
        if "mem" in found:
            found[str(first["mem_flag"]).replace("-", "_")] = found.pop("mem")
        return found

    def is_due(self, verdict: Verdict, seen: Evidence) -> bool:
        """Whether something follows this end; then it is not the outcome yet."""
        self.due = (
            self.policy is not None
            and not (self.stopped or self._final)
            and verdict not in (Verdict.VALUE, *_FOR_GOOD)
            and self._letter(seen) is not None
        )
        return self.due

    def _letter(self, seen: Evidence) -> str | None:
        assert self.policy is not None
        made = retry_rules.retries_of(self.token)
        return retry_rules.letter_for(self.policy["rules"], failure_of(seen), made)


_WAITED = {"kind": "waited", "text": "what it needs was being retried"}


def failure_of(seen: Evidence, unread: str | None = None) -> retry_rules.Failure:
    """How a call failed, out of the client's evidence; `unread`: why what it left was not read."""
    if unread:
        return retry_rules.Failure("untrusted", (), f"how it ended was not read: {unread}")
    event = seen.last_exit()
    state = seen.state.value if seen.state is not None else ""
    code = event.number("code") if event is not None else None
    if code is None and seen.status is not None:
        code = seen.status.exit_code
    return retry_rules.failure_of(seen.trouble(), state, code, event)


# ---- submission ---------------------------------------------------------------------------------


def policy_of(submission: Submission) -> dict[str, Any] | None:
    """What the cluster has to know to retry calls of a submission; None: nothing is retried.

    Of a packed map these are the jobs; an item that raises is tried again by its worker. Steps are
    not retried.
    """
    retry = submission.options.get("retry")
    if not isinstance(retry, Retry) or submission.step:
        return None
    first: dict[str, Any] = {"mem": None, "mem_flag": None, "time": submission.options.get("time")}
    for name in ("mem", "mem_per_cpu", "mem_per_gpu"):
        if submission.options.get(name):
            first.update(mem=submission.options[name], mem_flag=name.replace("_", "-"))
    rules = retry.rules()
    if rules["oom"] and first["mem"] is None:
        raise _needs("oom", retry.oom, "mem")
    if rules["timeout"] and not isinstance(first["time"], int):
        raise _needs("timeout", retry.timeout, "time")
    secrets = list(submission.options.get("secrets") or ())  # type: ignore[call-overload]
    return {"rules": rules, "first": first, "given": retry.plain(), "secrets": secrets}


def _needs(rule: str, value: object, option: str) -> OptionError:
    return OptionError(
        f"retry: {rule}={value!r} needs {option}=, which the task does not set",
        hint=f"set {option}= too, or write {rule}=True to run it again with the same",
    )


def with_requeue(options: dict[str, object]) -> dict[str, object]:
    """The options, where a retry asks for it with Slurm's own requeue after a lost node."""
    retry = options.get("retry")
    wanted = isinstance(retry, Retry) and (retry.preempted or retry.node_fail)
    return {**options, "requeue": True} if wanted and "requeue" not in options else options
