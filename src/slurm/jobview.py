"""JobView: what a person can ask about a job: its state, times, logs, and requests to end it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from slurm import errors, rundir
from slurm.donecalls import CalledFuture
from slurm.evidence import Evidence
from slurm.logs import Log
from slurm.model.states import JobState
from slurm.outcome import Verdict
from slurm.retry import Again, Attempt, attempt

if TYPE_CHECKING:
    from slurm.api.backend import JobKey
    from slurm.api.retry_rules import Failure
    from slurm.cluster import Cluster
    from slurm.model.parts import Part
    from slurm.returned import Returned
    from slurm.watched import Notes

T = TypeVar("T")


@dataclass(frozen=True)
class Timings:
    """When a job was submitted, began and ended, in seconds since the epoch; None: not yet."""

    submitted: float | None
    started: float | None
    ended: float | None

    @property
    def elapsed(self) -> float | None:
        """Seconds between begin and end, or until now while it runs."""
        if self.started is None:
            return None
        return (self.ended or time.time()) - self.started


@dataclass(frozen=True)
class JobSnapshot:
    """What is known about a job at one moment, with the last lines of its logs."""

    job_id: str
    name: str
    run: str
    state: str
    state_code: str
    reason: str
    node: str | None
    exit_code: int | None
    timings: Timings
    stdout_tail: str
    stderr_tail: str
    is_terminal: bool
    is_successful: bool


class JobView(CalledFuture[T]):
    """The part of `Job` that tells and asks; how a job becomes settled is in `slurm.job`."""

    cluster: Cluster
    key: JobKey | None
    name: str
    index: int
    part: Part | None
    options: dict[str, Any]
    submitted: float
    evidence: Evidence
    returned: Returned | None
    again: Again | None
    notes: Notes
    _verdict: Verdict | None
    _failure: Failure | None

    def _look(self) -> None:
        """Read what is new about the job."""
        raise NotImplementedError

    def sent(self) -> None:
        """See to it that the call is submitted."""
        raise NotImplementedError

    @property
    def run(self) -> str:
        """The name of the run, relative to the base directory."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        """The job's id: `123`, or `123_4` in an array; "" while a part of a long map waits."""
        self.sent()
        return "" if self.key is None else self.key.job_id

    @property
    def bare(self) -> str:
        """The id without the name of a cluster."""
        self.sent()
        return "" if self.key is None else self.key.bare

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, without looking for it."""
        return super().done()

    @property
    def succeeded(self) -> bool:
        """Whether the job is known to have a value."""
        return self._verdict is Verdict.VALUE

    @property
    def state(self) -> JobState:
        """The job's state, in Slurm's words: `job.state == "RUNNING"`, `job.state.code == "R"`."""
        if self._verdict is None:
            self._look()
        return self.known_state

    @property
    def known_state(self) -> JobState:
        """The same as far as this process knows, without looking."""
        verdict = self._verdict
        if verdict is not None:
            if self.returned is not None:
                return JobState.COMPLETED if verdict is Verdict.VALUE else JobState.FAILED
            by_verdict = {
                Verdict.VALUE: JobState.COMPLETED,
                Verdict.OUT_OF_MEMORY: JobState.OUT_OF_MEMORY,
            }
            told = self.evidence.state
            if verdict is Verdict.FAILED and told is not None:
                return told
            return by_verdict.get(verdict, JobState.FAILED)
        if self.returned is not None:
            return JobState.RUNNING  # its own job is over; what it returned is not
        seen = self.evidence
        told = seen.state
        if told is not None and told.phase == "finished":
            return told
        if told is None or told.phase == "pending":
            requeued = seen.status is not None and seen.status.restarts > seen.attempt
            if seen.attempt in seen.exits and not requeued:
                return JobState.COMPLETING  # its script is over; what came of it is read next
            if seen.attempt in seen.begins and not requeued:
                return JobState.RUNNING
        return told or JobState.PENDING

    @property
    def reason(self) -> str:
        """Why the job waits or ended, in the scheduler's words; or what hinders the watching."""
        if self.returned is not None and not self.settled:
            return "waits for the jobs that it returned"
        if self.notes.silent_since is not None and not self.settled:
            return f"silent since {time.ctime(self.notes.silent_since)}"
        if self.evidence.status is not None and self.evidence.status.reason:
            return self.evidence.status.reason
        return "" if self.settled else self.cluster._watcher.trouble or ""

    @property
    def node(self) -> str | None:
        """The node, or list of nodes, that the job runs or ran on."""
        status = self.evidence.status
        if status is not None and status.nodes:
            return status.nodes
        begin = self.evidence.begins.get(self.evidence.attempt)
        return begin.fields.get("node") if begin is not None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the job's script, once it has ended."""
        event = self.evidence.last_exit()
        if event is not None:
            return event.number("code")
        return self.evidence.status.exit_code if self.evidence.status is not None else None

    @property
    def attempt(self) -> int:
        """How often the job was requeued so far."""
        return self.evidence.attempt

    @property
    def history(self) -> tuple[Attempt, ...]:
        """Every attempt of the call, the present one last: why it failed, what it had asked for."""
        self._look()
        failed = self._verdict not in (None, Verdict.VALUE)
        why = self._failure if failed and self._failure is not None else None
        last = attempt(self, why.kind if why else None, why.text if why else "")
        return (*(self.again.attempts if self.again is not None else ()), last)

    @property
    def timings(self) -> Timings:
        """When it was submitted, began and ended."""
        begin = self.evidence.begins.get(self.evidence.attempt)
        end = self.evidence.last_exit()
        status = self.evidence.status
        return Timings(
            self.submitted,
            begin.number("time") if begin is not None else status.start if status else None,
            end.number("time") if end is not None else status.end if status else None,
        )

    @property
    def path(self) -> str:
        """The run directory on the cluster."""
        return f"{self.cluster.base}/{self.run}"

    @property
    def script(self) -> str:
        """The sbatch script that was submitted."""
        return self.cluster.backend.read(self.run, rundir.SCRIPT).decode()

    def get_status(self) -> dict[str, Any]:
        """The job's state as a dictionary, with Slurm's names for the keys."""
        return {
            "JobId": self.id,
            "JobName": self.name,
            "JobState": self.state.value,
            "Reason": self.reason,
            "NodeList": self.node or "",
            "ExitCode": self._exit_code_and_signal(),
            "WorkDir": self.path,
        }

    def _exit_code_and_signal(self) -> str:
        """`1:0` as Slurm writes it, `0:9` for a signal; "" until the job has ended."""
        status = self.evidence.status
        if status is not None and status.exit_code is not None:
            return f"{status.exit_code}:{status.signal or 0}"
        code = self.exit_code
        if code is None:
            return ""
        # A shell says 128 + n of a program that signal n ended.
        return f"0:{code - 128}" if 128 < code < 193 else f"{code}:0"

    def snapshot(self, tail_lines: int = 20) -> JobSnapshot:
        """All that is known now, without waiting."""
        state = self.state
        return JobSnapshot(
            job_id=self.id,
            name=self.name,
            run=self.run,
            state=state.value,
            state_code=state.code,
            reason=self.reason,
            node=self.node,
            exit_code=self.exit_code,
            timings=self.timings,
            stdout_tail="\n".join(self._log("out").last_words(tail_lines)),
            stderr_tail="\n".join(self._log("err").last_words(tail_lines)),
            is_terminal=self.settled,
            is_successful=self._verdict is Verdict.VALUE,
        )

    # ---- logs -----------------------------------------------------------------------------------

    def stdout(self) -> str:
        """All that the job has printed so far; "" before it starts."""
        return self._log("out").text()

    def stderr(self) -> str:
        """All that the job has printed to standard error so far."""
        return self._log("err").text()

    def tail(
        self,
        lines: int = 10,
        *,
        follow: bool = False,
        stderr: bool = False,
        rank: int | None = None,
        labels: bool = False,
        output: TextIO | None = None,
    ) -> None:
        """Print the last lines of the log; with `follow` each new one until the job is over.

        `output` is written to instead of standard output. The other arguments are those of
        `log_lines()`, which gives the lines themselves.
        """
        out = sys.stdout if output is None else output
        for line in self.log_lines(lines, follow=follow, stderr=stderr, rank=rank, labels=labels):
            out.write(f"{line}\n")
            if follow:
                out.flush()

    def log_lines(
        self,
        lines: int = 10,
        *,
        follow: bool = False,
        stderr: bool = False,
        rank: int | None = None,
        labels: bool = False,
    ) -> Iterator[str]:
        """The last lines of the log; with `follow` each new one until the job is over.

        Of a job with ranks: those of one `rank`, or with `labels` of all, the rank before each.
        """
        log = self._log("err" if stderr else "out", rank=rank, labels=labels)
        return log.follow(lines, self.done) if follow else iter(log.last_lines(lines))

    def log_name(self, stream: str) -> str:
        """The path of a log (`out` or `err`), relative to the run or absolute where you set it."""
        given = self.options.get("output" if stream == "out" else "error")
        own = "%A_%a" if self.part is not None else "%j"
        pattern = str(given) if given else f"{rundir.LOGS}/{own}.{stream}"
        array, _, number = self.bare.partition("_")
        marks = {"%j": self.bare, "%A": array, "%a": number, "%x": self.name, "%%": "%"}
        return re.sub("%[jAax%]", lambda found: marks[found.group()], pattern)

    def _log(self, stream: str, rank: int | None = None, labels: bool = False) -> Log:
        labelled = self.evidence.ranks > 1 and self.options.get("launch") != "torchrun"
        if rank is not None and not labelled:
            raise errors.UsageError(
                f"{self.name} (job {self.id}) has no log of rank {rank}",
                hint="only jobs with ntasks > 1 that srun starts tell their ranks' lines apart",
            )
        name = self.log_name(stream)
        return Log(
            self.cluster.backend, self.run, name, labelled=labelled, labels=labels, rank=rank
        )

    # ---- requests -------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        """Send a signal to the job's function."""
        self._request("signal", number)

    def hold(self) -> None:
        """Keep the job from starting."""
        self._request("hold")

    def release(self) -> None:
        """Let a held job start."""
        self._request("release")

    def requeue(self) -> None:
        """Put the job back into the queue; it runs again as its next attempt."""
        self.evidence.requeue = True
        self._request("requeue")

    def _request(self, verb: str, *args: Any) -> None:
        if self.key is None or not self.cluster.backend.request(verb, [self.key], *args):
            raise errors.CommandRefused(
                f"{self.name} (job {self.id}) is not in the queue, so it cannot {verb}",
                hint="job.state says what became of it",
            )
