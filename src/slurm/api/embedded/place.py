"""Where the embedded scheduler lives: its private directory, verified, and the names in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from slurm.errors import SchedulerUnreachable

DIRECTORY_VARIABLE = "SLURM_SDK_EMBEDDED_DIR"

# The shortest limit of the systems we run on is macOS with 104 bytes, the final NUL included.
_LONGEST_SOCKET_PATH = 100


@dataclass(frozen=True)
class Place:
    """The paths of one embedded scheduler."""

    directory: str
    socket: str

    @property
    def database(self) -> str:
        """The SQLite queue."""
        return os.path.join(self.directory, "queue.db")

    @property
    def start_lock(self) -> str:
        """Locked by the client that starts the scheduler, so that only one does."""
        return os.path.join(self.directory, "start.lock")

    @property
    def life_lock(self) -> str:
        """Locked by the scheduler for as long as it lives; holds its process id."""
        return os.path.join(self.directory, "scheduler.pid")

    @property
    def log(self) -> str:
        """What the scheduler has to say about itself."""
        return os.path.join(self.directory, "log")

    @property
    def bin(self) -> str:
        """First on the PATH of each job; holds `srun`."""
        return os.path.join(self.directory, "bin")

    def batch(self, batch_id: int) -> str:
        """The directory of one submission: script, environment, run and exit files."""
        return os.path.join(self.directory, "jobs", str(batch_id))


def find_place(environ: Mapping[str, str]) -> Place:
    """The place that this environment names, made if need be; refused if it is not ours alone.

    `/tmp` and not `$XDG_RUNTIME_DIR`: the latter goes away with the user's last login session,
    and the jobs must not; and a cron job, which has none, must find the same scheduler.
    """
    own = f"/tmp/slurm-sdk-{os.geteuid()}"
    directory = os.path.abspath(environ.get(DIRECTORY_VARIABLE) or own)
    make_private(directory)
    socket = os.path.join(directory, "socket")
    if len(os.fsencode(socket)) > _LONGEST_SOCKET_PATH:
        import hashlib  # rarely needed, and not for nothing

        make_private(own)
        short = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        socket = os.path.join(own, f"{short}.socket")
    return Place(directory, socket)


def make_private(directory: str) -> None:
    """Make the directory with mode 0700, or verify that it is this user's and closed to others."""
    fix = f"set {DIRECTORY_VARIABLE} to a directory of your own on a local disk"
    try:
        try:
            found = os.lstat(directory)
        except FileNotFoundError:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            found = os.lstat(directory)
    except OSError as error:
        raise SchedulerUnreachable(
            f"the embedded scheduler's directory {directory!r} cannot be made: {error.strerror}",
            hint=fix,
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise SchedulerUnreachable(f"{directory!r} is not a directory", hint=fix)
    if found.st_uid != os.geteuid():
        raise SchedulerUnreachable(
            f"{directory!r} belongs to user {found.st_uid}, not to you ({os.geteuid()})", hint=fix
        )
    if found.st_mode & 0o077:
        raise SchedulerUnreachable(
            f"{directory!r} is open to others (mode {stat.S_IMODE(found.st_mode):04o})",
            hint=f"chmod 700 {directory}",
        )
