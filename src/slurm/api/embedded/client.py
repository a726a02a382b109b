"""The client's side of the embedded scheduler: starts it on demand and asks it over its socket."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import slurm.errors as errors
from slurm.api.embedded.place import Place, find_place
from slurm.api.origin import Origin
from slurm.api.slurm_commands import JobStatus

PROTOCOL = 1
_ANSWER_WITHIN_S = 60.0
_START_WITHIN_S = 20.0
_TRIES = 40
_FAILED_STARTS = 3  # one may be killed as it starts; three have a reason
# What a fresh interpreter and the scheduler need; the rest of this process's environment may hold
# secrets that a long-lived process has no use for.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TMPDIR")


class EmbeddedScheduler:
    """This user's scheduler on this host, with the methods of its Slurm twin.

    It needs no start: each call finds the scheduler's process or starts one. Calls may come from
    several threads and from forked processes, for no connection is kept between them.
    """

    kind = "embedded"

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        #: What answered at a socket, and what the socket was then.
        self._identity: tuple[object, Origin] | None = None

    def submit(self, script: str, env: Mapping[str, str], cwd: str) -> str:
        """Submit a script with `#SBATCH` lines; gives the job id.

        `env` is the environment that sbatch would see, `cwd` the submit directory. The script is
        copied: what happens to the file later changes nothing.
        """
        try:
            with open(script, encoding="utf-8", errors="surrogateescape", newline="") as file:
                text = file.read()
        except OSError as error:
            raise errors.SubmitRefused(
                f"the script {script!r} cannot be read: {error.strerror}"
            ) from error
        found: str = self._ask(
            "submit",
            key=os.urandom(16).hex(),
            script=text,
            name=os.path.basename(script),
            environ=dict(env),
            cwd=os.path.abspath(cwd),
            umask=_umask(),
        )
        return found

    def identify(self) -> Origin:
        """Which queue this is: one that is made later gives the same ids again.

        A scheduler that starts makes its socket again, so as long as that stays, it is the same.
        """
        known, before = self._identity, _stamp(find_place(self._environ))
        if known is not None and before is not None and known[0] == before:
            return known[1]
        instance = str(self.limits().get("Instance") or "")
        found = Origin("embedded", "embedded", socket.gethostname(), instance)
        if before is not None and before == _stamp(find_place(self._environ)):
            self._identity = before, found
        return found

    def status(self, job_ids: Sequence[str]) -> list[JobStatus]:
        """The state of many jobs in one round trip; unknown ids are left out.

        An array's id gives one row per element. Finished jobs are remembered for seven days. No
        id at all means every job that has not ended, or ended within the hour.
        """
        return [JobStatus(*row) for row in self._ask("status", ids=list(job_ids))]

    def queue(self) -> list[JobStatus]:
        """All jobs that have not ended."""
        return [JobStatus(*row) for row in self._ask("queue")]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel jobs, arrays or elements; what is unknown or has ended is passed over."""
        self._ask("cancel", ids=list(job_ids))

    def signal(
        self, job_ids: Sequence[str], signal: int, *, steps: bool = False, full: bool = False
    ) -> None:
        """Send a signal to the batch shells of running jobs.

        With `steps` it goes to what srun started instead, with `full` to every process.
        """
        scope = "full" if full else "steps" if steps else "batch"
        self._ask("signal", ids=list(job_ids), signal=int(signal), scope=scope)

    def requeue(self, job_ids: Sequence[str]) -> None:
        """End running jobs and start them again, SLURM_RESTART_COUNT one higher."""
        self._ask("requeue", ids=list(job_ids))

    def hold(self, job_ids: Sequence[str]) -> None:
        """Keep pending jobs from starting."""
        self._ask("hold", ids=list(job_ids))

    def release(self, job_ids: Sequence[str]) -> None:
        """Let held jobs start."""
        self._ask("release", ids=list(job_ids))

    def nodes(self) -> list[dict[str, Any]]:
        """This host, as one row: what it has and what is taken."""
        found: list[dict[str, Any]] = self._ask("nodes")
        return found

    def partitions(self) -> list[dict[str, Any]]:
        """The one partition, `local`."""
        found: list[dict[str, Any]] = self._ask("partitions")
        return found

    def limits(self) -> dict[str, Any]:
        """The scheduler's own limits."""
        found: dict[str, Any] = self._ask("limits")
        return found

    def stop(self) -> None:
        """Let the scheduler's process end, if there is one. Running jobs go on.

        The next call starts it again, and it takes over what runs and what waits.
        """
        try:
            _exchange(find_place(self._environ), _encode("stop"))
        except (FileNotFoundError, ConnectionError):
            return

    def _ask(self, verb: str, **fields: Any) -> Any:
        """One request, one answer; a scheduler that is not there, or just leaving, is started."""
        request = _encode(verb, **fields)
        place = find_place(self._environ)
        failed_starts = 0
        for _ in range(_TRIES):
            try:
                answer = _exchange(place, request)
            except (FileNotFoundError, ConnectionError):
                answer = b""
            except BlockingIOError:  # more clients at once than its socket queues
                time.sleep(0.05)
                continue
            if not answer.endswith(b"\n"):
                # Nobody there, or gone in the middle: a submission carries a key, so that the
                # scheduler takes it once however often it is sent.
                try:
                    _start(place, self._environ)
                except errors.SchedulerUnreachable:
                    failed_starts += 1
                    if failed_starts == _FAILED_STARTS:
                        raise
                continue
            reply = json.loads(answer)
            if reply.get("error") != "version":
                return _value(reply)
            if reply["v"] > PROTOCOL:
                raise errors.SchedulerUnreachable(
                    "the embedded scheduler that runs here belongs to a newer version of this "
                    "package",
                    hint="use that version here too, or another SLURM_SDK_EMBEDDED_DIR",
                )
            time.sleep(0.05)  # an older one makes room for ours
        raise errors.SchedulerUnreachable(
            f"the embedded scheduler in {place.directory!r} does not answer",
            hint=f"see {place.log}",
            evidence=_tail(place.log),
        )


def _stamp(place: Place) -> object:
    """What changes when another process listens at a scheduler's socket; None: nobody does."""
    try:
        info = os.stat(place.socket)
    except OSError:
        return None
    return place.socket, info.st_dev, info.st_ino, info.st_ctime_ns


def _encode(verb: str, **fields: Any) -> bytes:
    return json.dumps({"v": PROTOCOL, "verb": verb, **fields}).encode() + b"\n"


def _value(reply: dict[str, Any]) -> Any:
    if "error" not in reply:
        return reply["value"]
    kind = getattr(errors, reply["error"], errors.CommandRefused)
    raise kind(reply["message"], hint=reply.get("hint"))


def _exchange(place: Place, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        try:
            connection.connect(place.socket)
            connection.sendall(request)
            received = bytearray()
            while not received.endswith(b"\n"):
                data = connection.recv(2**16)
                if not data:
                    break
                received += data
        except TimeoutError as error:
            raise errors.SchedulerUnreachable(
                f"the embedded scheduler gave no answer within {_ANSWER_WITHIN_S:.0f} s",
                hint=f"see {place.log}",
            ) from error
    return bytes(received)


def _start(place: Place, environ: Mapping[str, str]) -> None:
    """Start the scheduler, unless another client just did."""
    import fcntl  # not on Windows, where this module must still be importable

    lock = os.open(place.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _listening(place):
            _spawn(place, environ)
    finally:
        os.close(lock)


def _listening(place: Place) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        try:
            connection.connect(place.socket)
        except (FileNotFoundError, ConnectionError):
            return False
    return True


def _spawn(place: Place, environ: Mapping[str, str]) -> None:
    import subprocess  # only the first call of all needs it

    from slurm.api import starting

    kept = {
        name: value
        for name, value in environ.items()
        if name in _KEPT_VARIABLES or name.startswith(("SLURM_SDK_EMBEDDED_", "DYLD_"))
    }
    root = os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    heard, ready = os.pipe()
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    arguments = [root, place.directory, place.socket, str(ready)]
    try:
        starter = starting.popen(
            [sys.executable, "-I", "-S", program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=kept,
            pass_fds=(ready,),
            start_new_session=True,
        )
        os.close(ready)
        ready = -1
        starter.wait(_START_WITHIN_S)
        said = _read_within(heard, _START_WITHIN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.SchedulerUnreachable(
            f"the embedded scheduler cannot be started with {sys.executable!r}: {error}"
        ) from error
    finally:
        for descriptor in (log, heard, ready):
            if descriptor >= 0:
                os.close(descriptor)
    if said not in (b"ready", b"busy"):
        raise errors.SchedulerUnreachable(
            "the embedded scheduler did not start",
            hint=f"see {place.log}",
            evidence=[said.decode(errors="replace")] if said else _tail(place.log),
        )


def _read_within(descriptor: int, seconds: float) -> bytes:
    import select

    readable, _, _ = select.select([descriptor], [], [], seconds)
    return os.read(descriptor, 4096) if readable else b""


def _tail(path: str) -> list[str]:
    """The last three lines of the log."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n")[:300] for line in file.readlines()[-3:]]
    except OSError:
        return []


def _umask() -> int:
    """This process's umask; asked of the system, since setting it would disturb other threads."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    found = os.umask(0o077)
    os.umask(found)
    return found
