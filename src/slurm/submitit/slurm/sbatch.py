"""Sbatch: the core's Slurm, where a subclass of SlurmExecutor may say how a script is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm.api.slurm_scheduler import ExecResult, SlurmScheduler
from slurm.submitit.core import utils

if TYPE_CHECKING:
    from slurm.submitit.slurm.slurm import SlurmExecutor


class Sbatch(SlurmScheduler):
    """Slurm by its command line; `sbatch` is run by the executor's own methods."""

    #: Who submits at the moment.
    executor: SlurmExecutor | None = None

    def _run(
        self, command: list[str], timeout: float, env: Any = None, cwd: Any = None
    ) -> ExecResult:
        if command[0] != "sbatch" or self.executor is None:
            return super()._run(command, timeout, env, cwd)
        self.calls += 1
        words = self.executor._make_submission_command(Path(command[-1]))
        try:
            answer = utils.CommandFunction(words, verbose=False, env=env, cwd=cwd)()
        except utils.FailedJobError as error:
            return ExecResult(1, "", str(error))
        job_id = self.executor._get_job_id_from_submission_command(answer)
        return ExecResult(0, f"{job_id}\n", "")
