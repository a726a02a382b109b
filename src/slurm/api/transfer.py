"""The agent's verbs about whole files: looked at, written and read in pieces; on Python 3.6."""

import contextlib
import os
from typing import Any, Callable, Dict, Optional

from slurm import rundir
from slurm.api.agent_error import AgentError

#: Content-addressed files lie here, below the base.
FILES = ".files"


def _resolve(path: str) -> str:
    """A path on the cluster: `~` is the home there, and a relative one counts from it."""
    home = os.path.expanduser("~")
    return os.path.normpath(os.path.join(home, os.path.expanduser(path)))


def _hash(path: str) -> str:
    import hashlib  # brings OpenSSL, megabytes that watching does not need

    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while True:
            data = f.read(1 << 20)
            if not data:
                return digest.hexdigest()
            digest.update(data)


def state(path: str, part: Optional[str] = None, digest: bool = False) -> Dict[str, Any]:
    """Whether a file is there, how large it is, and how much of it an earlier attempt sent."""
    target = _resolve(path)
    found: Dict[str, Any] = {"path": target, "size": None, "part": 0}
    try:
        if os.path.isdir(target):
            found["folder"] = True
        elif os.path.exists(target):
            found["size"] = os.path.getsize(target)
            found["hash"] = _hash(target) if digest else None
        if part:
            with contextlib.suppress(FileNotFoundError):
                found["part"] = os.path.getsize(_part(target, part))
    except OSError as error:
        raise AgentError("file", f"{target} cannot be read: {error.strerror}") from error
    return found


def _part(target: str, part: str) -> str:
    if not part.isalnum():
        raise AgentError("agent", f"{part!r} is not a name of a part")
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{part}.part")


def put(path: str, part: str, offset: int, data: bytes) -> int:
    """Write a piece of a file beside its place; returns how much of it is there."""
    target = _resolve(path)
    name = _part(target, part)
    try:
        rundir.make_private_folder(os.path.dirname(target))
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.seek(offset)
            f.write(data)
    except OSError as error:
        raise AgentError("file", f"{target} cannot be written: {error.strerror}") from error
    return offset + len(data)


def finish(path: str, part: str, size: int, digest: str, mode: int) -> str:
    """Put a file whose pieces are all there into its place, if it is what was sent."""
    target = _resolve(path)
    name = _part(target, part)
    try:
        if not os.path.exists(name) and os.path.exists(target) and _hash(target) == digest:
            return target  # an earlier request did it, and its answer got lost
        with open(name, "r+b") as f:
            f.truncate(size)
            f.flush()
            os.fsync(f.fileno())
        if _hash(name) != digest:
            os.unlink(name)
            raise AgentError("checksum", f"{target} arrived damaged and was thrown away")
        os.chmod(name, mode & 0o777)
        os.replace(name, target)
    except OSError as error:
        raise AgentError("file", f"{target} cannot be written: {error.strerror}") from error
    return target


def get(path: str, offset: int, limit: int) -> bytes:
    """A piece of a file."""
    target = _resolve(path)
    try:
        with open(target, "rb") as f:
            f.seek(offset)
            return f.read(min(limit, 8 << 20))
    except OSError as error:
        raise AgentError("file", f"{target} cannot be read: {error.strerror}") from error


#: What a client may ask for.
VERBS: Dict[str, Callable[..., Any]] = {
    "file_state": state,
    "file_put": put,
    "file_finish": finish,
    "file_get": get,
}
