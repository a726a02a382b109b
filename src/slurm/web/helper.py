"""The dashboard's helper: reads a piece of a log as its owner, and acts on a job as its user.

It runs as root, so it is small: these lines and `slurm.web.logfiles.read_plain` are all that does.
One connection is one question and one answer. The kernel says who asks (SO_PEERCRED), and nobody
but the dashboard's own user is answered. Each answer is given by a child that has become the user
in question for good, never root nor a system's account, and that an alarm ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from slurm.errors import CommandRefused
from slurm.web import logfiles

#: Seconds that a file system or a command may take; and that the question itself may take.
PATIENCE, ASKING = 15, 1.0
#: Answers at the same time: in all, and for one user, whose own file system may let reads hang.
AT_ONCE, AT_ONCE_OF_ONE = 32, 4
#: Bytes of a question.
LONGEST = 64 << 10
#: Accounts below this number are the system's; those that distributions and systemd keep above;
#: and those that hold the keys of the cluster, whatever number they have.
LEAST, KEPT = 1000, range(60_000, 65_536)
NEVER = ("root", "slurm", "munge")

#: What can be done to a job; Slurm decides whether this user may.
ACTS = {
    "cancel": ["scancel"],
    "hold": ["scontrol", "hold"],
    "release": ["scontrol", "release"],
    "requeue": ["scontrol", "requeue"],
}
_JOB = re.compile(r"[0-9]{1,12}(?:[_+][0-9]{1,9})?\Z")


def serve(
    listening: socket.socket, asker: int, least: int = LEAST, never: Sequence[str] = NEVER
) -> None:
    """Answer the user `asker` for ever, about users from the number `least` on."""
    working: dict[int, int] = {}  # the uid that each child has become
    while True:
        connection, _ = listening.accept()
        with connection:
            for pid in [pid for pid in working if os.waitpid(pid, os.WNOHANG)[0]]:
                del working[pid]
            if _peer(connection) != asker:
                continue
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
                question = json.loads(_all(connection, ASKING))
                uid = question["uid"]
                busy = list(working.values())
                full = len(busy) >= AT_ONCE or busy.count(uid) >= AT_ONCE_OF_ONE
                pid = os.fork()
                if not pid:
                    listening.close()
                    _answer(connection, question, (least, never), full)  # never returns
                working[pid] = uid


def _peer(connection: socket.socket) -> int:
    """Who is at the other end, as the kernel says."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", told)
    return int(uid)


def _all(connection: socket.socket, seconds: float) -> bytes:
    """All that the other side sends until it has no more, within a time and a size."""
    until, found = time.monotonic() + seconds, b""
    while len(found) <= LONGEST:
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(LONGEST)
        if not piece:
            return found
        found += piece
    raise ValueError("too long a question")


def _answer(
    connection: socket.socket,
    question: dict[str, Any],
    limits: tuple[int, Sequence[str]],
    full: bool,
) -> None:
    """In the child: become the user, do one of the two things, say how it went, and end."""
    refused, piece = "", logfiles.Piece(b"")
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)  # what hangs ends with its question
        try:
            if full:
                raise CommandRefused("too many logs are being read: try again in a minute")
            become(question["uid"], *limits)
            if "act" in question:
                _act(question["act"], question["job"])
            else:
                offset, limit = int(question["offset"]), int(question["limit"])
                limit = min(limit, logfiles.MOST)
                piece = logfiles.read_plain(str(question["path"]), offset, limit)
        except CommandRefused as error:
            refused = error.message
        except Exception as error:  # noqa: BLE001 - the one who asks must get an answer
            refused = f"it could not be done: {type(error).__name__}"
        head = json.dumps({"refused": refused, "start": piece.start}).encode()
        connection.settimeout(PATIENCE)
        connection.sendall(head + b"\n" + piece.data)
    finally:
        os._exit(0)  # whatever happened: a child never goes on as the helper


def become(uid: object, least: int, never: Sequence[str] = NEVER) -> None:
    """Give up root for ever in this process, and be this user with this user's groups."""
    systems = f"user {uid} is the system's: nothing is read or done as that one"
    if not isinstance(uid, int) or uid < max(least, 1) or (least >= LEAST and uid in KEPT):
        raise CommandRefused(systems)
    try:
        person = pwd.getpwuid(uid)
    except KeyError:
        raise CommandRefused(f"user {uid} of this job is not known on this machine") from None
    for name in never:  # by number, for several names may share one
        with contextlib.suppress(KeyError):
            if pwd.getpwnam(name).pw_uid == uid:
                raise CommandRefused(systems)
    os.initgroups(person.pw_name, person.pw_gid)
    os.setresgid(person.pw_gid, person.pw_gid, person.pw_gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (person.pw_gid,) * 3:
        raise CommandRefused(f"the rights of user {uid} could not be taken on")


def _act(act: object, job: object) -> None:
    """Do one of four things to one job; what Slurm says against it is passed on."""
    if not isinstance(act, str) or act not in ACTS:
        raise CommandRefused(f"{act!r} is none of {', '.join(ACTS)}")
    if not isinstance(job, str) or not _JOB.match(job):
        raise CommandRefused(f"{job!r} is no job id")
    env = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
    done = subprocess.run(
        [*ACTS[act], job],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**env, "LC_ALL": "C"},
        cwd="/",
        timeout=PATIENCE - 1,
    )
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CommandRefused(said[-1] if said else f"{ACTS[act][0]} ended with {done.returncode}")


def listen(path: str, owner: int) -> socket.socket:
    """A socket that its owner alone can connect to; systemd hands one over where it made it."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") == "1":
        return socket.socket(fileno=3)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listening.bind(path)
    finally:
        os.umask(before)
    os.chown(path, owner, -1)
    listening.listen(128)
    return listening


def main(words: Sequence[str] | None = None) -> None:
    """`python -m slurm.web.helper --user slurm-dashboard`, as root."""
    parser = argparse.ArgumentParser(prog="slurm.web.helper", description=__doc__)
    parser.add_argument("--user", required=True, help="whom to answer: the dashboard's own user")
    parser.add_argument("--socket", default="/run/slurm-dashboard/helper.sock")
    parser.add_argument("--least-uid", type=int, default=LEAST, help="below are the system's users")
    parser.add_argument("--slurm-user", default="slurm", help="SlurmUser, as whom nothing is done")
    given = parser.parse_args(words)
    asker = pwd.getpwnam(given.user).pw_uid
    never = (*NEVER, given.slurm_user)
    serve(listen(given.socket, asker), asker, given.least_uid, never)


if __name__ == "__main__":
    main()
