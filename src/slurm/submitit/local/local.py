"""LocalExecutor and LocalJob: calls as jobs of this machine, on the SDK's embedded scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slurm.submitit.core.records import RecordJob
from slurm.submitit.core.run_executor import RunExecutor
from slurm.submitit.core.runs import RunJob
from slurm.submitit.local.environment import LocalJobEnvironment

if TYPE_CHECKING:
    from slurm.cluster import Cluster

__all__ = ["LOCAL_REQUEUE_RETURN_CODE", "LocalExecutor", "LocalJob", "LocalJobEnvironment"]

R = TypeVar("R", covariant=True)

#: What a worker of a plug-in may exit with to be started again; ours are requeued.
LOCAL_REQUEUE_RETURN_CODE = 144


class LocalJob(RunJob[R]):
    """A job of this machine."""

    _sites = {}
    _cancelled = False

    @classmethod
    def _make_cluster(cls, base: str) -> Cluster:
        from slurm.cluster import Cluster

        return Cluster("embedded", job_base_dir=base)

    @property
    def state(self) -> str:
        """PENDING, RUNNING, FINISHED or INTERRUPTED."""
        if all(task.paths.result_pickle.exists() for task in self._each_task()):
            return "FINISHED"
        job = self.run_job
        if job is None:
            return "UNKNOWN"
        phase = job.state.phase
        if phase == "finished" or self._cancelled:
            return "INTERRUPTED"
        waits = phase == "pending" and job.evidence.status is not None
        return "PENDING" if waits else "RUNNING"

    def _each_task(self) -> list[RunJob[R]]:
        return [self.task(number) for number in range(self.num_tasks)]  # type: ignore[misc]

    def _is_over(self, force_check: bool) -> bool:
        return self.run_job is None or super()._is_over(force_check)

    def get_info(self, mode: str = "force") -> dict[str, str]:
        """The job's state."""
        return {"jobState": self.state}

    def cancel(self, check: bool = True) -> None:
        """End the job."""
        if self.run_job is not None:
            self.run_job.cancel()
            self._cancelled = True

    def _known_to_be_over(self) -> bool:
        return self._run_job is None or self._run_job.settled


class PackedLocalJob(RecordJob[R], LocalJob[R]):
    """One of many calls that share a job of this machine."""

    state = RunJob.state


class LocalExecutor(RunExecutor):
    """Runs calls on this machine, as many at the same time as it has CPUs; the rest wait."""

    job_class = LocalJob
    record_job_class = PackedLocalJob
    _default_delay_s = 30
    _default_parallelism = 1 << 30

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        """What can be set besides the shared parameters."""
        return {"setup", "teardown", "visible_gpus", "signal_delay_s", "array_parallelism", "pack"}

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Take parameters; those that mean nothing on one machine are kept and not used."""
        if int(kwargs.get("nodes") or 1) > 1:
            raise ValueError("LocalExecutor has one node only: this machine")
        super()._internal_update_parameters(**kwargs)

    def _num_tasks(self) -> int:
        return int(self.parameters.get("tasks_per_node") or 1)

    def _options(self, count: int, listens: bool) -> dict[str, Any]:
        given = self.parameters
        visible = given.get("visible_gpus") or range(int(given.get("gpus_per_node") or 0))
        options = super()._options(count, listens)
        # A machine that is smaller than what is asked for runs it all the same.
        options["overcommit"] = True
        options["time"] = f"{max(1, round(60 * self._timeout_min()))}s"
        if self._num_tasks() > 1:
            # Every task has a result of its own: none is ended because another failed.
            options["srun_args"] = ["--kill-on-bad-exit=0"]
        options["job_name"] = given.get("name") or "submitit"
        options["env"]["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, visible))
        for name, option in (("tasks_per_node", "ntasks_per_node"), ("cpus_per_task",) * 2):
            if given.get(name):
                options[option] = given[name]
        return options

    def __repr__(self) -> str:
        return f"LocalExecutor({Path(self.folder)})"
