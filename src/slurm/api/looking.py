"""Looking: the verbs of a cluster that change nothing, and a backend that has no others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm import errors
from slurm.api.agent_error import AgentError
from slurm.api.slurm_commands import JobStatus


class RunExists(errors.RunDirError):
    """Another run has this name: the submission is made again under another one."""


#: What the agent calls it -> what the user gets.
_ERRORS: dict[str, type[errors.SlurmError]] = {
    "refused": errors.SubmitRefused,
    "limit": errors.SubmitLimit,
    "unshared": errors.NoSharedFiles,
    "unreachable": errors.SchedulerUnreachable,
    "timeout": errors.SchedulerUnreachable,
    "missing": errors.NoScheduler,
    "rundir": errors.RunDirError,
    "exists": RunExists,
    "not-found": errors.RunNotFound,
    "ambiguous": errors.AmbiguousRun,
    "untrusted": errors.UntrustedRun,
    "unreadable": errors.ResultUnreadable,
    "request": errors.CommandRefused,
    "file": errors.TransferFailed,
    "checksum": errors.TransferFailed,
    "too-large": errors.UsageError,
    "unknown": errors.ConnectionLost,
    "needs": errors.NotDelivered,
    "agent": errors.ProtocolError,
}

_HINTS = {
    "unreachable": "check that slurmctld runs: scontrol ping. Running jobs are not affected",
    "timeout": "nothing was submitted twice; look with cluster.attach(run) once Slurm answers",
    "exists": "submit it again: each run gets a name of its own",
    "rundir": "choose a directory that you can write and that the nodes see: "
    "Cluster(job_base_dir=...)",
}


@dataclass(frozen=True)
class JobKey:
    """A job as a backend needs it: an id alone is no identity, the run makes it one."""

    job_id: str
    run: str
    since: float = 0.0

    @property
    def bare(self) -> str:
        """The id without the name of a cluster."""
        return self.job_id.partition(";")[0]


@dataclass(frozen=True)
class Wanted:
    """How a run is watched by a backend that tells news without being asked."""

    #: How far it was read.
    seen: dict[str, int]
    #: Whether it has to be read from there again, whatever was told of it already.
    again: bool
    #: Whether the ids of later parts are wanted.
    parts: bool
    #: Whether it is read all the time, not only when one of its jobs ends.
    eager: bool


def as_error(error: AgentError) -> errors.SlurmError:
    """What the agent says as the error that users know."""
    kind = _ERRORS.get(error.kind, errors.SlurmError)
    hint = error.hint or _HINTS.get(error.kind)
    return kind(error.message, hint=hint, evidence=error.evidence)


class Looking(ABC):
    """The verbs that only look. A verb is one round trip.

    What `slurm show`, `why`, `logs`, `ls`, `eff`, `graph`, `top`, the dashboard and `slurm mcp`
    have: no verb of it submits, cancels or writes, and values are not unpickled.
    """

    #: Whether it tells news of watched runs by itself: see `follow`.
    pushes = False
    #: What `backend_type` calls it.
    kind = "local"
    #: Two clusters with the same target share one watcher and one connection.
    target: str = ""
    _runtimes: dict[str, str] | None = None

    @abstractmethod
    def call(self, verb: str, *args: Any) -> Any:
        """Carry one verb to the agent; AgentError comes back as it is."""

    def _call(self, verb: str, *args: Any) -> Any:
        try:
            return self.call(verb, *args)
        except AgentError as error:
            raise as_error(error) from None

    def hello(self) -> dict[str, Any]:
        """The base directory there, and the kind of scheduler."""
        answer: dict[str, Any] = self._call("hello")
        return answer

    def container_runtimes(self) -> dict[str, str]:
        """What can run containers there: the name of each runtime, and where it was found."""
        if self._runtimes is None:
            self._runtimes = self._call("container_runtimes")
        return self._runtimes

    def family(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        """These runs and all below them: metadata, ids and events."""
        found: list[dict[str, Any]] = self._call("family", list(runs))
        return found

    def status(self, jobs: Sequence[JobKey]) -> dict[str, JobStatus]:
        """The scheduler's word on any number of jobs, by id; unknown ones are left out."""
        asked = [(job.bare, job.run, job.since) for job in jobs]
        rows = [JobStatus(*row) for row in self._call("status", asked)]
        return {row.job_id: row for row in rows}

    def find_run(self, text: str) -> str:
        """The run of a name, a path or a job id."""
        run: str = self._call("find_run", text)
        return run

    def find_job(self, run: str, part: int = 0) -> str | None:
        """The job of a run; one whose id got lost is found, and not written down."""
        job: str | None = self._call("find_job", run, part, False)
        return job

    def follow(
        self, wanted: Mapping[str, Wanted], attended: bool, told: Callable[[], None]
    ) -> list[tuple[str, dict[str, Any]]]:
        """Say which runs are watched, and take the news of them; for those that push."""
        raise NotImplementedError

    def changes(self, seen: dict[str, int] | None) -> tuple[dict[str, int], list[str]]:
        """Which runs had an end since `seen`; None means from now on."""
        sizes, runs = self._call("changes", seen)
        return sizes, runs

    def read_run(
        self, run: str, seen: dict[str, int], parts: bool = False, beats: bool = True
    ) -> dict[str, Any]:
        """What is new in a run since `seen`; with `parts` also the ids of its parts."""
        answer: dict[str, Any] = self._call("read_run", run, seen, parts, -1, beats)
        return answer

    def read(self, run: str, name: str, offset: int = 0, limit: int = 8 << 20) -> bytes:
        """Bytes of a file of a run; a negative offset counts from the end."""
        data: bytes = self._call("read", run, name, offset, limit)
        return data

    def read_when(self, run: str, name: str, offset: int, hold: float) -> bytes:
        """The same from `offset` on as soon as there is something; for those that push."""
        raise NotImplementedError

    def runs(self, after: str, sizes: dict[str, int], limit: int) -> dict[str, Any]:
        """The runs that are there, newest first, with what is new since `after` and `sizes`."""
        found: dict[str, Any] = self._call("runs", after, sizes, limit)
        return found

    def run_states(self, jobs: Sequence[tuple[str, str, float]]) -> dict[str, dict[str, Any]]:
        """The scheduler's word on whole runs, each given as (run, job id, submitted)."""
        found: dict[str, dict[str, Any]] = self._call("run_states", list(jobs))
        return found

    def queue(self) -> list[JobStatus]:
        """This user's jobs that have not ended."""
        return [JobStatus(*row) for row in self._call("list", "queue")]

    def recent(self) -> list[JobStatus]:
        """This user's jobs that have not ended, and those that the scheduler has not forgotten."""
        return [JobStatus(*row) for row in self._call("list", "recent")]

    def budget(self, account: str) -> list[dict[str, Any]]:
        """The limits of an account with their use; "" is the default account."""
        found: list[dict[str, Any]] = self._call("budget", account)
        return found

    def usage(self, run: str, jobs: Sequence[str], since: float) -> dict[str, Any]:
        """What a run's processes said they used, and what accounting says of these jobs."""
        found: dict[str, Any] = self._call("usage", run, list(jobs), since)
        return found

    def run_sizes(self, runs: Sequence[str]) -> dict[str, int]:
        """The bytes that runs take on the disk."""
        found: dict[str, int] = self._call("run_sizes", list(runs))
        return found

    def check(self) -> dict[str, Any]:
        """What a doctor wants to know about the place where the scheduler is."""
        found: dict[str, Any] = self._call("check")
        return found

    def all_jobs(self) -> list[dict[str, Any]]:
        """Everybody's jobs that have not ended."""
        rows: list[dict[str, Any]] = self._call("list", "all_jobs")
        return rows

    def explain(self, job: JobKey) -> dict[str, Any]:
        """What the scheduler can say about why a job waits; an empty `job`: it does not know it."""
        found: dict[str, Any] = self._call("explain", job.bare, job.run)
        return found

    def accounting(self, jobs: Sequence[str], since: float) -> list[JobStatus]:
        """What accounting keeps of jobs since a time, one row per attempt."""
        return [JobStatus(*row) for row in self._call("accounting", list(jobs), since)]

    def look(self, commands: Sequence[Sequence[str]], timeout: float) -> list[tuple[int, str, str]]:
        """Run several of Slurm's commands that only look: code, output and errors of each.

        The first that nobody answers is the last in the list.
        """
        asked = [list(command) for command in commands]
        return [(code, out, err) for code, out, err in self._call("look", asked, timeout)]

    def store_list(self, sizes: bool = True) -> dict[str, Any]:
        """What is stored once for many runs, and what of it queued runs need."""
        found: dict[str, Any] = self._call("store_list", sizes)
        return found

    def environment_state(self, key: str) -> dict[str, Any]:
        """How an environment fares."""
        found: dict[str, Any] = self._call("environment_state", key)
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of the cluster."""
        rows: list[dict[str, Any]] = self._call("list", "nodes")
        return rows

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions of the cluster."""
        rows: list[dict[str, Any]] = self._call("list", "partitions")
        return rows

    def limits(self) -> dict[str, Any]:
        """The settings of the controller that limit jobs."""
        found: dict[str, Any] = self._call("list", "limits")
        return found


#: The agent's verbs that change nothing.
VERBS = frozenset(
    (
        "hello", "container_runtimes", "family", "status", "find_run", "find_job", "read_run",
        "read", "read_when", "changes", "follow", "runs", "run_states", "list", "budget", "usage",
        "run_sizes", "check", "explain", "accounting", "look", "store_list", "environment_state",
    )
)  # fmt: skip


class OnlyLooks(Looking):
    """A whole backend of which only the looking verbs can be reached.

    `inside`: files outside of a run are not read, whatever its metadata says of its logs.
    """

    def __init__(self, whole: Looking, inside: bool = False) -> None:
        self._whole = whole
        self._inside = inside
        self.kind, self.pushes = whole.kind, whole.pushes
        # Its watcher advances nothing, so it is not shared with those that may.
        self.target = f"{whole.target} (looking)"

    def call(self, verb: str, *args: Any) -> Any:
        """Carry one of the verbs that look."""
        if verb not in VERBS:
            raise errors.UsageError(
                f"{verb!r} changes something, and this command only looks",
                hint="attach to your own run from Python, or: slurm attach RUN",
            )
        return self._whole.call(verb, *args)

    def hello(self) -> dict[str, Any]:
        """The base directory there, and the kind of scheduler."""
        return self._whole.hello()

    def follow(
        self, wanted: Mapping[str, Wanted], attended: bool, told: Callable[[], None]
    ) -> list[tuple[str, dict[str, Any]]]:
        """Say which runs are watched, and take the news of them."""
        return self._whole.follow(wanted, attended, told)

    def read(self, run: str, name: str, offset: int = 0, limit: int = 8 << 20) -> bytes:
        """Bytes of a file of a run; a negative offset counts from the end."""
        data: bytes = self._call("read", run, name, offset, limit, self._inside)
        return data

    def read_when(self, run: str, name: str, offset: int, hold: float) -> bytes:
        """The same from `offset` on as soon as there is something."""
        data: bytes = self._call("read_when", run, name, offset, hold, self._inside)
        return data


def scheduler_of(backend: Looking) -> Any:
    """The scheduler that answers in this process; None where there is an agent in between."""
    whole = backend._whole if isinstance(backend, OnlyLooks) else backend
    agent = getattr(whole, "agent", None)
    return None if agent is None else agent.scheduler
