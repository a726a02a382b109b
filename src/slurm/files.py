"""Files that go with calls: `File` as an argument or a value, and copies to and from a cluster."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from slurm import errors
from slurm.api.transfer import FILES

if TYPE_CHECKING:
    from slurm.api.backend import Backend
    from slurm.api.ssh import SshBackend

#: Is told how many bytes are there, and how many there will be.
Progress: TypeAlias = "Callable[[int, int], None]"

PIECE = 4 << 20

_sender: contextvars.ContextVar[SshBackend | None] = contextvars.ContextVar("sender", default=None)
_source: contextvars.ContextVar[Backend | None] = contextvars.ContextVar("source", default=None)


class File(os.PathLike[str]):
    """A file that goes with a call: `train(File("data.bin"))`, or `return File("model.pt")`.

    In the job it is a path: `open(file)`, `file.path`. Its content is stored on the cluster under
    its hash, so that it is sent once, however many calls use it. A value that is a File is fetched
    by `job.result().fetch("model.pt")`. Where cluster and client share their files, nothing is
    copied for an argument.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path: str | None = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._stored: str | None = None
        self._backend: Any = None
        self.name = os.path.basename(self._path)

    @property
    def path(self) -> Path:
        """Where it lies here; a value has to be fetched first."""
        if self._path is None:
            raise errors.TransferFailed(
                f"{self.name} lies on the cluster", hint="fetch it first: file.fetch()"
            )
        return Path(self._path)

    def __fspath__(self) -> str:
        return str(self.path)

    def fetch(
        self, to: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> Path:
        """Copy it here: to a path, into a folder, or under its own name into this directory."""
        target = Path(to) if to is not None else Path(self.name)
        if target.is_dir():
            target = target / self.name
        if self._path is not None:
            if target.resolve() != Path(self._path).resolve():
                shutil.copyfile(self._path, target)
            return target
        if self._backend is None:
            raise errors.TransferFailed(
                f"{self.name} came without its cluster", hint=f"cluster.get({self._stored!r}, ...)"
            )
        return get_file(self._backend, str(self._stored), target, progress)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._stored is not None:
            return _stored, (self._stored, self.name)
        sender = _sender.get()
        path = str(self._path)
        if sender is not None:
            digest = hash_of(path)
            sender.wanted_files[(digest, self.name)] = path
            return _in_job, (digest, self.name)
        run = os.environ.get("SLURM_SDK_RUN")
        if run is not None and "SLURM_SDK_BASE" in os.environ:
            return _stored, (store(os.environ["SLURM_SDK_BASE"], path), self.name)
        return File, (path,)

    def __repr__(self) -> str:
        return f"File({self._path or self._stored!r})"


def _in_job(digest: str, name: str) -> File:
    """The file of an argument, where the job runs."""
    base = os.environ.get("SLURM_SDK_BASE", "")
    return File(os.path.join(base, FILES, digest, name))


def _stored(path: str, name: str) -> File:
    """The file of a value: in place where it can be seen, else to be fetched."""
    file = File(path)
    file.name = name
    file._stored = path
    file._backend = _source.get()
    if file._backend is not None and file._backend.kind == "ssh":
        file._path = None
    return file


def store(base: str, path: str) -> str:
    """Keep a file under the hash of its content, below the base directory; returns its place."""
    from slurm import rundir

    if not os.path.isfile(path):
        raise errors.TransferFailed(
            f"File({path!r}) was returned, but is not a file", hint="write it before returning it"
        )
    name = os.path.basename(path)
    target = os.path.join(base, FILES, hash_of(path), name)
    if not os.path.exists(target):
        rundir.make_private_folder(os.path.join(base, FILES))
        temporary = os.path.join(base, FILES, f".{os.uname().nodename}.{os.getpid()}.{name}.tmp")
        # Its place is the hash of the bytes that were copied, whatever writes to the file now.
        with open(path, "rb") as source, open(temporary, "wb") as copy:
            os.fchmod(copy.fileno(), 0o400)
            target = os.path.join(base, FILES, _copy_hashed(source, copy), name)
        rundir.make_private_folder(os.path.dirname(target))
        os.replace(temporary, target)
    return target


#: A file that changed less than so many seconds ago may change again without another time stamp.
_SETTLED_S = 10.0
_hashes: dict[tuple[object, ...], str] = {}


def hash_of(path: str) -> str:
    """The hash of a file's content; one that has not changed for a while is not read again.

    In a job it always is: files change there, and file systems count time in steps.
    """
    try:
        with open(path, "rb") as f:
            info = os.fstat(f.fileno())
            settled = time.time() - max(info.st_mtime, info.st_ctime) > _SETTLED_S
            place = (path, info.st_dev, info.st_ino)
            key = (*place, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            memory = _hashes if settled and "SLURM_SDK_RUN" not in os.environ else {}
            if key not in memory:
                memory[key] = _copy_hashed(f, None)
            return memory[key]
    except OSError as error:
        raise errors.TransferFailed(
            f"{path} cannot be read: {error.strerror}", hint="check the path of the file"
        ) from error


def _copy_hashed(source: Any, target: Any) -> str:
    """The hash of what is read, which is also written where a target is given."""
    digest = hashlib.sha256()
    while data := source.read(1 << 20):
        digest.update(data)
        if target is not None:
            target.write(data)
    return digest.hexdigest()


@contextlib.contextmanager
def sent_by(backend: SshBackend) -> Iterator[None]:
    """While it is open, Files that are pickled are noted to be sent by this backend."""
    token = _sender.set(backend)
    try:
        yield
    finally:
        _sender.reset(token)


@contextlib.contextmanager
def coming_from(backend: Backend) -> Iterator[None]:
    """While it is open, Files that are unpickled are fetched through this backend."""
    token = _source.set(backend)
    try:
        yield
    finally:
        _source.reset(token)


# ---- copies -------------------------------------------------------------------------------------


def put_file(
    backend: Backend,
    local: str | os.PathLike[str],
    remote: str,
    progress: Progress | None = None,
    mode: int | None = None,
) -> str:
    """Copy a file to the cluster; one that was begun goes on where it stopped."""
    path = os.path.expanduser(os.fspath(local))
    if os.path.isdir(path):
        raise errors.TransferFailed(
            f"{path} is a folder", hint="put its files, or an archive of it"
        )
    if backend.kind != "ssh":
        return str(_copy(path, Path(remote).expanduser(), progress))
    digest, size = hash_of(path), os.path.getsize(path)
    part = digest[:16]
    state = backend._call("file_state", remote, part, False)
    target = state["path"]
    if state.get("folder"):
        target = f"{target}/{os.path.basename(path)}"
        state = backend._call("file_state", target, part, False)
    for offset in (min(int(state["part"]), size), 0):
        with open(path, "rb") as f:
            _send(backend, f, target, part, offset, size, progress)
        bits = os.stat(path).st_mode & 0o777 if mode is None else mode
        try:
            return str(backend._call("file_finish", target, part, size, digest, bits))
        except errors.TransferFailed:
            if not offset:
                raise
            # What an earlier attempt left was not what it should be: once more from the start.
    raise AssertionError


def _send(
    backend: Backend, f: Any, target: str, part: str, offset: int, size: int, progress: Any
) -> None:
    f.seek(offset)
    while True:
        data = f.read(PIECE)
        if data or not size:
            offset = backend._call("file_put", target, part, offset, data)
        if progress is not None:
            progress(offset, size)
        if len(data) < PIECE:
            return


def get_file(
    backend: Backend,
    remote: str,
    local: str | os.PathLike[str],
    progress: Progress | None = None,
) -> Path:
    """Copy a file from the cluster; one that was begun goes on where it stopped."""
    target = Path(local).expanduser()
    if target.is_dir():
        target = target / os.path.basename(remote)
    if backend.kind != "ssh":
        return _copy(os.path.expanduser(remote), target, progress)
    state = backend._call("file_state", remote, None, True)
    size = state["size"]
    if size is None:
        raise errors.TransferFailed(
            f"{state['path']} is not a file on the cluster", hint="check the path"
        )
    digest = state["hash"]
    part = target.with_name(f".{target.name}.{digest[:16]}.part")
    _receive(backend, state["path"], part, size, progress)
    if hash_of(str(part)) != digest:
        part.unlink()
        raise errors.TransferFailed(
            f"{state['path']} changed while it was fetched", hint="fetch it again"
        )
    os.replace(part, target)
    return target


def _receive(backend: Backend, path: str, part: Path, size: int, progress: Any) -> None:
    offset = min(part.stat().st_size, size) if part.exists() else 0
    with open(part, "r+b" if offset else "wb") as f:
        f.seek(offset)
        while offset < size:
            data = backend._call("file_get", path, offset, PIECE)
            if not data:
                break
            f.write(data)
            offset += len(data)
            if progress is not None:
                progress(offset, size)
        f.truncate()


def _copy(path: str, target: Path, progress: Progress | None) -> Path:
    if target.is_dir():
        target = target / os.path.basename(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside it first: nobody sees a half one.
        temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
        shutil.copyfile(path, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise errors.TransferFailed(f"{path} cannot be copied to {target}: {error}") from error
    if progress is not None:
        size = target.stat().st_size
        progress(size, size)
    return target


def send_wanted(backend: SshBackend) -> None:
    """Send the files of calls that the cluster does not have yet."""
    while backend.wanted_files:
        (digest, name), path = next(iter(backend.wanted_files.items()))
        if (digest, name) not in backend.files_there:
            if hash_of(path) != digest:
                backend.wanted_files.pop((digest, name), None)
                raise errors.TransferFailed(
                    f"{path} changed between the call and its submission",
                    hint="write the file before the call, and submit it again",
                )
            place = f"{backend.facts()['base']}/{FILES}/{digest}/{name}"
            if backend._call("file_state", place, None, False)["size"] != os.path.getsize(path):
                put_file(backend, path, place, mode=0o400)
            backend.files_there.add((digest, name))
        backend.wanted_files.pop((digest, name), None)
