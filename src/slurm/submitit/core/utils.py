"""What executors, jobs and workers share: calls as files, the environment, errors, commands."""

from __future__ import annotations

import contextlib
import os
import pickle
import stat

from slurm.submitit.core.failures import (
    FailedJobError,
    FailedSubmissionError,
    UncompletedJobError,
)
from slurm.submitit.core.paths import JobPaths

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import IO, Any

    from slurm.submitit.core.commands import CommandFunction, copy_process_streams

__all__ = [
    "CommandFunction",
    "DelayedSubmission",
    "FailedJobError",
    "FailedSubmissionError",
    "JobPaths",
    "UncompletedJobError",
    "archive_dev_folders",
    "cloudpickle_dump",
    "copy_par_file",
    "copy_process_streams",
    "environment_variables",
    "pickle_load",
    "temporary_save_path",
]


def __getattr__(name: str) -> Any:
    """What runs programs is loaded when it is used: most workers run none."""
    if name in ("CommandFunction", "copy_process_streams"):
        from slurm.submitit.core import commands

        return getattr(commands, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DelayedSubmission:
    """A call that is made later: a function with its arguments, and how often it may time out."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self._result: Any = None
        self._done = False
        self._timeout_min: float = 0
        self._timeout_countdown: int = 0

    def result(self) -> Any:
        """Make the call, once; the same value every time after."""
        if not self._done:
            self._result = self.function(*self.args, **self.kwargs)
            self._done = True
        return self._result

    def done(self) -> bool:
        """Whether the call was made."""
        return self._done

    def set_timeout(self, timeout_min: float, max_num_timeout: int) -> None:
        """Say how long the job may run, and how often it may go on after a time-out."""
        self._timeout_min = timeout_min
        self._timeout_countdown = max_num_timeout

    def dump(self, filepath: str | Path) -> None:
        """Write it to a file, whole or not at all."""
        cloudpickle_dump(self, filepath)

    @classmethod
    def load(cls, filepath: str | Path) -> DelayedSubmission:
        """Read one again, also one that submitit itself wrote."""
        found: DelayedSubmission = pickle_load(filepath)
        if type(found).__name__ != cls.__name__:
            raise AssertionError(f"{filepath} holds a {type(found).__name__}, not a call")
        return found

    def __repr__(self) -> str:
        return f"DelayedSubmission({self.function}, args={self.args}, kwargs={self.kwargs})"


@contextlib.contextmanager
def environment_variables(**kwargs: Any) -> Iterator[None]:
    """Set environment variables for a block."""
    before = {name: os.environ.get(name) for name in kwargs}
    os.environ.update({name: str(value) for name, value in kwargs.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def temporary_save_path(filepath: Path | str) -> Iterator[Path]:
    """A path to write to; the file takes its place at the end, unless the block raised."""
    from pathlib import Path  # slow to import; a worker has no need for it

    temporary = f"{os.fspath(filepath)}.save_tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # left behind by a writer that was killed
    try:
        yield Path(temporary)
        os.replace(temporary, filepath)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


@contextlib.contextmanager
def written(filename: Path | str) -> Iterator[IO[bytes]]:
    """A file to write to; it takes its place at the end, unless the block raised."""
    temporary = f"{os.fspath(filename)}.save_tmp"
    try:
        with os.fdopen(_open_own(temporary), "wb") as f:
            yield f
        os.replace(temporary, filename)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _open_own(path: str) -> int:
    """Open a file of ours to write it from its begin: no link that others put into a shared folder.

    One that a killed writer left behind is used again.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(OSError):
        fd = os.open(path, flags, 0o666)
        found = os.fstat(fd)
        if found.st_uid == os.geteuid() and found.st_nlink == 1 and stat.S_ISREG(found.st_mode):
            os.ftruncate(fd, 0)
            return fd
        os.close(fd)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, flags | os.O_EXCL, 0o666)


def cloudpickle_dump(obj: Any, filename: Path | str) -> None:
    """Pickle an object into a file."""
    import cloudpickle

    with written(filename) as f:
        cloudpickle.dump(obj, f, pickle.HIGHEST_PROTOCOL)


class _Unpickler(pickle.Unpickler):
    """Takes our classes for those of submitit: it need not be installed to read what it wrote."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "submitit":
            with contextlib.suppress(ImportError, AttributeError):
                return super().find_class(f"slurm.{module}", name)
        return super().find_class(module, name)


def pickle_load(filename: str | Path) -> Any:
    """Unpickle the object of a file that only this user can have written.

    `UntrustedRun` where the file, or the folder it lies in, is another user's or others may write.
    """
    from slurm.rundir.private import Untrusted, open_unchanged

    try:
        stream = open_unchanged(os.fspath(filename))
    except Untrusted as error:
        from slurm.errors import UntrustedRun  # slow to import, and seldom needed

        raise UntrustedRun(f"{error}; it is not unpickled", hint=error.fix) from error
    with stream as f:
        return load_pickle(f)


def load_pickle(stream: IO[bytes]) -> Any:
    """Unpickle one object, also one that submitit itself wrote."""
    return _Unpickler(stream).load()


def archive_dev_folders(folders: Sequence[str | Path], outfile: str | Path | None = None) -> Path:
    """Pack folders into a compressed archive."""
    import tarfile
    from pathlib import Path

    target = Path(outfile) if outfile is not None else Path(f"dev_folders_{os.getpid()}.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for folder in map(Path, folders):
            archive.add(folder, folder.name)
    return target


def copy_par_file(par_file: str | Path, folder: str | Path) -> Path:
    """Copy an executable archive into a folder."""
    import shutil
    from pathlib import Path

    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(par_file, Path(folder) / Path(par_file).name))
