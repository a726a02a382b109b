"""Where a client of the campaign lives: a small disk, late files, another clock, a far network."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server import Sshd

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
#: How long a client behind `late_files` may see what it saw before, in seconds.
LATE = 3


def _do(*words: str) -> None:
    subprocess.run(words, check=True, timeout=60, capture_output=True)


# ---- disk ---------------------------------------------------------------------------------------


class SmallDisk:
    """A file system in memory that can be filled up."""

    def __init__(self, place: Path) -> None:
        self.ballast = place / ".ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        with contextlib.suppress(OSError), open(self.ballast, "wb", buffering=0) as f:
            while True:
                f.write(bytes(64 << 10))
        with contextlib.suppress(OSError), open(self.ballast, "ab", buffering=0) as f:
            while True:
                f.write(b"x")

    def free(self) -> None:
        """Give it all back."""
        self.ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[SmallDisk]:
    """A disk of 24 MiB in place of a directory."""
    _do("mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "campaign", str(place))
    try:
        yield SmallDisk(place)
    finally:
        _do("umount", "-l", str(place))


# ---- clock --------------------------------------------------------------------------------------


def clock_env(offset: Path) -> dict[str, str]:
    """Variables of a process, and of those it starts, whose clock is off by what the file says."""
    offset.write_text("+0\n")
    return {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        # Who sets a clock does not touch this one.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Days ahead, everything kept is old and is removed: not what other processes keep.
        "XDG_CACHE_HOME": str(offset.with_name("cache")),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).with_name("clock")), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }


# ---- files --------------------------------------------------------------------------------------

# In a mount namespace of the client's own the directory is a FUSE mount of itself, whose attributes
# and names the kernel believes for some seconds, as those of a network file system.
_LATE = f"""
pid=$1 place=$2; shift 2
bindfs -f -o attr_timeout={LATE},entry_timeout={LATE},negative_timeout={LATE} "$place" "$place" &
echo $! > "$pid.new"; mv "$pid.new" "$pid"
until mountpoint -q "$place"; do sleep 0.02; done
exec "$@"
"""


@contextlib.contextmanager
def late_files(place: Path, pid: Path) -> Iterator[list[str]]:
    """The words before a command that make it see a directory late."""
    yield ["unshare", "-m", "bash", "-c", _LATE, "late", str(pid), str(place)]
    if pid.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)


# ---- network ------------------------------------------------------------------------------------


class FarAway:
    """A network namespace, a cable that leads out of it, and an sshd at the other end."""

    def __init__(self, env: dict[str, str], place: Path) -> None:
        self._env, self._place = env, place
        self.name = f"sdk{os.getpid()}"
        first, second = divmod(os.getpid(), 250)
        self._address = f"10.{200 + first % 50}.{second}"
        self.prefix = ["nsenter", f"--net=/run/netns/{self.name}"]

    def __enter__(self) -> FarAway:
        near, far, here, there = (
            self.name,
            f"{self.name}f",
            f"{self._address}.1",
            f"{self._address}.2",
        )
        _do("ip", "netns", "add", self.name)
        _do("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
        _do("ip", "addr", "add", f"{here}/30", "dev", near)
        _do("ip", "link", "set", near, "up")
        for words in (["addr", "add", f"{there}/30", "dev", far], ["link", "set", far, "up"]):
            _do("ip", "-n", self.name, *words)
        self.sockets = Path(tempfile.mkdtemp(prefix="ctl-", dir="/tmp"))
        self.sshd = Sshd(env=self._env, settings=(f"ListenAddress {here}",))
        public = Path(f"{self.sshd.host_key}.pub").read_text().split()[:2]
        known = self._place / "known_hosts"
        known.write_text(f"[{here}]:{self.sshd.port} {' '.join(public)}\n")
        options = {"UserKnownHostsFile": str(known)}
        self.reach: dict[str, Any] = self.sshd.arguments(hostname=here, ssh_options=options)
        return self

    def cut(self) -> None:
        """Nothing passes, and nobody is told."""
        _do("ip", "link", "set", self.name, "down")

    def join(self) -> None:
        """It passes again."""
        _do("ip", "link", "set", self.name, "up")

    def session(self) -> int:
        """The process of sshd that holds the client's connection, 0 where there is none."""
        assert self.sshd.process is not None
        words = ["ps", "--ppid", str(self.sshd.process.pid), "-o", "pid="]
        found = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.split()
        return int(found[0]) if found else 0

    def __exit__(self, *_: object) -> None:
        for socket in self.sockets.iterdir():
            words = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "x"]
            subprocess.run(words, capture_output=True, timeout=60)
        shutil.rmtree(self.sockets, ignore_errors=True)
        self.sshd.remove()
        # The cable goes with the namespace.
        _do("ip", "netns", "delete", self.name)
