"""Jobs that the SDK's core submits, watches and ends; Slurm and local jobs differ in little more.

The executor's folder holds what submitit's users know. Beside it, in `.runs`, lies the core's own
base directory: one run for each submission, whose call is `core.submission.run_call`.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from slurm.submitit.core import utils
from slurm.submitit.core.jobs import Job

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.job import Job as CoreJob

R = TypeVar("R", covariant=True)

#: How long after its result a job may take to be over for the core, too.
SETTLES_S = 5.0
#: Programs that ask for many jobs again and again do not read a run more often than this.
LOOK_S = 0.05
#: So many answers without it show that there is no such job: accounting lags by a moment.
ASKED_TWICE = 2
#: The base directory of the core, in the folder that depends on no job.
BASE = ".runs"


class Site:
    """The core's cluster for one folder, and the runs of it that somebody attached to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._attached: dict[str, dict[str, CoreJob[Any]]] = {}
        self._looked: dict[str, float] = {}

    def is_over(self, job: CoreJob[Any]) -> bool:
        """Whether a job is over; one look at a run serves all jobs of it."""
        now = time.monotonic()
        if job.settled or now - self._looked.get(job.run, 0.0) < LOOK_S:
            return job.settled
        self._looked[job.run] = now
        return job.done()

    def attach(self, job_id: str) -> CoreJob[Any] | None:
        """The core's job with this id; None where it was not submitted from this folder."""
        from slurm.errors import JobLost, RunNotFound

        array = job_id.partition("_")[0]
        if array not in self._attached:
            # The whole array at once: its elements are often asked for one after the other.
            try:
                found = self.cluster.attach(array)
            except (RunNotFound, JobLost):
                return None
            jobs = getattr(found, "members", [found])
            self._attached[array] = {job.bare: job for job in jobs}
        return self._attached[array].get(job_id)

    def whole_array(self, job_id: str) -> list[CoreJob[Any]]:
        """All jobs of an array by its bare id."""
        self.attach(job_id)
        return list(self._attached.get(job_id, {}).values())


def _base_of(folder: Path | str) -> Path:
    base = utils.JobPaths.get_first_id_independent_folder(folder) / BASE
    # No script can name a directory with a line break; the folder itself need not be named.
    return Path("~/slurm_jobs").expanduser() if len(str(base).splitlines()) > 1 else base


class RunJob(Job[R]):
    """A job of the SDK's core: it learns of its end from the job itself, not by asking."""

    #: What the core's `Cluster` is given for a folder; see `RunExecutor`.
    _sites: ClassVar[dict[str, Site]] = {}
    _run_job: CoreJob[Any] | None = None
    _looked_for_run = False

    @classmethod
    def _make_cluster(cls, base: str) -> Cluster:
        raise NotImplementedError

    @classmethod
    def site(cls, folder: Path | str) -> Site:
        """Where the runs of a folder are."""
        base = str(_base_of(folder))
        if base not in cls._sites:
            cls._sites[base] = Site(cls._make_cluster(base))
        return cls._sites[base]

    def _register(self) -> None:
        """The core watches its jobs; only those it does not know are asked about."""

    def hold(self, run_job: CoreJob[Any]) -> None:
        """Be the handle of a job that the core has just submitted."""
        self._run_job = run_job
        for sub_job in self._sub_jobs:
            assert isinstance(sub_job, RunJob)
            sub_job.hold(run_job)

    @property
    def job_id(self) -> str:
        """The id; a later part of a long array has none before it is submitted."""
        if not self._job_id and self._run_job is not None and self._run_job.bare:
            self._job_id = self._paths.job_id = self._run_job.bare
        return self._job_id

    @property
    def paths(self) -> utils.JobPaths:
        """Where the job's files lie."""
        if not self.job_id:
            raise utils.UncompletedJobError(
                "this part of a long array is submitted when an earlier one is over; until then "
                "it has no id, and no files"
            )
        return self._paths

    @property
    def run_job(self) -> CoreJob[Any] | None:
        """The core's job; None for one that submitit itself submitted, or another folder's."""
        if self._run_job is None and not self._looked_for_run:
            self._looked_for_run = True
            if _base_of(self._paths._folder).is_dir():
                self._run_job = self.site(self._paths._folder).attach(self.job_id)
        return self._run_job

    # ---- how it goes ----------------------------------------------------------------------------

    def done(self, force_check: bool = False) -> bool:
        """Whether the job is over."""
        if not self.job_id:
            return self._is_over(force_check)
        return super().done(force_check)

    def _is_over(self, force_check: bool) -> bool:
        if self.run_job is None:
            return super()._is_over(force_check)
        return self.site(self._paths._folder).is_over(self.run_job)

    def _refuse_unknown(self) -> None:
        super()._refuse_unknown()
        if self._sub_jobs or not self.job_id or self.run_job is not None:
            return
        asked = self.watcher.times_unknown(self.job_id)
        if asked < ASKED_TWICE or self.paths.submitted_pickle.exists():
            return
        raise utils.UncompletedJobError(
            f"there is no job {self.job_id}: the scheduler was asked {asked} times and has none, "
            f"and {self.paths.submitted_pickle} does not exist; check the id and the folder"
        )

    def _sleep(self, seconds: float) -> None:
        if self.run_job is None:
            super()._sleep(seconds)
        else:
            self.run_job.wait(1.0)

    @property
    def state(self) -> str:
        """The state in Slurm's words."""
        job = self.run_job
        if job is None:
            return super().state
        return str(job.state)

    def get_info(self, mode: str = "force") -> dict[str, str]:
        """What the scheduler says about the job."""
        job = self.run_job
        if job is None:
            return super().get_info(mode)
        return {"JobID": self.job_id, "State": job.state.value, "NodeList": job.node or ""}

    def _known_to_be_over(self) -> bool:
        if self._run_job is not None:
            return self._run_job.settled
        return super()._known_to_be_over()

    def __repr__(self) -> str:
        name, job = type(self).__name__, self._run_job
        state = "" if job is None else f', state="{job.evidence.state or "UNKNOWN"}"'
        return f"{name}<job_id={self.job_id}, task_id={self.task_id}{state}>"

    # ---- what came of it ------------------------------------------------------------------------

    def _patience(self) -> float:
        """A job that died has no result to wait for."""
        job = self.run_job
        died = job is not None and job.settled and not job.evidence.noted
        return 0.0 if died else super()._patience()

    def _original(self) -> BaseException | None:
        """The exception itself, as the core brought it back."""
        job = self.run_job
        if job is None:
            return None
        from slurm.errors import SlurmError

        if not job.wait(min(SETTLES_S, self._results_timeout_s)) and not job.settled:
            return None
        try:
            return job.outcome()[1]
        except SlurmError:
            return None

    def _failure(self, trace: str) -> Exception:
        error = super()._failure(trace)
        error.__cause__ = self._original()
        return error

    def _without_result(self) -> utils.UncompletedJobError:
        error = super()._without_result()
        error.__cause__ = self._original()
        if error.__cause__ is not None:
            error.args = (f"{error.__cause__}\n{error.args[0]}",)
        return error

    def _log(self, name: str) -> str | None:
        text = super()._log(name) if self.job_id else None
        job = self.run_job
        first = not self._sub_jobs and self.task_id == 0
        if text is None and job is not None and first and not self._has_log():
            # It ended before it could open its own log: what the scheduler kept of it.
            text = getattr(job, name)() or None
        return text

    def _has_log(self) -> bool:
        return bool(self.job_id) and self.paths.stdout.exists()

    # ---- requests -------------------------------------------------------------------------------

    def cancel(self, check: bool = True) -> None:
        """End the job."""
        if self.run_job is not None:
            self.run_job.cancel()
            return
        base = _base_of(self._paths._folder)
        members = self.site(self._paths._folder).whole_array(self.job_id) if base.is_dir() else []
        if members:
            members[0].cluster.cancel(members)
        else:
            super().cancel(check)

    def _interrupt(self, timeout: bool = False) -> None:
        """Let the job see what it would see of a time-out, else of a preemption; for tests."""
        if self.run_job is None:
            raise RuntimeError(f"job {self.job_id} was not submitted from {self._paths._folder}")
        from slurm.submitit.core.job_environment import JobEnvironment

        signals = [] if timeout else [signal.SIGTERM]
        for number in (*signals, JobEnvironment._usr_sig()):
            self.run_job.signal(int(number))

    def __getstate__(self) -> dict[str, Any]:
        own = ("_run_job", "_looked_for_run")
        return {name: value for name, value in self.__dict__.items() if name not in own}
