"""Jobs whose value comes back through the core, not through the folder: over ssh, and packed."""

from __future__ import annotations

import io
import traceback
from typing import TYPE_CHECKING, Any, TypeVar

from slurm.submitit.core import utils
from slurm.submitit.core.runs import RunJob

if TYPE_CHECKING:
    from slurm.job import Job as CoreJob

R = TypeVar("R", covariant=True)


class RecordJob(RunJob[R]):
    """A job whose value the core reads; of a packed array it shares its id with other calls."""

    _call: bytes = b""
    #: Which call of its run this is; a packed array has many in one job.
    _index = 0

    def keep(self, call: bytes, index: int) -> None:
        """Remember what was submitted, and as which call of its run."""
        self._call, self._index = call, index
        for sub_job in self._sub_jobs:
            assert isinstance(sub_job, RecordJob)
            sub_job.keep(call, index)

    @property
    def run_job(self) -> CoreJob[Any] | None:
        """The core's job, or its item of a packed array."""
        if self._run_job is None:
            found = self.site(self._paths._folder).cluster.attach(self.job_id.partition("_")[0])
            self._run_job = found[self._index] if hasattr(found, "members") else found
        return self._run_job

    def submission(self) -> utils.DelayedSubmission:
        """What was submitted: function and arguments."""
        found: utils.DelayedSubmission = utils.load_pickle(io.BytesIO(self._call))
        return found

    def done(self, force_check: bool = False) -> bool:
        """Whether the job is over."""
        return self._is_over(force_check)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        from slurm.errors import FunctionExited, JobError, ResultError

        job = self.run_job
        if job is None:
            raise self._without_result()
        value, error = job.outcome()
        if error is None:
            several = len(self._tasks) == 1 and bool(job.options.get("all_ranks"))
            return "success", value[self._tasks[0]] if several else value
        lost = isinstance(error, (JobError, ResultError)) and not isinstance(error, FunctionExited)
        if lost:
            raise self._without_result() from error
        cause = error.__cause__
        return "error", str(cause) if cause else "".join(traceback.format_exception(error))

    def _log(self, name: str) -> str | None:
        text: str | None = getattr(self.run_job, name)() if self.run_job is not None else None
        return text or None
