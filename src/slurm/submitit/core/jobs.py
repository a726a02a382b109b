"""Job: the handle of a submitted call, also for one that another process submitted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from slurm.submitit.core import utils
from slurm.submitit.core.asynchronous import AsyncJobProxy
from slurm.submitit.core.watching import InfoWatcher

R = TypeVar("R", covariant=True)

#: How long a loop sleeps between two looks: briefly at first, then up to this.
SLOWEST = 1.0


class Job(Generic[R]):
    """A submitted call. `Job(folder, job_id)` attaches to one of another process.

    A job of several tasks has one result for each: `results()`, and `task(i)` is one of them.
    """

    #: Shared by all jobs of a class.
    watcher = InfoWatcher()
    #: How long a result that should be there is waited for: network file systems lag.
    _results_timeout_s: float = 15
    _cancel_at_deletion = False

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        self._job_id = job_id
        self._tasks = tuple(tasks)
        self._sub_jobs: Sequence[Job[R]] = []
        if len(tasks) > 1:
            self._sub_jobs = [self._task_job(folder, job_id, task) for task in tasks]
        self._paths = utils.JobPaths(
            folder, job_id=job_id, task_id=None if len(tasks) > 1 else tasks[0]
        )
        self._start_time = time.time()
        self._register()

    def _task_job(self, folder: Path | str, job_id: str, task: int) -> Job[R]:
        return self.__class__(folder=folder, job_id=job_id, tasks=(task,))

    def _register(self) -> None:
        self.watcher.register_job(self.job_id)

    # ---- who ------------------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """The id; an element of an array has the array's and its own number, `123_4`."""
        return self._job_id

    @property
    def paths(self) -> utils.JobPaths:
        """Where the job's files lie."""
        return self._paths

    @property
    def num_tasks(self) -> int:
        """How many tasks the job has."""
        return len(self._sub_jobs) or 1

    @property
    def task_id(self) -> int | None:
        """Which task this is; None for the whole of a job of several."""
        return None if len(self._tasks) > 1 else self._tasks[0]

    def task(self, task_id: int) -> Job[R]:
        """One task of the job; a job of one task is its own."""
        if not 0 <= task_id < self.num_tasks:
            raise ValueError(f"task_id {task_id} must be between 0 and {self.num_tasks - 1}")
        return self._sub_jobs[task_id] if self._sub_jobs else self

    def submission(self) -> utils.DelayedSubmission:
        """What was submitted: function and arguments."""
        return utils.DelayedSubmission.load(self.paths.submitted_pickle)

    # ---- what came of it ------------------------------------------------------------------------

    def result(self) -> R:
        """Wait for the function's value; raises `FailedJobError` or `UncompletedJobError`."""
        found = self.results()
        if len(found) != 1:
            raise AssertionError(
                f"job {self.job_id} has {len(found)} tasks; write job.results() for all values, "
                "or job.task(i).result() for one"
            )
        return found[0]

    def results(self) -> list[R]:
        """Wait for the values of all tasks."""
        self.wait()
        if self._sub_jobs:
            return [sub_job.result() for sub_job in self._sub_jobs]
        outcome, value = self._get_outcome_and_result()
        if outcome == "error":
            raise self._failure(value)
        return [value]

    def exception(self) -> Exception | None:
        """Wait, and return what `result()` would raise; of several tasks the first failure."""
        self.wait()
        if self._sub_jobs:
            errors = (sub_job.exception() for sub_job in self._sub_jobs)
            return next((error for error in errors if error is not None), None)
        try:
            outcome, value = self._get_outcome_and_result()
        except utils.UncompletedJobError as error:
            return error
        return self._failure(value) if outcome == "error" else None

    def _failure(self, trace: str) -> Exception:
        return utils.FailedJobError(f"{self._who()} raised:\n{trace}")

    def _who(self) -> str:
        return f"job {self.job_id}" + (f", task {self.task_id}" if self._tasks != (0,) else "")

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        """`("success", value)` or `("error", traceback)`; raises where the job left neither."""
        if self._sub_jobs:
            raise AssertionError(f"job {self.job_id} has several tasks: ask each of them")
        path = self.paths.result_pickle
        deadline = time.monotonic() + self._patience()
        pause = 0.01
        while True:
            try:
                found: tuple[str, Any] = utils.pickle_load(path)
                return found
            except (FileNotFoundError, EOFError):
                if time.monotonic() >= deadline:
                    break
            with contextlib.suppress(OSError):
                os.listdir(path.parent)  # a network file system then looks for new files
            time.sleep(pause)
            pause = min(SLOWEST, 2 * pause)
        raise self._without_result()

    def _patience(self) -> float:
        return self._results_timeout_s

    def _without_result(self) -> utils.UncompletedJobError:
        """What to say of a job that left no result."""
        lines = [f"{self._who()} is {self.state} and left no result: {self.paths.result_pickle}"]
        error_log, log = self.stderr(), self.stdout()
        if error_log:
            lines += [f"its standard error, {self.paths.stderr}:", error_log]
        elif log:
            lines += [f"the last lines of {self.paths.stdout}:", *log.splitlines()[-40:]]
        else:
            lines.append("No output/error stream produced !")
        return utils.UncompletedJobError("\n".join(lines))

    # ---- how it goes ----------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the job is over."""
        pause = 0.01
        while not self.done():
            self._refuse_unknown()
            self._sleep(pause)
            pause = min(SLOWEST, 1.5 * pause)

    def _refuse_unknown(self) -> None:
        """Raise where nobody knows of such a job: it would be waited for without end."""
        for sub_job in self._sub_jobs:
            sub_job._refuse_unknown()

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def done(self, force_check: bool = False) -> bool:
        """Whether the job is over; `force_check` asks the scheduler at once."""
        if self._sub_jobs:
            return all(sub_job.done(force_check) for sub_job in self._sub_jobs)
        if self.paths.result_pickle.exists():
            return True
        return self._is_over(force_check)

    def _is_over(self, force_check: bool) -> bool:
        return self.watcher.is_done(self.job_id, mode="force" if force_check else "standard")

    @property
    def state(self) -> str:
        """The state in the scheduler's words, UNKNOWN where it does not tell."""
        return self.watcher.get_state(self.job_id)

    def get_info(self, mode: str = "force") -> dict[str, str]:
        """What the scheduler says about the job."""
        return self.watcher.get_info(self.job_id, mode=mode)

    # ---- requests -------------------------------------------------------------------------------

    def cancel(self, check: bool = True) -> None:
        """Ask the scheduler to end the job; with `check` a refusal raises."""
        run = subprocess.check_call if check else subprocess.call
        run(["scancel", str(self.job_id)], shell=False)

    def cancel_at_deletion(self, value: bool = True) -> Job[R]:
        """End the job when this object goes, unless it is known to be over; returns the job."""
        self._cancel_at_deletion = value
        return self

    def __del__(self) -> None:
        # A job that could not be made has not even this attribute of its own.
        if self._cancel_at_deletion and not self._known_to_be_over():
            self.cancel(check=False)

    def _known_to_be_over(self) -> bool:
        return self.watcher.is_done(self.job_id, mode="cache")

    def _interrupt(self, timeout: bool = False) -> None:
        """Let the job see what it would see of a time-out, else of a preemption; for tests."""
        raise NotImplementedError

    # ---- logs -----------------------------------------------------------------------------------

    def stdout(self) -> str | None:
        """What the job printed so far; None where there is no log."""
        return self._log("stdout")

    def stderr(self) -> str | None:
        """What the job printed to standard error; None where there is no log."""
        return self._log("stderr")

    def _log(self, name: str) -> str | None:
        if self._sub_jobs:
            texts = [getattr(sub_job, name)() for sub_job in self._sub_jobs]
            return "\n".join(text for text in texts if text) if any(texts) else None
        path: Path = getattr(self.paths, name)
        try:
            return path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return None

    # ---- the rest -------------------------------------------------------------------------------

    def awaitable(self) -> AsyncJobProxy[R]:
        """The same job with methods that can be awaited."""
        return AsyncJobProxy(self)

    def __repr__(self) -> str:
        name = self.__class__.__name__
        try:
            state = self.watcher.get_state(self.job_id, mode="cache")
        except NotImplementedError:
            state = "UNKNOWN"
        return f'{name}<job_id={self.job_id}, task_id={self.task_id}, state="{state}">'

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()


class DelayedJob(Job[R]):
    """A call inside `with executor.batch():`; it becomes a real job when the block ends."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def __getattribute__(self, name: str) -> Any:
        allowed = ("__class__", "__dict__", "_executor", "_cancel_at_deletion")
        if name.startswith("__") or name in allowed:
            return object.__getattribute__(self, name)
        executor = object.__getattribute__(self, "_executor")
        executor._submit_delayed_for(name)
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of an open batch>"

    def __del__(self) -> None:
        """There is no job to cancel yet."""
