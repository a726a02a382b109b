"""RunExecutor: submits calls through the SDK's core, for Slurm, this machine, and over ssh."""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from slurm.submitit.core import utils
from slurm.submitit.core.executors import PicklingExecutor, remove
from slurm.submitit.core.jobs import Job
from slurm.submitit.core.paths import link
from slurm.submitit.core.records import RecordJob
from slurm.submitit.core.runs import RunJob, Site
from slurm.submitit.core.signals import checkpoint_of
from slurm.submitit.core.submission import run_call, run_item

if TYPE_CHECKING:
    from typing_extensions import Self

    from slurm.job import Job as CoreJob

#: Folders that a `#SBATCH` line can hold as they are; in others the job opens its own logs.
_PLAIN = re.compile(r"[^%\\\r\n]*")


class RunExecutor(PicklingExecutor):
    """Submits calls through the SDK's core: exactly once, arrays of any length, ends by event."""

    job_class: ClassVar[type[RunJob[Any]]]
    #: The same for calls whose values come back through the core.
    record_job_class: ClassVar[type[RecordJob[Any]]]
    #: Whether the folder lies on this machine's file systems.
    _folder_is_here: ClassVar[bool] = True

    def __init__(
        self,
        folder: Path | str,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        super().__init__(folder, max_num_timeout, max_pickle_size_gb)
        self.python = python
        self._after: tuple[Job[Any], ...] = ()

    def after(self, *jobs: Job[Any]) -> Self:
        """The same executor for calls that begin when these jobs have succeeded.

        `executor.after(prepared).submit(train)`: if one of them fails, the call never runs.
        """
        self._refuse_in_batch("after")
        other = copy.copy(self)
        other.parameters = dict(self.parameters)
        other._after = (*self._after, *jobs)
        return other

    def _site(self) -> Site:
        return self.job_class.site(self.folder)

    # ---- submission -----------------------------------------------------------------------------

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[Job[Any]]:
        pack = self.parameters.get("pack")
        packed = bool(pack) and len(delayed_submissions) > 1
        staged = self._stage(delayed_submissions)
        by_value = packed or not self._folder_is_here
        listens = any(checkpoint_of(call.function) for call in delayed_submissions)
        try:
            calls = [path.read_bytes() if by_value else str(path) for path in staged]
            options = self._options(len(calls), listens)
            found = self._submit_calls(calls, pack if packed else None, options)
        except BaseException:  # raised again; nothing was submitted
            remove(staged)
            raise
        if by_value:
            remove(staged)
            return [self._record_job(job, call) for job, call in zip(found, calls, strict=True)]
        return [self._job(job, path) for job, path in zip(found, staged, strict=True)]

    def _submit_calls(
        self, calls: Sequence[str | bytes], pack: int | str | None, options: dict[str, Any]
    ) -> list[CoreJob[Any]]:
        cluster = self._site().cluster
        folder = self._folder_there()
        given = {**options, **self._waits()}
        submit = cluster.submit(run_call if pack is None else run_item, **given)
        keep = not self._folder_is_here
        if len(calls) == 1:
            return [submit(folder, calls[0], keep)]
        most = int(self.parameters.get("array_parallelism") or self._default_parallelism)
        throttle = most if most < len(calls) else None
        if pack is not None:
            items = [(folder, call) for call in calls]
            return list(submit.map(items, pack=pack, max_concurrent=throttle))
        return list(submit.map([(folder, call, keep) for call in calls], max_concurrent=throttle))

    def _folder_there(self) -> str:
        """The folder as the job sees it."""
        return str(self.folder)

    #: How many elements of an array run at the same time, unless `array_parallelism` says.
    _default_parallelism: ClassVar[int] = 256

    def _waits(self) -> dict[str, Any]:
        """What the submission waits for: the core's jobs as such, others by their ids."""
        target = self._site().cluster.backend.target
        own: list[CoreJob[Any]] = []
        ids: list[str] = []
        for job in self._after:
            run_job = getattr(job, "run_job", None)
            if run_job is not None and run_job.cluster.backend.target == target:
                own.append(run_job)
            else:
                ids.append(job.job_id)
        given = self.parameters.get("dependency")
        texts = [text for text in (given, "afterok:" + ":".join(ids) if ids else None) if text]
        return {"after": own, **({"dependency": ",".join(texts)} if texts else {})}

    def _job(self, run_job: CoreJob[Any], staged: Path) -> Job[Any]:
        tasks = range(self._num_tasks())
        job = self.job_class(folder=self.folder, job_id=run_job.bare, tasks=list(tasks))
        job.hold(run_job)
        if not run_job.bare:
            return job  # a later part of a long array: the job itself names its files
        paths = job.paths
        paths.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(staged, paths.submitted_pickle)
        script = paths.submission_file
        if not script.exists():
            script.parent.mkdir(parents=True, exist_ok=True)
            part = run_job.part.number if run_job.part is not None else 0
            from slurm.rundir import script_name

            link(os.path.join(run_job.path, script_name(part)), script)
        return job

    def _record_job(self, run_job: CoreJob[Any], call: str | bytes) -> Job[Any]:
        assert isinstance(call, bytes)
        tasks = list(range(self._num_tasks()))
        job = self.record_job_class(self.folder, run_job.bare, tasks)
        job.hold(run_job)
        job.keep(call, run_job.index)
        return job

    # ---- what is asked for ----------------------------------------------------------------------

    def _options(self, count: int, listens: bool) -> dict[str, Any]:
        """What the core is asked for, for so many calls; `listens`: one has a checkpoint."""
        merged = bool(self.parameters.get("stderr_to_stdout"))
        asked = self.parameters.get("signal_delay_s", self._default_delay_s)
        # A short job is not told before it has begun.
        delay = max(1, int(min(asked, 30 * self._timeout_min())))
        options: dict[str, Any] = {
            "requeue": True,
            "signal": f"{self._signal()}@{delay}",
            "env": {
                "SUBMITIT_EXECUTOR": self.name(),
                "SUBMITIT_SIGNAL_DELAY_S": str(delay),
                **({"SUBMITIT_STDERR_TO_STDOUT": "1"} if merged else {}),
            },
            **self._setup(),
        }
        if self.python:
            options["python"] = self._launcher(self.python)
        if _PLAIN.fullmatch(str(self.folder)) and self._folder_is_here and not self._packs(count):
            own = "%A_%a" if count > 1 else "%j"
            options["output"] = f"{self.folder}/{own}_0_log.out"
            options["error"] = options["output"] if merged else f"{self.folder}/{own}_0_log.err"
        return options

    #: How long before the time limit a job is told, in seconds.
    _default_delay_s: ClassVar[float] = 90

    def _packs(self, count: int) -> bool:
        return bool(self.parameters.get("pack")) and count > 1

    def _setup(self) -> Mapping[str, Any]:
        names = ("setup", "teardown")
        return {name: self.parameters[name] for name in names if self.parameters.get(name)}

    @staticmethod
    def _signal() -> str:
        from slurm.submitit.core.job_environment import JobEnvironment

        return JobEnvironment.USR_SIG

    def _launcher(self, python: str) -> str:
        """A program that starts Python the way the user says, which may be several words."""
        if re.fullmatch(r"[\w./+-]+", python):
            return python
        import hashlib

        folder = Path(self._site().cluster.base) / ".python"
        path = folder / hashlib.sha256(python.encode()).hexdigest()[:16]
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with utils.temporary_save_path(path) as temporary:
                temporary.write_text(f'#!/bin/bash\nexec {python} "$@"\n')
                temporary.chmod(0o755)
        return str(path)
