"""What the agent finds and keeps on the login node: Slurm's commands, locks, answers given once.

Runs on the login node, on Python 3.6.
"""

import contextlib
import json
import os
import subprocess
import time
import zlib
from typing import Any, Callable, Iterator

from slurm import rundir
from slurm.api import starting
from slurm.api.agent_error import AgentError
from slurm.api.pythons import which

LOCKS = ".locks"
ONCE = ".once"

#: Where Slurm lies on sites that bring it to PATH by login shells only.
_SLURM_FOLDERS = (
    "/usr/local/bin",
    "/opt/slurm/bin",
    "/opt/slurm/current/bin",
    "/usr/local/slurm/bin",
    "/cm/shared/apps/slurm/current/bin",
)
_LOCK_WAIT = 210.0
_KEPT = 86400.0


def find_slurm() -> None:
    """Put Slurm's commands on this process's PATH, where only a login shell would have them."""
    if which("sbatch"):
        return
    for folder in _SLURM_FOLDERS:
        if os.access(os.path.join(folder, "sbatch"), os.X_OK):
            os.environ["PATH"] = os.environ.get("PATH", os.defpath) + os.pathsep + folder
            return
    mark = "slurm-sdk-environment"
    try:
        # A login shell may print anything; what stands behind the mark is the environment.
        done = starting.run(
            ["/bin/sh", "-lc", f"echo {mark}; env -0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=15,
        )
    except (OSError, subprocess.SubprocessError):
        return
    _, _, text = done.stdout.decode("utf-8", "surrogateescape").partition(mark + "\n")
    found = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    for name in ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH"):
        if name in found:
            os.environ[name] = found[name]


def alone(base: str, run: str, act: Callable[[], Any]) -> Any:
    """Do what only one sender may do for a run at a time.

    The agent of a lost connection may still be at it when the next one is asked to go on.
    """
    with _lock(base, run):
        return act()


@contextlib.contextmanager
def _lock(base: str, name: str) -> Iterator[None]:
    import fcntl

    folder = os.path.join(base, LOCKS)
    try:
        rundir.make_private_folder(folder)
        # A fixed number of files, however many runs there are.
        path = os.path.join(folder, "{:02x}".format(zlib.crc32(name.encode("utf-8")) & 0xFF))
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise AgentError("rundir", f"{folder} cannot be written: {error.strerror}") from error
    try:
        until = time.time() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.time() >= until:
                    text = "an earlier request about this run is still being carried out"
                    raise AgentError("timeout", text) from None
                time.sleep(0.02)
            except OSError:
                break  # a file system without locks; the claim in the job still holds
        yield
    finally:
        os.close(fd)


def once(base: str, token: str, act: Callable[[], Any]) -> Any:
    """Do what must not be done twice, for a sender that may ask again because no answer came."""
    if not token.isalnum():
        raise AgentError("agent", f"{token!r} is not a token")
    folder = os.path.join(base, ONCE)
    path = os.path.join(folder, token)
    with _lock(base, token):
        try:
            with open(path) as f:
                text = f.read()
        except OSError:
            text = ""
        if text == "begun":
            words = "the connection was lost in the middle of it: it may or may not have been done"
            raise AgentError("unknown", words)
        if text:
            return json.loads(text)
        rundir.make_private_folder(folder)
        _forget_old(folder)
        rundir.write_atomically(path, b"begun", sync=False)
        try:
            answer = act()
        except BaseException:  # raised again
            os.unlink(path)  # it was refused: the same may be asked again
            raise
        rundir.write_atomically(path, json.dumps(answer).encode(), sync=False)
        return answer


def _forget_old(folder: str) -> None:
    """Answers are kept for a day, and a few hundred of them at most are looked at here."""
    names = os.listdir(folder)
    if len(names) < 200:
        return
    for name in names:
        with contextlib.suppress(OSError):
            path = os.path.join(folder, name)
            if os.stat(path).st_mtime < time.time() - _KEPT:
                os.unlink(path)
