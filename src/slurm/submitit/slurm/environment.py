"""SlurmJobEnvironment: what Slurm tells a job of itself."""

from __future__ import annotations

from slurm.submitit.core.job_environment import JobEnvironment


class SlurmParseException(Exception):
    """A text of Slurm that has not the form it should have."""


class SlurmJobEnvironment(JobEnvironment):
    """The job of this process, from the variables that Slurm sets."""

    _env = {
        "job_id": "SLURM_JOB_ID",
        "num_tasks": "SLURM_NTASKS",
        "num_nodes": "SLURM_JOB_NUM_NODES",
        "node": "SLURM_NODEID",
        "nodes": "SLURM_JOB_NODELIST",
        "global_rank": "SLURM_PROCID",
        "local_rank": "SLURM_LOCALID",
        "array_job_id": "SLURM_ARRAY_JOB_ID",
        "array_task_id": "SLURM_ARRAY_TASK_ID",
    }

    @property
    def hostnames(self) -> list[str]:
        """The names of the job's nodes, in Slurm's order."""
        listed = self._text("nodes")
        if not listed:
            return [self.hostname]
        from slurm.model.hostlist import expand_hostlist

        try:
            return expand_hostlist(listed)
        except ValueError as error:
            raise SlurmParseException(f"{listed!r} is no list of nodes: {error}") from error

    def _requeue(self, countdown: int) -> None:
        """Put this job back into the queue with `scontrol requeue`."""
        super()._requeue(countdown)
