"""Job logs on this machine: opened with the rights of the job's owner, and only plain files.

A user chooses the path (`--output=/etc/shadow`), so it is never opened with more than that user's
own rights, and no link on the way is followed. Root first becomes the owner, in a process apart.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import threading
import time
from dataclasses import dataclass

from slurm.errors import CommandRefused

#: Bytes that one answer has at most.
MOST = 256 << 10
#: Seconds that the file system may take.
PATIENCE = 15.0
#: Reads at the same time: in all, and of one owner's files.
AT_ONCE, AT_ONCE_OF_ONE = 32, 4


@dataclass(frozen=True)
class Piece:
    """A part of a log, and where in the log it begins."""

    data: bytes
    start: int = 0


class Opener:
    """Reads logs: as this user, or, where this user is root, in a process that becomes the owner.

    For root a process is split off before any thread begins; it does nothing else.
    """

    def __init__(self) -> None:
        self._root = os.geteuid() == 0
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0

    def start(self) -> None:
        """Split the process off, where it is needed; to be called before any thread begins."""
        if not self._root:
            return
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            _serve(theirs)  # never returns
        theirs.close()
        self._socket = ours

    def stop(self) -> None:
        """End the process."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            os.waitpid(self._pid, 0)

    def read(self, path: str, uid: int, offset: int, limit: int = MOST) -> Piece:
        """A part of a file from `offset` (negative: from the end) with the rights of `uid`."""
        limit = min(limit, MOST)
        if os.geteuid() == uid:
            return read_plain(path, offset, limit)
        if not self._root or self._socket is None:
            raise CommandRefused(
                f"this job is of user {name_of(uid)}, and the dashboard runs as "
                f"{name_of(os.geteuid())}, who must not open that user's files",
                hint=f"start the dashboard as {name_of(uid)}",
            )
        return self._ask(path, uid, offset, limit)

    def _ask(self, path: str, uid: int, offset: int, limit: int) -> Piece:
        question = json.dumps([path, uid, offset, limit]).encode()
        # A pair for each question: an answer that comes late finds nobody, and no one waits for
        # the answer to another's question.
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs, self._lock:
                    assert self._socket is not None
                    socket.send_fds(self._socket, [b"%08d" % len(question)], [theirs.fileno()])
                    self._socket.sendall(question)
                answer = _all(ours, time.monotonic() + PATIENCE)
            except TimeoutError:
                answer = b""
            except OSError as error:
                raise CommandRefused(f"{path} could not be read: {error}") from error
        if not answer:  # its reader ran out of time
            raise CommandRefused(f"{path} could not be read within {PATIENCE:.0f} s")
        words, _, data = answer.partition(b"\n")
        head = json.loads(words)
        if head["refused"]:
            raise CommandRefused(head["refused"])
        return Piece(data, head["start"])


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


# ---- the process that becomes the owner ---------------------------------------------------------


def _serve(asked: socket.socket) -> None:
    """Answer questions, each in a child of its own with the owner's rights alone."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the dashboard
    os.closerange(3, asked.fileno())
    os.closerange(asked.fileno() + 1, 4096)
    reading: dict[int, int] = {}  # the uid that each child has become
    try:
        while True:
            head, (gone, *_), _, _ = socket.recv_fds(asked, 8, 1)
            path, uid, offset, limit = json.loads(_exactly(asked, int(head)))
            for pid in [pid for pid in reading if os.waitpid(pid, os.WNOHANG)[0]]:
                del reading[pid]
            # A user's own file system may let every read hang.
            busy = list(reading.values())
            refused = ""
            if len(busy) >= AT_ONCE or busy.count(uid) >= AT_ONCE_OF_ONE:
                refused = "too many logs are being read: try again in a minute"
            pid = os.fork()
            if pid == 0:
                asked.close()
                _answer(gone, refused, path, uid, offset, limit)
            reading[pid] = uid
            os.close(gone)
    except (OSError, ValueError):
        pass  # the dashboard is gone
    finally:
        os._exit(0)  # whatever happened: this process must never go on as a dashboard


def _answer(gone: int, refused: str, path: str, uid: int, offset: int, limit: int) -> None:
    piece = Piece(b"")
    try:
        try:
            _become(uid)
            if not refused:
                piece = read_plain(path, offset, limit)
        except CommandRefused as error:
            refused = error.message
        except Exception as error:  # noqa: BLE001 - the one who asks must get an answer
            refused = f"{path} could not be read: {type(error).__name__}"
        with os.fdopen(gone, "wb") as pipe:
            pipe.write(_packed(refused, piece))
    finally:
        os._exit(0)


def _packed(refused: str, piece: Piece = Piece(b"")) -> bytes:  # noqa: B008 - a frozen value
    head = {"refused": refused, "length": len(piece.data), "start": piece.start}
    return json.dumps(head).encode() + b"\n" + piece.data


def _become(uid: int) -> None:
    """Give up root for ever in this process, and be the owner with the owner's groups."""
    import pwd
    import signal

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(PATIENCE))  # a read that hangs ends with its question
    try:
        person = pwd.getpwuid(uid)
    except KeyError:
        raise CommandRefused(f"user {uid} of this job is not known on this machine") from None
    os.initgroups(person.pw_name, person.pw_gid)
    os.setresgid(person.pw_gid, person.pw_gid, person.pw_gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid):
        raise CommandRefused(f"the rights of user {uid} could not be taken on")


def _all(connection: socket.socket, deadline: float) -> bytes:
    """All that the other side sends until it closes; at the latest at `deadline`."""
    found = bytearray()
    while True:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        piece = connection.recv(1 << 16)
        if not piece:
            return bytes(found)
        found += piece


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        if not piece:
            raise OSError("the other side is gone")
        found += piece
    return found
