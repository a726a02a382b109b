"""What a job of this machine, or of this process, knows of itself."""

from __future__ import annotations

from slurm.submitit.core.job_environment import JobEnvironment
from slurm.submitit.slurm.environment import SlurmJobEnvironment


class LocalJobEnvironment(SlurmJobEnvironment):
    """The job of this process; the embedded scheduler sets the variables that Slurm sets."""

    _slack_s = 2.0

    def _requeue(self, countdown: int) -> None:
        """Put this job back into the queue of the embedded scheduler."""
        super()._requeue(countdown)


class DebugJobEnvironment(JobEnvironment):
    """The job that runs in the process that submitted it."""

    _env = {"job_id": "SUBMITIT_DEBUG_JOB_ID"}

    def _requeue(self, countdown: int) -> None:
        """There is no queue."""
