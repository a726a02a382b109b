"""Executor: takes calls, makes jobs; what every executor, ours or a plug-in's, is built on."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from slurm.submitit.core import utils
from slurm.submitit.core.jobs import DelayedJob, Job

R = TypeVar("R")


class EquivalenceDict(dict[str, str]):
    """The name that an executor has for each shared parameter."""


class Executor(ABC):
    """Submits calls as jobs; `folder` may contain `%j`, `%A`, `%a` and `%t`.

    A plug-in implements `_internal_process_submissions` and names its `job_class`.
    """

    job_class: ClassVar[type[Job[Any]]] = Job

    def __init__(self, folder: str | Path, parameters: dict[str, Any] | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.parameters: dict[str, Any] = {} if parameters is None else parameters
        self._delayed_batch: list[tuple[Job[Any], utils.DelayedSubmission]] | None = None
        self._allow_implicit_submissions = False

    @classmethod
    def name(cls) -> str:
        """The executor's name: its class's, without `Executor`, in lower case."""
        return cls.__name__.removesuffix("Executor").lower()

    @classmethod
    def affinity(cls) -> int:
        """How well it fits here: -1 not at all, 0 if asked for, 1 available, 2 a cluster."""
        return 1

    # ---- submission -----------------------------------------------------------------------------

    def submit(self, fn: Callable[..., R], *args: Any, **kwargs: Any) -> Job[R]:
        """Submit a call; in `with executor.batch():` it goes out with the others."""
        submission = utils.DelayedSubmission(fn, *args, **kwargs)
        if self._delayed_batch is None:
            return self._internal_process_submissions([submission])[0]
        job: Job[R] = DelayedJob(self)
        self._delayed_batch.append((job, submission))
        return job

    def map_array(self, fn: Callable[..., R], *iterables: Iterable[Any]) -> list[Job[R]]:
        """Submit one call for each set of arguments, as an array."""
        return self._submit_all(
            [utils.DelayedSubmission(fn, *args) for args in zip(*iterables, strict=False)]
        )

    def submit_array(self, fns: Sequence[Callable[[], R]]) -> list[Job[R]]:
        """Submit functions without arguments, as an array."""
        return self._submit_all([utils.DelayedSubmission(fn) for fn in fns])

    def _submit_all(self, submissions: list[utils.DelayedSubmission]) -> list[Job[Any]]:
        if not submissions:
            warnings.warn("there is nothing to submit", RuntimeWarning, stacklevel=3)
            return []
        if self._delayed_batch is None:
            return self._internal_process_submissions(submissions)
        jobs: list[Job[Any]] = [DelayedJob(self) for _ in submissions]
        self._delayed_batch.extend(zip(jobs, submissions, strict=True))
        return jobs

    @contextlib.contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:
        """Collect the calls of this block; at its end they go out as one array.

        What a job knows only once it is submitted cannot be asked for inside, unless
        `allow_implicit_submissions` lets that submit all that was collected so far.
        """
        if self._delayed_batch is not None:
            raise RuntimeError('"with executor.batch():" cannot be nested')
        self._delayed_batch = []
        self._allow_implicit_submissions = allow_implicit_submissions
        try:
            yield
            if not self._delayed_batch and not allow_implicit_submissions:
                text = 'nothing was submitted in "with executor.batch():"'
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            self._submit_delayed_batch()
        finally:
            self._delayed_batch = None

    def _submit_delayed_batch(self) -> None:
        batch, self._delayed_batch = self._delayed_batch or [], []
        if not batch:
            return
        new = self._internal_process_submissions([submission for _, submission in batch])
        for (job, _), made in zip(batch, new, strict=True):
            # The placeholder becomes the job: whoever holds it holds the job.
            job.__dict__.update(made.__dict__)
            job.__class__ = made.__class__
            job.__dict__.pop("_executor", None)

    def _submit_delayed_for(self, name: str) -> None:
        """Somebody asks a job of the open batch for something that only a real one has."""
        if self._delayed_batch is None:
            raise AttributeError(f"{name}: this job's batch was given up, so it was not submitted")
        if not self._allow_implicit_submissions:
            raise AttributeError(
                f"{name} is not known before the batch is submitted: ask for it after the "
                '"with executor.batch():" block, or write batch(allow_implicit_submissions=True)'
            )
        self._submit_delayed_batch()

    @abstractmethod
    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[Job[Any]]:
        """Submit these calls, several of them as an array; one job for each."""

    # ---- parameters -----------------------------------------------------------------------------

    def update_parameters(self, **kwargs: Any) -> None:
        """Set what later submissions ask for."""
        self._refuse_in_batch("update_parameters")
        self._internal_update_parameters(**kwargs)

    def _refuse_in_batch(self, what: str) -> None:
        if self._delayed_batch is not None:
            raise RuntimeError(
                f'{what} cannot be called inside of "with executor.batch():": all of its jobs are '
                "one array"
            )

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        self.parameters.update(kwargs)

    @classmethod
    def _equivalence_dict(cls) -> EquivalenceDict | None:
        """The executor's own names for shared parameters; None where they are the same."""
        return None

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        """The executor's own parameters, besides the shared ones."""
        return set()

    def _convert_parameters(self, params: dict[str, Any]) -> dict[str, Any]:
        """Shared parameters under the executor's own names."""
        names: Mapping[str, str] = self._equivalence_dict() or {}
        return {names.get(name, name): value for name, value in params.items()}

    # ---- more than one job ----------------------------------------------------------------------

    def rerun_failed(self, jobs: Sequence[Job[R]]) -> list[Job[R]]:
        """Submit the failed ones of these jobs again; the others keep their places in the list."""
        failed = [n for n, job in enumerate(jobs) if job.exception() is not None]
        again = [jobs[n].submission() for n in failed]
        made = self._internal_process_submissions(again) if again else []
        found = dict(zip(failed, made, strict=True))
        return [found.get(n, job) for n, job in enumerate(jobs)]


class PicklingExecutor(Executor):
    """Writes calls to the folder and submits a script for them: the base of cluster plug-ins.

    A plug-in says how the worker is started (`_submitit_command_str`), what the script is
    (`_make_submission_file_text`), which command submits it (`_make_submission_command`) and how
    its answer is read (`_get_job_id_from_submission_command`).
    """

    #: The shortest pause between two submissions, in seconds.
    _throttling: float = 0.2

    def __init__(
        self, folder: Path | str, max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0
    ) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        self.max_pickle_size_gb = max_pickle_size_gb
        self._last_job_submitted = 0.0

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        staged = self._stage(delayed_submissions)
        try:
            while staged:
                self._throttle()
                job = self._submit_command(self._submitit_command_str)
                job.paths.move_temporary_file(staged.pop(0), "submitted_pickle")
                self._write_job_id(job.job_id, job.paths.submission_file.name)
                self._set_job_permissions(job.paths.folder)
                jobs.append(job)
        finally:
            remove(staged)
        return jobs

    def _stage(self, submissions: Sequence[utils.DelayedSubmission]) -> list[Path]:
        """Write calls to files that no job has yet; nothing stays of too many bytes."""
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        limit, size = self.max_pickle_size_gb * 1e9, 0
        staged: list[Path] = []
        try:
            for submission in submissions:
                submission.set_timeout(self._timeout_min(), self.max_num_timeout)
                staged.append(folder / f"{uuid.uuid4().hex}.pkl")
                submission.dump(staged[-1])
                size += staged[-1].stat().st_size
                if size > limit:
                    raise RuntimeError(
                        f"the calls to submit take more than {size / 1e9:.3g} GB when they are "
                        f"pickled, and max_pickle_size_gb={self.max_pickle_size_gb}: pass paths of "
                        "large data instead of the data, or raise the limit"
                    )
        except BaseException:  # raised again; nothing was submitted
            remove(staged)
            raise
        return staged

    def _timeout_min(self) -> float:
        return float(self.parameters.get("timeout_min") or 5)

    def _throttle(self) -> None:
        time.sleep(max(0.0, self._last_job_submitted + self._throttling - time.time()))
        self._last_job_submitted = time.time()

    def _submit_command(self, command: str) -> Job[Any]:
        """Submit a script that runs a command in a job of its own."""
        uid = uuid.uuid4().hex
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / f".submission_file_{uid}.sh"
        script.write_text(self._make_submission_file_text(command, uid))
        try:
            answer = utils.CommandFunction(self._make_submission_command(script), verbose=False)()
            job_id = self._get_job_id_from_submission_command(answer)
        except BaseException:  # raised again; nothing was submitted
            remove([script])
            raise
        tasks = list(range(self._num_tasks()))
        job = self.job_class(folder=self.folder, job_id=job_id, tasks=tasks)
        job.paths.move_temporary_file(script, "submission_file", keep_as_symlink=True)
        return job

    def _write_job_id(self, job_id: str, uid: str) -> None:
        """Keep the id of a job where a plug-in wants it."""

    def _set_job_permissions(self, folder: Path) -> None:
        """Set who may see a job's folder, where a plug-in wants to."""

    @property
    def _submitit_command_str(self) -> str:
        """The shell command that starts the worker."""
        raise NotImplementedError

    def _num_tasks(self) -> int:
        """How many tasks a job has."""
        raise NotImplementedError

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        """The script that runs the command."""
        raise NotImplementedError

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        """The command that submits a script."""
        raise NotImplementedError

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """The job id in the answer to a submission."""
        raise NotImplementedError


def remove(paths: Iterable[Path]) -> None:
    """Remove files that nobody needs."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
