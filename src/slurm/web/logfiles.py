"""Job logs on this machine: opened with the rights of the job's owner, and only plain files.

A user chooses the path (`--output=/etc/shadow`), so it is never opened with more than that user's
own rights, and no link on the way is followed. Another user's is read by `slurm.web.helper`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from dataclasses import dataclass

from slurm.errors import CommandRefused

#: Bytes that one answer has at most.
MOST = 256 << 10
#: Seconds that the file system may take.
PATIENCE = 15.0


@dataclass(frozen=True)
class Piece:
    """A part of a log, and where in the log it begins."""

    data: bytes
    start: int = 0


class Opener:
    """Reads logs: as this user, or through the helper, which becomes the owner (`web.helper`).

    Where this user is root and there is no helper, one is split off before any thread begins.
    """

    def __init__(self, helper: str = "") -> None:
        self._root = os.geteuid() == 0
        self._path = helper
        self._pid = 0
        #: Whether there is a helper of the host's, which also acts as other users.
        self.helped = bool(helper)

    def start(self) -> None:
        """Split a helper off, where it is needed; to be called before any thread begins."""
        if not self._root or self._path or sys.platform != "linux":
            return
        from slurm.web import helper

        folder = tempfile.mkdtemp(prefix="slurm-dashboard-")
        self._path = os.path.join(folder, "helper.sock")
        listening = helper.listen(self._path, 0)
        self._pid = os.fork()
        if not self._pid:
            _be_helper(listening)  # never returns
        listening.close()

    def stop(self) -> None:
        """End the helper that was split off."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            shutil.rmtree(os.path.dirname(self._path), ignore_errors=True)
            self._pid, self._path = 0, ""

    def read(self, path: str, uid: int, offset: int, limit: int = MOST) -> Piece:
        """A part of a file from `offset` (negative: from the end) with the rights of `uid`."""
        limit = min(limit, MOST)
        if os.geteuid() == uid:
            return read_plain(path, offset, limit)
        if not self._path:
            raise CommandRefused(
                f"this job is of user {name_of(uid)}, and the dashboard runs as "
                f"{name_of(os.geteuid())}, who must not open that user's files",
                hint=f"start the dashboard as {name_of(uid)}",
            )
        return self._ask(f"{path} could not be read", uid, path=path, offset=offset, limit=limit)

    def act(self, act: str, job: str, uid: int) -> None:
        """Cancel, hold, release or requeue a job with the rights of a user."""
        self._ask(f"job {job} could not be asked to {act}", uid, act=act, job=job)

    def _ask(self, failed: str, uid: int, **question: object) -> Piece:
        """One connection is one question: an answer that comes late finds nobody."""
        deadline = time.monotonic() + PATIENCE
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.settimeout(PATIENCE)
                connection.connect(self._path)
                connection.sendall(json.dumps({"uid": uid, **question}).encode())
                connection.shutdown(socket.SHUT_WR)
                answer = _all(connection, deadline)
            except TimeoutError:
                answer = b""
            except OSError as error:
                raise CommandRefused(f"{failed}: {error}") from error
        if not answer:  # its reader ran out of time
            raise CommandRefused(f"{failed} within {PATIENCE:.0f} s")
        words, _, data = answer.partition(b"\n")
        head = json.loads(words)
        if head["refused"]:
            raise CommandRefused(head["refused"])
        return Piece(data, head["start"])


def _be_helper(listening: socket.socket) -> None:
    """In the process that was split off: answer the dashboard, which is root, until it is gone."""
    from slurm.web import helper

    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the dashboard
        _end_with_parent()
        os.closerange(3, listening.fileno())
        os.closerange(listening.fileno() + 1, 4096)
        helper.serve(listening, 0, least=1)
    finally:
        os._exit(0)  # whatever happened: this process must never go on as a dashboard


def _end_with_parent() -> None:
    """Have the kernel end this process when the dashboard ends, however that ends."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() == 1:
        os._exit(0)


def _all(connection: socket.socket, deadline: float) -> bytes:
    """All that the other side sends until it closes; at the latest at `deadline`."""
    found = bytearray()
    while True:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        piece = connection.recv(1 << 16)
        if not piece:
            return bytes(found)
        found += piece


def name_of(uid: int) -> str:
    """The name of a user, or the number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_plain(path: str, offset: int, limit: int) -> Piece:
    """A part of a plain file that no link leads to, with the rights of this process."""
    descriptor = _open(path)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CommandRefused(f"{path} is not a plain file")
        start = max(0, found.st_size + offset) if offset < 0 else offset
        # A log that was cut is read anew from its begin.
        start = 0 if start > found.st_size else start
        return Piece(os.pread(descriptor, limit, start), start)
    except OSError as error:
        raise CommandRefused(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    """Open a file step by step from the root, following no link."""
    if not path.startswith("/") or "\0" in path:
        raise CommandRefused(f"{path!r} is not a whole path")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not names or ".." in names:
        raise CommandRefused(f"{path} is not a plain path")
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    at = ""
    try:
        for name in names[:-1]:
            at += f"/{name}"
            # O_PATH: a folder that may be passed through need not be listed.
            flags = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
            inner = os.open(name, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        at = path
        # Not waiting: a pipe would block until somebody writes.
        last = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        return os.open(names[-1], last, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(at):
            raise CommandRefused(f"{at} is a symbolic link, and links are not followed") from error
        raise CommandRefused(f"{at} cannot be opened: {error.strerror}") from error
    finally:
        os.close(folder)


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False
