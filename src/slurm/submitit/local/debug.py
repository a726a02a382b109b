"""DebugExecutor: calls run in this process when their result is asked for, so that pdb works."""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from slurm.submitit.core.executors import Executor
from slurm.submitit.core.jobs import Job
from slurm.submitit.core.utils import DelayedSubmission, UncompletedJobError
from slurm.submitit.core.watching import InfoWatcher
from slurm.submitit.local.environment import DebugJobEnvironment

__all__ = ["DebugExecutor", "DebugInfoWatcher", "DebugJob", "DebugJobEnvironment"]

R = TypeVar("R", covariant=True)


class DebugInfoWatcher(InfoWatcher):
    """Knows the jobs of this process; there is nobody to ask."""

    def _make_command(self) -> list[str] | None:
        return None


class DebugJob(Job[R]):
    """A call that is made in this process, at the first question about its outcome."""

    watcher = DebugInfoWatcher()

    def __init__(self, folder: Path | str, submission: DelayedSubmission) -> None:
        self._submission = submission
        self._cancelled = False
        self._error: BaseException | None = None
        self._environ = dict(os.environ)
        super().__init__(folder, f"DEBUG_{id(submission)}")

    def submission(self) -> DelayedSubmission:
        """What was submitted."""
        return self._submission

    def _register(self) -> None:
        """Nobody has to be asked about it."""

    @property
    def state(self) -> str:
        """QUEUED, DONE or CANCELLED."""
        if self._cancelled:
            return "CANCELLED"
        return "DONE" if self._submission.done() or self._error is not None else "QUEUED"

    def results(self) -> list[R]:
        """Make the call; what it raises is raised as it is, after a look with pdb."""
        return [self._make_call(inspect=True)]

    def exception(self) -> Exception | None:
        """Make the call; what it raised."""
        try:
            self._make_call(inspect=False)
        except Exception as error:  # noqa: BLE001 - what the function raises is the answer
            return error
        return None

    def wait(self) -> None:
        """Make the call."""
        self.exception()

    def done(self, force_check: bool = False) -> bool:
        """Make the call; True."""
        self.wait()
        return True

    def _make_call(self, inspect: bool) -> Any:
        if self._cancelled:
            raise UncompletedJobError(f"job {self.job_id} was cancelled")
        if self._error is not None:
            raise self._error
        if self._submission.done():
            return self._submission._result
        with self._as_in_a_job():
            try:
                return self._submission.result()
            except BaseException as error:  # raised again, to whoever asked
                self._error = error
                if inspect and isinstance(error, Exception):
                    traceback.print_exc()
                    _debugger().post_mortem(error.__traceback__)
                raise

    @contextlib.contextmanager
    def _as_in_a_job(self) -> Iterator[None]:
        """The environment of the submission, with the job's id; log records go to its files."""
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(
            self._environ, SUBMITIT_EXECUTOR="debug", SUBMITIT_DEBUG_JOB_ID=self.job_id
        )
        os.environ["SUBMITIT_FOLDER"] = str(self.paths.folder)
        self.paths.folder.mkdir(parents=True, exist_ok=True)
        handlers = [_log_to(self.paths.stdout, 0), _log_to(self.paths.stderr, logging.WARNING)]
        try:
            yield
        finally:
            for handler in handlers:
                logging.getLogger().removeHandler(handler)
                handler.close()
            os.environ.clear()
            os.environ.update(before)

    def cancel(self, check: bool = True) -> None:
        """Never make the call."""
        self._cancelled = True

    def _known_to_be_over(self) -> bool:
        return self.state != "QUEUED"

    def _interrupt(self, timeout: bool = False) -> None:
        """Nothing that could be interrupted."""

    def __repr__(self) -> str:
        return f'DebugJob<job_id={self.job_id}, task_id=0, state="{self.state}">'


def _log_to(path: Path, level: int) -> logging.Handler:
    handler = logging.FileHandler(path)
    handler.setLevel(level)
    logging.getLogger().addHandler(handler)
    return handler


def _debugger() -> Any:
    if os.environ.get("PYTHONBREAKPOINT", "").startswith("ipdb"):
        with contextlib.suppress(ImportError):
            import ipdb  # type: ignore[import-not-found]

            return ipdb
    import pdb

    return pdb


class DebugExecutor(Executor):
    """Makes calls in this process, when their results are asked for."""

    job_class = DebugJob

    def _internal_process_submissions(
        self, delayed_submissions: list[DelayedSubmission]
    ) -> list[Job[Any]]:
        return [DebugJob(self.folder, submission) for submission in delayed_submissions]
