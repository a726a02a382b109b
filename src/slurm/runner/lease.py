"""A lock on a shared file system that survives the death of its holder; on Python 3.6.

The holder writes who it is and beats while it lives. On its own host others see at once that it
is gone; elsewhere they take the lock over when it has not beaten for a while on their own clock.
"""

import contextlib
import json
import os
import threading
import time
from typing import Any, Dict, Optional

from slurm import rundir

#: How often the holder beats, and how long a silent one is believed to live, in seconds.
BEAT = 2.0
SILENT = 30.0


class Lease:
    """The lock `path`: held by one process at a time, as far as anybody can tell.

    A holder that was only slow may find that another has taken over: what the lock guards must
    stand two at once, and be made twice at worst.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.token = "{}-{}-{}".format(rundir.host_token(), os.getpid(), os.urandom(4).hex())
        self._beats = 0
        self._released = threading.Event()
        self._seen = None  # type: Optional[bytes]
        self._seen_at = 0.0

    def take(self) -> bool:
        """Try to become the holder."""
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(self._content())
        except OSError:
            os.unlink(self.path)  # the disk is full: nobody is to wait for us
            raise
        thread = threading.Thread(target=self._beat)
        thread.daemon = True
        thread.start()
        return True

    def release(self) -> None:
        """Give the lock back, if it is still ours."""
        self._released.set()
        if self.is_ours():
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def is_ours(self) -> bool:
        """Whether nobody has taken over."""
        return holder(self.path).get("token") == self.token

    def break_dead(self) -> Optional[Dict[str, Any]]:
        """Take the lock away from a holder that is dead or silent; who that was, or None."""
        try:
            with open(self.path, "rb") as f:
                content = f.read()
        except OSError:
            return None
        if content != self._seen:
            self._seen, self._seen_at = content, time.monotonic()
        who = _read(content)
        silent = time.monotonic() - self._seen_at > SILENT
        dead = is_dead(who)
        if not (dead or silent):
            return None
        aside = "{}.{}".format(self.path, self.token)
        try:
            os.rename(self.path, aside)
            with open(aside, "rb") as f:
                taken = f.read()
        except OSError:
            return None  # another one was quicker
        if _read(taken).get("token") != who.get("token"):
            # It was a new holder's by now: it gets it back, unless a third one has come.
            with contextlib.suppress(OSError):
                os.link(aside, self.path)
            who = {}
        with contextlib.suppress(OSError):
            os.unlink(aside)
        return dict(who, dead=dead) if who else None

    def _content(self) -> bytes:
        who = {
            "token": self.token,
            "host": rundir.host_token(),
            "pid": os.getpid(),
            "started": start_time(os.getpid()),
            "space": _pid_space(),
            "beats": self._beats,
        }
        return json.dumps(who, sort_keys=True).encode().ljust(400)

    def _beat(self) -> None:
        while not self._released.wait(BEAT):
            self._beats += 1
            try:
                if not self.is_ours():
                    return
                # Opened anew each time: other hosts see what was written when it is closed.
                with open(self.path, "r+b") as f:
                    f.write(self._content())
            except OSError:
                continue


def holder(path: str) -> Dict[str, Any]:
    """Who holds a lock; nothing where nobody does."""
    try:
        with open(path, "rb") as f:
            return _read(f.read())
    except OSError:
        return {}


def is_dead(who: Dict[str, Any]) -> bool:
    """Whether a holder is surely gone: it was a process of this host, and is none any more."""
    if who.get("host") != rundir.host_token() or who.get("space") != _pid_space():
        return False
    return start_time(int(who.get("pid") or 0)) != who.get("started")


def start_time(pid: int) -> Optional[str]:
    """When a process started, in the kernel's own ticks; None for one that is not there."""
    try:
        with open("/proc/{}/stat".format(pid)) as f:
            fields = f.read().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        pass
    if os.path.exists("/proc/self/stat"):
        return None
    try:  # a system without /proc
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "?"


def _pid_space() -> str:
    """Numbers of processes mean the same only within one space of them."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(content: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(content.decode())
    except ValueError:
        return {}  # it is being written
    return found if isinstance(found, dict) else {}
