"""JobPaths: where the files of a job lie in the executor's folder, in submitit's names."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from pathlib import Path

#: What stands in a folder for the job id, the array's id, the element's number and the task.
_MARKS = ("%j", "%A", "%a", "%t")
#: The files of a job.
_NAMES = {
    "submission_file": "%j_submission.sh",
    "submitted_pickle": "%j_submitted.pkl",
    "result_pickle": "%j_%t_result.pkl",
    "stdout": "%j_%t_log.out",
    "stderr": "%j_%t_log.err",
}


class JobPaths:
    """The files of one job, or of one task of it.

    `folder` may contain `%j` (the job id), `%A` and `%a` (array id and number) and `%t` (task).
    """

    def __init__(
        self, folder: Path | str, job_id: str | None = None, task_id: int | None = None
    ) -> None:
        self.given = os.path.abspath(os.path.expanduser(folder))
        self.job_id = job_id
        self.task_id = task_id or 0

    @property
    def _folder(self) -> Path:
        from pathlib import Path  # slow to import; a worker has no need for it

        return Path(self.given)

    def name_of(self, what: str) -> str:
        """The path of a file as text: `stdout`, `result_pickle`, ..., or `folder`."""
        own = _NAMES.get(what)
        return self._format_id(self.given if own is None else f"{self.given}/{own}")

    @property
    def folder(self) -> Path:
        """The folder of this job."""
        return self._path("folder")

    @property
    def submission_file(self) -> Path:
        """The script that was submitted; the elements of an array share theirs."""
        if self.job_id and "_" in self.job_id:
            array = JobPaths(self.given, self.job_id.partition("_")[0], self.task_id)
            if "%a" in self.given:
                shared = self.get_first_id_independent_folder(self.given)
                return shared / f"{array.job_id}_submission.sh"
            return array.submission_file
        return self._path("submission_file")

    @property
    def submitted_pickle(self) -> Path:
        """The call: function and arguments."""
        return self._path("submitted_pickle")

    @property
    def result_pickle(self) -> Path:
        """What came of it."""
        return self._path("result_pickle")

    @property
    def stderr(self) -> Path:
        """What the task printed to standard error."""
        return self._path("stderr")

    @property
    def stdout(self) -> Path:
        """What the task printed."""
        return self._path("stdout")

    def _path(self, what: str) -> Path:
        from pathlib import Path

        return Path(self.name_of(what))

    def _format_id(self, text: str) -> str:
        if self.job_id is None:
            return text
        array, _, number = str(self.job_id).partition("_")
        if "%a" in text and not number:
            raise ValueError(f"{text} contains %a, but job {self.job_id} is no part of an array")
        for mark, value in zip(
            _MARKS, (str(self.job_id), array, number, str(self.task_id)), strict=True
        ):
            text = text.replace(mark, value)
        return text

    def move_temporary_file(
        self, tmp_path: Path | str, name: str, keep_as_symlink: bool = False
    ) -> None:
        """Give a file its final name (`submission_file`, ...); a link may stay behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        target: Path = getattr(self, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(tmp_path, target)
        if keep_as_symlink:
            os.symlink(target, tmp_path)

    @staticmethod
    def get_first_id_independent_folder(folder: Path | str) -> Path:
        """The deepest folder above whose name depends on no job."""
        from pathlib import Path

        return split_folder(Path(folder).expanduser().absolute())[0]

    def __repr__(self) -> str:
        return f"JobPaths({self.folder})"


def split_folder(folder: Path) -> tuple[Path, Path]:
    """The part of a folder that depends on no job, and the rest."""
    parts = folder.parts
    dependent = (n for n, part in enumerate(parts) if any(mark in part for mark in _MARKS))
    count = next(dependent, len(parts))
    return type(folder)(*parts[:count]), type(folder)(*parts[count:])


def link(existing: str | Path, name: str | Path) -> None:
    """Give a file a second name; on another file system a symbolic one."""
    try:
        os.link(existing, name)
    except OSError:
        os.symlink(existing, name)
