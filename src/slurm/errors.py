"""Every error of this package: one root, a stable code on each, and a hint that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.cancelled import JobCancelled as JobCancelled


class SlurmError(Exception):
    """The root of all errors of this package.

    `str(error)` is written for a person: the code, what happened, the evidence and the fix.
    The parts are also attributes, so that a program need not read the text.
    """

    code = "SLURM-E000"

    def __init__(
        self, message: str, *, hint: str | None = None, evidence: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.evidence = tuple(evidence)

    def __str__(self) -> str:
        lines = [f"{self.code} {type(self).__name__}: {self.message}"]
        lines += [f"  | {line}" for line in self.evidence]
        if self.hint:
            lines += [
                f"  fix: {line}" if i == 0 else f"       {line}"
                for i, line in enumerate(self.hint.splitlines())
            ]
        # Names and words of others are among them; this text goes to terminals.
        text = "\n".join(lines)
        try:
            from slurm.model.printable import printable
        except ImportError:  # the interpreter ends
            return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
        return printable(text)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(cls: type[SlurmError], state: dict[str, object]) -> SlurmError:
    """Make a pickled error again, without running the constructor of its class."""
    error = cls.__new__(cls, state.get("message"))
    error.__dict__.update(state)
    return error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, for "did you mean"."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1, cutoff=0.55)
    return found[0] if found else None


# ---- E1xx: refused before anything is submitted -------------------------------------------------


class UsageError(SlurmError):
    """The call itself is wrong; nothing was submitted."""

    code = "SLURM-E100"


class OptionError(UsageError):
    """An option has a wrong name or a wrong value."""

    code = "SLURM-E101"


class NoActiveCluster(UsageError, RuntimeError):
    """A task was called where no cluster is active, or more than one could be meant."""

    code = "SLURM-E102"


class SubmittedOnImport(UsageError):
    """A module submits jobs while it is imported to find a task in it."""

    code = "SLURM-E103"


class ProgramEnding(UsageError, RuntimeError):
    """Something was asked for that needs threads, while the interpreter was ending already."""

    code = "SLURM-E104"


class ConfigError(UsageError):
    """A Slurmfile or a topology file cannot be used as it is written."""

    code = "SLURM-E110"


class NoScheduler(UsageError):
    """This machine's Slurm cannot be used, and nothing else was asked for."""

    code = "SLURM-E111"


class UnpicklableArgument(UsageError):
    """An argument of a call cannot be sent to the job."""

    code = "SLURM-E120"


class UnpicklableFunction(UsageError):
    """The function cannot be sent to the job, by reference or by value."""

    code = "SLURM-E121"


class WrongArguments(UsageError, TypeError):
    """A call does not fit the signature of its function."""

    code = "SLURM-E122"


class PythonMismatch(UsageError):
    """The job's Python cannot run what this Python sends."""

    code = "SLURM-E130"


class PackagingError(UsageError):
    """The code cannot be brought to the job in the way that was asked for."""

    code = "SLURM-E140"


class NotDelivered(PackagingError):
    """The cluster does not have (any more) what the environment of a job is made of."""

    code = "SLURM-E141"


class BuildFailed(PackagingError):
    """What has to be packaged could not be built; the builder's last lines are the evidence."""

    code = "SLURM-E142"


class ImageUnusable(PackagingError):
    """A container image in which no function can run: no Python, or made for another machine."""

    code = "SLURM-E143"


# ---- E2xx: the scheduler or the run directory said no -------------------------------------------


class SubmitError(SlurmError):
    """The job was not accepted."""

    code = "SLURM-E200"


class SubmitRefused(SubmitError):
    """The scheduler refused the job; its own words are the evidence."""

    code = "SLURM-E201"
    agent_kind = "refused"


class SubmitLimit(SubmitRefused):
    """More jobs would be queued than the user may have; later the scheduler may say yes."""

    code = "SLURM-E204"
    agent_kind = "limit"


class NoSharedFiles(SubmitRefused):
    """The run was meant for a host that does not have the shared directory, where its files lie."""

    code = "SLURM-E205"
    agent_kind = "unshared"


class SchedulerUnreachable(SubmitError):
    """The scheduler did not answer."""

    code = "SLURM-E202"
    agent_kind = "unreachable"


class RunDirError(SubmitError):
    """The run directory cannot be made or written."""

    code = "SLURM-E203"


class RunNotFound(SlurmError):
    """No run of this name, path or job id is known here."""

    code = "SLURM-E210"


class AmbiguousRun(RunNotFound):
    """More than one run could be meant; the evidence names them."""

    code = "SLURM-E212"


class CommandRefused(SlurmError):
    """A request about a job (cancel, hold, signal, ...) was not carried out."""

    code = "SLURM-E211"


# ---- E3xx: how a job can end badly --------------------------------------------------------------


class JobError(SlurmError):
    """The job ended without a value."""

    code = "SLURM-E300"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        evidence: Iterable[str] = (),
        job_id: str | None = None,
        state: str | None = None,
        node: str | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, evidence=evidence)
        self.job_id = job_id
        self.state = state
        self.node = node
        self.exit_code = exit_code
        self.signal = signal


class JobFailed(JobError):
    """The job's process ended badly and recorded no exception."""

    code = "SLURM-E301"


class TimeLimitReached(JobError):
    """The job ran into its time limit."""

    code = "SLURM-E303"


class JobOutOfMemory(JobError):
    """The kernel killed a process of the job because the job's memory was used up."""

    code = "SLURM-E304"


class NodeFailed(JobError):
    """The job's node was lost, or could not be made ready."""

    code = "SLURM-E305"


class JobPreempted(JobError):
    """The job was preempted and not requeued."""

    code = "SLURM-E306"


class UpstreamFailed(JobError):
    """A job that this one depends on failed, so this one can never run."""

    code = "SLURM-E307"


class JobLost(JobError):
    """The scheduler does not know the job, and it left no result."""

    code = "SLURM-E308"


class ResultLost(JobError):
    """The scheduler says the job completed, but no result is in the run directory."""

    code = "SLURM-E309"


class ResultNotWritten(JobError):
    """The function ended, but its result could not be written (disk full, quota)."""

    code = "SLURM-E310"


class RunDirNotVisible(JobError):
    """The node cannot see the run directory."""

    code = "SLURM-E311"


class FunctionExited(JobError):
    """The function ended the interpreter (`sys.exit`, `os._exit`) instead of returning."""

    code = "SLURM-E312"


class EnvironmentFailed(JobError):
    """The environment of the job could not be made on the cluster; its builder says why."""

    code = "SLURM-E314"


class WorkerDied(JobError):
    """An item of a packed map ended the process that worked on it, each time it was tried."""

    code = "SLURM-E313"


class ContainerFailed(JobError):
    """The container of a job did not start Python: no image, no Python in it, or no rights."""

    code = "SLURM-E315"


# ---- E4xx: the job is fine, its value does not come through -------------------------------------


class ResultError(SlurmError):
    """The outcome exists, but cannot be given as a Python object."""

    code = "SLURM-E400"


class UnpicklableResult(ResultError):
    """The function returned something that cannot be pickled; its text is in the evidence."""

    code = "SLURM-E401"


class RemoteError(ResultError):
    """The function raised an exception that cannot be sent as an object; its text is complete."""

    code = "SLURM-E402"


class UntrustedRun(ResultError):
    """A run directory or a file in it is not ours alone, so nothing in it is unpickled."""

    code = "SLURM-E403"


class ResultUnreadable(ResultError):
    """The result was written, but this process cannot read it (module missing, file damaged)."""

    code = "SLURM-E404"


class RemoteTraceback(Exception):
    """Carries the traceback text of the job; it is the `__cause__` of what `result()` raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"in the job:\n\n{self.text}"


# ---- E5xx: clusters that we bring up ------------------------------------------------------------


class StackError(SlurmError):
    """A cluster of ours could not be brought up, changed or taken down."""

    code = "SLURM-E500"


class BackupDamaged(StackError):
    """A backup of a cluster is not as it was written, so nothing is made from it."""

    code = "SLURM-E501"


# ---- E6xx: the way to the cluster ---------------------------------------------------------------


class ConnectError(SlurmError):
    """The cluster cannot be reached; jobs that were submitted are not affected."""

    code = "SLURM-E600"


class HostNotFound(ConnectError):
    """The name of the host is not known to the network."""

    code = "SLURM-E601"


class HostUnreachable(ConnectError):
    """The host does not answer, or refuses connections at this port."""

    code = "SLURM-E602"


class HostKeyChanged(ConnectError):
    """The host shows another key than the one that is known."""

    code = "SLURM-E603"


class HostKeyUnknown(ConnectError):
    """The host's key is not known yet, and nobody is there to be asked."""

    code = "SLURM-E604"


class AuthenticationFailed(ConnectError):
    """The host accepted no key of the user."""

    code = "SLURM-E605"


class LoginNeeded(AuthenticationFailed):
    """The host wants a password or a second factor: a person has to log in once."""

    code = "SLURM-E606"


class RemotePythonMissing(ConnectError):
    """No Python that could run the agent was found on the host."""

    code = "SLURM-E607"


class ProtocolError(ConnectError):
    """What came over the connection is not what the agent would send."""

    code = "SLURM-E608"


class ConnectionLost(ConnectError):
    """The connection broke and did not come back in time; jobs are not affected."""

    code = "SLURM-E609"


class TransferFailed(SlurmError):
    """A file could not be sent or fetched."""

    code = "SLURM-E610"


# ---- E7xx: slurmrestd --------------------------------------------------------------------------


class RestError(SlurmError):
    """slurmrestd was asked and no good answer came.

    `number` is Slurm's own error number (0 where there is none) and `status` that of HTTP.
    Decisions are made by the number, never by the words. `perhaps_done` tells of a request that may
    have had its effect although no answer came.
    """

    code = "SLURM-E700"

    def __init__(
        self,
        message: str,
        *,
        number: int = 0,
        status: int = 0,
        perhaps_done: bool = False,
        hint: str | None = None,
        evidence: Iterable[str] = (),
    ) -> None:
        super().__init__(message, hint=hint, evidence=evidence)
        self.number = number
        self.status = status
        self.perhaps_done = perhaps_done


class RestUnreachable(RestError):
    """slurmrestd, or the controller behind it, cannot be reached at the moment."""

    code = "SLURM-E701"


class RestTokenRefused(RestError):
    """slurmrestd does not take the token: expired, of another cluster, or of an unknown user."""

    code = "SLURM-E702"


class RestVersionNotServed(RestError):
    """slurmrestd serves none of the API versions that this package speaks."""

    code = "SLURM-E703"


class RestRefused(RestError):
    """Slurm said no; `number` says why."""

    code = "SLURM-E704"


def join_names(names: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`, for messages."""
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " or " + names[-1]


def __getattr__(name: str) -> object:
    """`JobCancelled` is loaded when it is used: its base class costs every job ten milliseconds."""
    if name == "JobCancelled":
        from slurm.cancelled import JobCancelled

        return JobCancelled
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
