"""JobEnvironment: what a function can ask about its own job, and how that job is requeued."""

from __future__ import annotations

import os
import sys

from slurm import rundir
from slurm.submitit.core import logger
from slurm.submitit.core.paths import link
from slurm.submitit.core.signals import SignalHandler
from slurm.submitit.core.utils import DelayedSubmission, JobPaths

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar

    from slurm.api.backend import JobKey

__all__ = ["JobEnvironment", "SignalHandler"]


class JobEnvironment:
    """The job of this process: `JobEnvironment()` is that of the executor that started it.

    A plug-in subclasses it: `_env` names the variables, `_requeue` puts the job back into the
    queue, and the class's name, less `JobEnvironment`, is the executor's.
    """

    #: The variable of each attribute.
    _env: ClassVar[Mapping[str, str]] = {}
    #: How much earlier than asked for the scheduler may send the warning signal, in seconds.
    _slack_s: ClassVar[float] = 60.0
    USR_SIG: ClassVar[str] = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2").removeprefix("SIG")

    def __new__(cls, *args: Any) -> JobEnvironment:
        """The environment that is active, unless a subclass is asked for by name."""
        if cls is not JobEnvironment:
            return super().__new__(cls, *args)
        own = os.environ.get("_TEST_CLUSTER_") or os.environ.get("SUBMITIT_EXECUTOR")
        if own == "slurm":  # plug-ins need not be looked for, nor loaded
            from slurm.submitit.slurm.environment import SlurmJobEnvironment

            return SlurmJobEnvironment()
        if own in ("local", "debug"):
            from slurm.submitit.local import environment

            known = (environment.LocalJobEnvironment, environment.DebugJobEnvironment)
            return known[own == "debug"]()
        from slurm.submitit.core.plugins import get_job_environment

        return get_job_environment()

    def __init__(self) -> None:
        self.cluster = self.name()

    @classmethod
    def name(cls) -> str:
        """The name of the executor this belongs to."""
        return cls.__name__.removesuffix("JobEnvironment").lower()

    @classmethod
    def _usr_sig(cls) -> Any:
        """The signal that warns of a time-out or a preemption."""
        import signal

        return getattr(signal, f"SIG{cls.USR_SIG}")

    def activated(self) -> bool:
        """Whether this process runs in such a job."""
        given = os.environ.get("_TEST_CLUSTER_") or os.environ.get("SUBMITIT_EXECUTOR", "")
        return given == self.name()

    def _text(self, name: str, default: str | None = None) -> str | None:
        return os.environ.get(self._env.get(name, ""), default)

    def _number(self, name: str, default: int) -> int:
        text = self._text(name, "") or ""
        return int(text) if text.isdigit() else default

    # ---- who and where --------------------------------------------------------------------------

    @property
    def hostname(self) -> str:
        """The name of this host."""
        return os.uname().nodename

    @property
    def hostnames(self) -> list[str]:
        """The names of the job's hosts."""
        return [self.hostname]

    @property
    def job_id(self) -> str:
        """The id as the client sees it: `123`, or `123_4` in an array."""
        if self.array_job_id:
            return f"{self.array_job_id}_{self.array_task_id}"
        return self.raw_job_id

    @property
    def raw_job_id(self) -> str:
        """The scheduler's own id of this job."""
        return os.environ[self._env["job_id"]]

    @property
    def array_job_id(self) -> str | None:
        """The id of the array this job is an element of."""
        return self._text("array_job_id")

    @property
    def array_task_id(self) -> str | None:
        """The number of this element in its array."""
        return self._text("array_task_id")

    @property
    def num_tasks(self) -> int:
        """How many tasks the job has."""
        return self._number("num_tasks", 1)

    @property
    def num_nodes(self) -> int:
        """How many nodes the job has."""
        return self._number("num_nodes", 1)

    @property
    def node(self) -> int:
        """The number of this node in the job."""
        return self._number("node", 0)

    @property
    def global_rank(self) -> int:
        """The number of this task in the job."""
        return self._number("global_rank", 0)

    @property
    def local_rank(self) -> int:
        """The number of this task on its node."""
        return self._number("local_rank", 0)

    @property
    def paths(self) -> JobPaths:
        """The files of this task."""
        return JobPaths(os.environ["SUBMITIT_FOLDER"], self.job_id, self.global_rank)

    def __repr__(self) -> str:
        names = ("hostname", "hostnames", "job_id", "local_rank", "global_rank", "node")
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({values})"

    # ---- signals and requeue --------------------------------------------------------------------

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> SignalHandler:
        """Begin to listen for the signals that come before a job is ended."""
        handler = SignalHandler(self, paths, submission)
        handler.listen()
        return handler

    def time_left(self) -> float | None:
        """Seconds until the time limit, None where nobody can tell."""
        if "SLURM_JOB_ID" not in os.environ:
            return None
        from slurm.context import JobContext

        return JobContext.from_environment().time_left()

    def scheduler_state(self) -> str | None:
        """What the scheduler calls this job now, None where it does not tell."""
        key = self._key()
        if key is None:
            return None
        from slurm.api.connect import connect
        from slurm.errors import SlurmError

        try:
            found = connect("local", os.environ["SLURM_SDK_BASE"]).status([key]).get(key.bare)
        except SlurmError as error:
            logger.warning("the scheduler cannot be asked about this job: %s", error)
            return None
        return None if found is None else found.state

    def _requeue(self, countdown: int) -> None:
        """Put this job back into the queue; `countdown` is how many time-outs it may still have."""
        key = self._key()
        if key is None:
            import subprocess

            subprocess.check_call(["scontrol", "requeue", self.job_id], timeout=60)
        else:
            from slurm.api.connect import connect

            connect("local", os.environ["SLURM_SDK_BASE"]).request("requeue", [key])
        logger.get_logger().info(
            "job %s is requeued (%d remaining timeouts)", self.job_id, countdown
        )

    def _key(self) -> JobKey | None:
        """This job as the SDK's core knows it, None for a job that it did not submit."""
        base, run = os.environ.get("SLURM_SDK_BASE"), os.environ.get("SLURM_SDK_NAME")
        if not base or not run:
            return None
        from slurm.api.backend import JobKey

        return JobKey(self.job_id, run)


def redirect_logs(env: JobEnvironment, paths: JobPaths) -> None:
    """Give this task the log files that its paths name.

    The scheduler could not open them where the folder depends on the job id, or for ranks.
    """
    os.makedirs(paths.name_of("folder"), exist_ok=True)
    merged = bool(os.environ.get("SUBMITIT_STDERR_TO_STDOUT"))
    logs = os.path.join(os.environ["SLURM_SDK_RUN"], rundir.LOGS, env.job_id)
    streams = [(1, "out", "stdout"), (2, "err", "stdout" if merged else "stderr")]
    for number, suffix, what in streams:
        opened, path = f"{logs}.{suffix}", paths.name_of(what)
        if env.global_rank == 0 and os.path.exists(opened) and not os.path.exists(path):
            link(opened, path)
        elif not _is_open_at(number, path):
            (sys.stdout, sys.stderr)[number - 1].flush()
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(target, number)
            os.close(target)


def _is_open_at(number: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except OSError:
        return False
