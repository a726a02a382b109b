"""JobPaths: where the files of a job lie in the executor's folder, in submitit's names."""

from __future__ import annotations

import os
import re
from pathlib import Path

#: What stands in a folder for the job id, the array's id, the element's number and the task.
_MARK = re.compile("%[jAat]")


def split_folder(folder: Path) -> tuple[Path, Path]:
    """The part of a folder that depends on no job, and the rest."""
    parts = folder.parts
    count = next((n for n, part in enumerate(parts) if _MARK.search(part)), len(parts))
    return Path(*parts[:count]), Path(*parts[count:])


def link(existing: str | Path, name: Path) -> None:
    """Give a file a second name; on another file system a symbolic one."""
    try:
        os.link(existing, name)
    except OSError:
        os.symlink(existing, name)


class JobPaths:
    """The files of one job, or of one task of it.

    `folder` may contain `%j` (the job id), `%A` and `%a` (array id and number) and `%t` (task).
    """

    def __init__(
        self, folder: Path | str, job_id: str | None = None, task_id: int | None = None
    ) -> None:
        self._folder = Path(folder).expanduser().absolute()
        self.job_id = job_id
        self.task_id = task_id or 0

    @property
    def folder(self) -> Path:
        """The folder of this job."""
        return self._format_id(self._folder)

    @property
    def submission_file(self) -> Path:
        """The script that was submitted; the elements of an array share theirs."""
        if self.job_id and "_" in self.job_id:
            array = JobPaths(self._folder, self.job_id.partition("_")[0], self.task_id)
            if "%a" in str(self._folder):
                shared = self.get_first_id_independent_folder(self._folder)
                return shared / f"{array.job_id}_submission.sh"
            return array.submission_file
        return self._format_id(self._folder / "%j_submission.sh")

    @property
    def submitted_pickle(self) -> Path:
        """The call: function and arguments."""
        return self._format_id(self._folder / "%j_submitted.pkl")

    @property
    def result_pickle(self) -> Path:
        """What came of it."""
        return self._format_id(self._folder / "%j_%t_result.pkl")

    @property
    def stderr(self) -> Path:
        """What the task printed to standard error."""
        return self._format_id(self._folder / "%j_%t_log.err")

    @property
    def stdout(self) -> Path:
        """What the task printed."""
        return self._format_id(self._folder / "%j_%t_log.out")

    def _format_id(self, path: Path | str) -> Path:
        if self.job_id is None:
            return Path(path)
        array, _, number = str(self.job_id).partition("_")
        marks = {"%j": str(self.job_id), "%A": array, "%a": number, "%t": str(self.task_id)}
        text = str(path)
        if "%a" in text and not number:
            raise ValueError(f"{text} contains %a, but job {self.job_id} is no part of an array")
        return Path(_MARK.sub(lambda found: marks[found.group()], text))

    def move_temporary_file(
        self, tmp_path: Path | str, name: str, keep_as_symlink: bool = False
    ) -> None:
        """Give a file its final name (`submission_file`, ...); a link may stay behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        target: Path = getattr(self, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(tmp_path, target)
        if keep_as_symlink:
            Path(tmp_path).symlink_to(target)

    @staticmethod
    def get_first_id_independent_folder(folder: Path | str) -> Path:
        """The deepest folder above whose name depends on no job."""
        return split_folder(Path(folder).expanduser().absolute())[0]

    def __repr__(self) -> str:
        return f"JobPaths({self.folder})"
