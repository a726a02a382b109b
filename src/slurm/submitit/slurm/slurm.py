"""SlurmExecutor and SlurmJob: calls as jobs of this machine's Slurm."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from slurm.submitit.core import utils
from slurm.submitit.core.executors import EquivalenceDict
from slurm.submitit.core.records import RecordJob
from slurm.submitit.core.run_executor import RunExecutor
from slurm.submitit.core.runs import RunJob
from slurm.submitit.slurm import parameters as known
from slurm.submitit.slurm.environment import SlurmJobEnvironment, SlurmParseException
from slurm.submitit.slurm.watching import SlurmInfoWatcher, read_job_id

if TYPE_CHECKING:
    from slurm.cluster import Cluster

__all__ = [
    "PackedSlurmJob",
    "SlurmExecutor",
    "SlurmInfoWatcher",
    "SlurmJob",
    "SlurmJobEnvironment",
    "SlurmParseException",
    "read_job_id",
]

R = TypeVar("R", covariant=True)

_SRUN = ("--unbuffered", "--kill-on-bad-exit=0")


class SlurmJob(RunJob[R]):
    """A job of Slurm."""

    watcher = SlurmInfoWatcher(delay_s=600)
    _sites = {}

    @classmethod
    def _make_cluster(cls, base: str) -> Cluster:
        from slurm.api.connect import LocalBackend
        from slurm.cluster import Cluster
        from slurm.submitit.slurm.sbatch import Sbatch

        return Cluster.from_backend(LocalBackend(Sbatch(), base), job_base_dir=base)

    @property
    def state(self) -> str:
        """The state in Slurm's words; where nothing is known yet, Slurm is asked, seldom."""
        job = self.run_job
        if job is None or job.settled:
            return super().state
        if self.num_tasks == 1 and self.job_id and self.paths.result_pickle.exists():
            job.wait(1.0)  # it has its result, and is about to be over
        state = job.state
        if job.evidence.status is None and not job.evidence.begins:
            return self.watcher.get_state(self.job_id, mode="new")
        return str(state)

    def _interrupt(self, timeout: bool = False) -> None:
        """Let the job see what it would see of a time-out, else of a preemption; for tests."""
        # Slurm tells steps by itself; to a function without one the batch shell passes it on.
        job = self._run_job
        stepped = job is not None and (self.num_tasks > 1 or job.options.get("srun_args"))
        where = [] if stepped else ["--batch"]
        # A preemption begins with TERM.
        for name in ([] if timeout else ["TERM"]) + [SlurmJobEnvironment.USR_SIG]:
            command = ["scancel", *where, f"--signal={name}", self.job_id]
            subprocess.check_call(command, shell=False)


class PackedSlurmJob(RecordJob[R], SlurmJob[R]):
    """One of many calls that share a job of Slurm."""


class SlurmExecutor(RunExecutor):
    """Submits calls to Slurm; see `update_parameters` for what can be asked for."""

    job_class = SlurmJob
    record_job_class: ClassVar[type[RecordJob[Any]]] = PackedSlurmJob

    def __init__(
        self,
        folder: Path | str,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        super().__init__(folder, max_num_timeout, max_pickle_size_gb, python)
        if self.affinity() < 0:
            raise RuntimeError("srun is not on PATH: SlurmExecutor needs Slurm's commands")

    @classmethod
    def affinity(cls) -> int:
        """2 where Slurm's commands are, else -1."""
        return -1 if shutil.which("srun") is None else 2

    @classmethod
    def _equivalence_dict(cls) -> EquivalenceDict:
        return known.SHARED

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(known.DEFAULTS)

    def _convert_parameters(self, params: dict[str, Any]) -> dict[str, Any]:
        converted = super()._convert_parameters(params)
        if "mem_gb" in params and params["mem_gb"] is not None:
            converted["mem"] = known.memory_text(params["mem_gb"])
        return converted

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Take parameters under Slurm's names."""
        known.check_names(kwargs)
        super()._internal_update_parameters(**kwargs)

    def _num_tasks(self) -> int:
        nodes = int(self.parameters.get("nodes") or 1)
        per_node = int(self.parameters.get("ntasks_per_node") or 1)
        return nodes * per_node if self.parameters.get("use_srun", True) else 1

    def _timeout_min(self) -> float:
        given = self.parameters.get("time") or known.DEFAULTS["time"]
        if isinstance(given, (int, float)):
            return given
        from slurm.model.units import parse_duration

        return (parse_duration(given) or 0) / 60

    def _options(self, count: int, listens: bool) -> dict[str, Any]:
        options = {**super()._options(count, listens), **known.to_options(self.parameters)}
        if self._num_tasks() > 1 or (listens and self.parameters.get("use_srun", True)):
            # Slurm tells a step of a preemption when the grace time begins, but no batch script.
            # Every task has a result of its own: none is ended because another failed.
            options["srun_args"] = [*_SRUN, *options.get("srun_args", ())]
        return options

    def _submit_calls(self, calls: Any, pack: Any, options: dict[str, Any]) -> Any:
        from slurm.api.connect import LocalBackend
        from slurm.errors import SubmitRefused

        backend = self._site().cluster.backend
        if isinstance(backend, LocalBackend):
            backend.agent.scheduler.executor = self
        try:
            return super()._submit_calls(calls, pack, options)
        except SubmitRefused as error:
            raise utils.FailedJobError(str(error)) from error

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["sbatch", str(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """The id in sbatch's answer."""
        text = string if isinstance(string, str) else string.decode()
        found = re.search(r"job (?P<id>[0-9]+)", text)
        if found is None:
            raise utils.FailedSubmissionError(f"sbatch's answer has no job id in it: {text!r}")
        return found["id"]


_make_sbatch_string = known.script_text


def _get_default_parameters() -> dict[str, Any]:
    """Every parameter of the Slurm executor with its default."""
    return dict(known.DEFAULTS)
