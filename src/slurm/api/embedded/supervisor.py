"""The process between the scheduler and one job: it outlives the scheduler and keeps the exit code.

It is a fork of the scheduler without exec: a new interpreter would cost ten times as much per job.
On Linux it is a subreaper, so that every process of the job stays below it whatever sessions and
groups it makes for itself; a mark in the environment alone could be wiped by the job.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slurm.api.embedded import host

LAUNCH_FAILED = 53  # what Slurm reports as the signal when a job's log cannot be opened
_UNKILLABLE_AFTER_S = 5.0
_EXIT_LENGTH = 40
# The supervisor outlives them; the script gets them back as a new program expects them.
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True)
class Launch:
    """Everything needed to start one attempt of a job."""

    directory: str
    run: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: str
    output: str
    error: str
    append: bool
    umask: int
    boot: str
    devices: tuple[int, ...]
    kill_wait: float = 30.0


@dataclass(frozen=True)
class Running:
    """What a run file says: who supervises the attempt and since when."""

    pid: int
    start_time: str
    boot: str
    started: float
    devices: tuple[int, ...]
    batch_pid: int | None

    def lives(self, boot: str) -> bool:
        """Whether that very process still runs."""
        return self.boot == boot and host.start_time(self.pid) == self.start_time


@dataclass(frozen=True)
class Exit:
    """How an attempt ended."""

    code: int
    signal: int
    end: int


def start(launch: Launch) -> int:
    """Start an attempt; gives the supervisor's process id."""
    pid = os.fork()
    if pid:
        return pid
    gc.disable()  # a collection would touch, and so copy, all of the scheduler's memory
    try:
        _supervise(launch)
    except BaseException:  # noqa: BLE001 - a forked child must never return into the scheduler
        host.note(traceback.format_exc())
        with contextlib.suppress(OSError):  # else it looks lost, which is true as well
            _record(launch, 0, LAUNCH_FAILED)
        os._exit(1)
    os._exit(0)


def run_file(directory: str, run: str) -> str:
    """Made by the supervisor before the job starts: where it exists, the attempt was started."""
    return os.path.join(directory, f"run.{run}")


def exit_file(directory: str, run: str) -> str:
    """Made by the supervisor when the job has ended."""
    return os.path.join(directory, f"exit.{run}")


def step_starters(directory: str, run: str, processes: Collection[int]) -> set[int]:
    """The srun processes of an attempt, among those of its processes that live."""
    folder = os.path.join(directory, f"steps.{run}")
    found = set()
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        text = _read(os.path.join(folder, name)).strip()
        if text.isdigit():  # else its srun has not written it yet
            found.add(int(text))
    return found.intersection(processes)


def mark_told(directory: str, run: str) -> bool:
    """Note that the steps of this attempt are being asked to end; False if they already were."""
    try:
        _write(os.path.join(directory, f"told.{run}"), "", os.O_EXCL)
    except FileExistsError:
        return False
    return True


def read_running(directory: str, run: str) -> Running | None:
    """The run file's content, if the attempt was started."""
    lines = _read(run_file(directory, run)).splitlines(keepends=True)
    if not lines or not lines[0].endswith("\n"):
        return None  # not claimed, or just being claimed
    pid, start_time, boot, started, devices = lines[0].rstrip("\n").split(" ")
    return Running(
        int(pid),
        start_time,
        boot,
        float(started),
        tuple(int(device) for device in devices.split(",") if device),
        int(lines[1]) if len(lines) > 1 else None,
    )


def read_exit(directory: str, run: str) -> Exit | None:
    """The exit file's content, if the attempt has ended."""
    words = _read(exit_file(directory, run)).split()
    return Exit(*map(int, words)) if len(words) == 3 else None


def _supervise(launch: Launch) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for signum in _HANDLED:
        signal.signal(signum, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, min(os.sysconf("SC_OPEN_MAX"), 65536))
    reaper = host.become_subreaper()
    if not _claim(launch):
        return
    # Room for the exit code, now: at the job's end the disk may be full.
    _write(f"{exit_file(launch.directory, launch.run)}.draft", " " * _EXIT_LENGTH, os.O_TRUNC)
    os.umask(launch.umask)
    streams = _open_streams(launch)
    if streams is None:
        _record(launch, 0, LAUNCH_FAILED)
        return
    child = _spawn(launch, *streams)
    for stream in set(streams):
        os.close(stream)
    if child is None:
        _record(launch, 127, 0)
        return
    os.umask(0o077)
    os.chdir("/")
    _write(run_file(launch.directory, launch.run), f"{child}\n", os.O_APPEND)
    status = _wait_for(child)
    _end_the_rest(launch, child, reaper)
    code = os.waitstatus_to_exitcode(status)
    _record(launch, max(code, 0), max(-code, 0))


def _claim(launch: Launch) -> bool:
    """Make the run file; False if another process has it.

    After a crash a second scheduler may start the same attempt: only one gets past this line.
    """
    pid = os.getpid()
    devices = ",".join(map(str, launch.devices))
    line = f"{pid} {host.start_time(pid)} {launch.boot} {time.time():.3f} {devices}\n"
    try:
        _write(run_file(launch.directory, launch.run), line, os.O_EXCL)
    except FileExistsError:
        return False
    return True


def _open_streams(launch: Launch) -> tuple[int, int] | None:
    lost = ""
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        lost = f"error: couldn't chdir to `{launch.cwd}': {error.strerror}: going to /tmp instead\n"
        os.chdir("/tmp")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if launch.append else os.O_TRUNC)
    try:
        out = os.open(launch.output, flags, 0o666)
        err = out if launch.error == launch.output else os.open(launch.error, flags, 0o666)
    except OSError as error:
        host.note(f"job {launch.run}: {error}")
        return None
    os.write(err, os.fsencode(lost))
    return out, err


def _spawn(launch: Launch, out: int, err: int) -> int | None:
    """Start the script in a session of its own; None if there is no such interpreter."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    ]
    try:
        # Not fork and exec: this does not copy the memory of the scheduler once more.
        return os.posix_spawn(
            launch.argv[0],
            launch.argv,
            launch.environ,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(*_IGNORED_BY_PYTHON, *_HANDLED),
        )
    except (OSError, ValueError) as error:
        os.write(err, os.fsencode(f"error: execve(): {launch.argv[0]}: {error}\n"))
        return None


def _wait_for(child: int) -> int:
    """Reap whatever ends below this process until the script itself has ended."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _end_the_rest(launch: Launch, script: int, reaper: bool) -> None:
    """End what the script left running, as Slurm does: steps are asked, the rest is killed."""
    if not reaper:
        host.send_group_signal(script, signal.SIGKILL)
        return
    patience = time.monotonic() + launch.kill_wait
    pause = 0.002
    while time.monotonic() < patience + _UNKILLABLE_AFTER_S:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        except ChildProcessError:
            return
        table = host.process_table()
        below = host.descendants(table, os.getpid())
        starters = step_starters(launch.directory, launch.run, below)
        ranks = {rank for starter in starters for rank in host.descendants(table, starter)}
        if time.monotonic() > patience:
            starters, ranks = set(), set()
        host.send_signal(set(below) - starters - ranks, signal.SIGKILL)
        if ranks and mark_told(launch.directory, launch.run):
            host.send_signal(ranks, signal.SIGTERM)
            host.send_signal(ranks, signal.SIGCONT)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def _record(launch: Launch, code: int, signum: int) -> None:
    path = exit_file(launch.directory, launch.run)
    _write(f"{path}.draft", f"{code} {signum} {int(time.time())}\n".ljust(_EXIT_LENGTH), 0)
    os.replace(f"{path}.draft", path)


def _write(path: str, text: str, flag: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""
