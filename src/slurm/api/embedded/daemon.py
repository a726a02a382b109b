"""The scheduler process: one event loop over its socket, its children and its timers."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import selectors
import shlex
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from slurm.api.embedded import host
from slurm.api.embedded.place import Place
from slurm.api.embedded.queue import Queue
from slurm.api.embedded.scheduler import Scheduler
from slurm.api.embedded.verbs import Refused, carry_out
from slurm.shutdown import Shutdown

PROTOCOL = 1
_LARGEST_REQUEST = 64 * 2**20
_LARGEST_LOG = 2**20
_FIRST_REQUEST_S = 10.0
# A client asks as soon as it is connected, and reads the answer; one that does neither is let go.
_SILENT_S = 30.0
_PRUNE_EVERY_S = 3600.0
_RETRY_STORE_S = 5.0
_POLL_ADOPTED_S = 1.0  # only where the system has no descriptors for processes


class Daemon:
    """The event loop."""

    def __init__(self, place: Place, environ: dict[str, str]) -> None:
        self.place = place
        self.selector = selectors.DefaultSelector()
        self.idle_s = _seconds(environ, "SLURM_SDK_EMBEDDED_IDLE_S", 600.0)
        self.silent_s = min(_SILENT_S, max(1.0, self.idle_s))
        self.scheduler = Scheduler(
            place,
            Queue(place.database),
            host.machine(environ),
            kill_wait=_seconds(environ, "SLURM_SDK_EMBEDDED_KILL_WAIT", 30.0),
            user=_user_name(),
            watch=self._watch,
        )
        self._polled: set[int] = set()
        self._answers: dict[socket.socket, bytes] = {}
        self._received: dict[socket.socket, bytearray] = {}
        self._heard: dict[socket.socket, float] = {}
        # Connections of processes that wait for other jobs, and the attempts they belong to.
        self._waiting: dict[socket.socket, str] = {}
        # Somebody started this process to ask it something: it waits for that client to come.
        self._last_request = time.monotonic() + _FIRST_REQUEST_S
        self._pruned = 0.0
        self._stopping = False
        self._stored = True
        self.listener = _listen(place.socket)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self.selector.register(_signals(), selectors.EVENT_READ, self._signalled)
        self.scheduler.recover(time.time())

    def run(self) -> None:
        """Serve until told to stop, or until idle for long enough."""
        while not self._stopping:
            more = self._turn()
            for key, _ in self.selector.select(0 if more else self._wait_s()):
                key.data(key.fileobj)
            if not more and self._idle_for() >= self.idle_s and not self._received:
                break
        self._leave()

    def _turn(self) -> bool:
        """Do all that can be done now; True if there is more to start at once."""
        now = time.time()
        scheduler = self.scheduler
        for pid in [pid for pid in self._polled if host.start_time(pid) is None]:
            self._polled.discard(pid)
            scheduler.attempt_over(pid, now)
        scheduler.fire(now)
        scheduler.waiting.settle(now)
        # What a client is told, and what runs, is on disk first.
        scheduler.store()
        self._send_answers()
        self._drop_silent()
        more = scheduler.start_ready(now)
        scheduler.waiting.settle(now)
        self._stored = scheduler.store()
        if now - self._pruned > _PRUNE_EVERY_S:
            self._pruned = now
            scheduler.queue.prune(now)
            _bound_log(self.place.log)
        return more

    def _wait_s(self) -> float:
        """How long nothing is due."""
        waits = [_PRUNE_EVERY_S]
        due = self.scheduler.next_time()
        if due is not None:
            waits.append(due - time.time())
        if self._polled:
            waits.append(_POLL_ADOPTED_S)
        if not self._stored:
            waits.append(_RETRY_STORE_S)
        if self._heard:
            waits.append(min(self._heard.values()) + self.silent_s - time.monotonic() + 0.001)
        elif self.scheduler.idle:
            waits.append(self.idle_s - self._idle_for() + 0.001)
        return max(0.0, min(waits))

    def _idle_for(self) -> float:
        return time.monotonic() - self._last_request if self.scheduler.idle else 0.0

    def _leave(self) -> None:
        """Go: no new client finds the socket, and one that already connected is still served."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.place.socket)
        self.selector.unregister(self.listener)
        self._accept(self.listener)
        deadline = time.monotonic() + 2
        while self._received and time.monotonic() < deadline:
            for key, _ in self.selector.select(0.1):
                key.data(key.fileobj)
            self._turn()
        self.scheduler.queue.close()

    # ---- children -------------------------------------------------------------------------------

    def _watch(self, pid: int) -> None:
        """Learn of the end of a process that another scheduler started."""
        descriptor = host.exit_descriptor(pid)
        if descriptor is None:
            self._polled.add(pid)
        else:
            self.selector.register(
                descriptor, selectors.EVENT_READ, lambda _: self._adopted_ended(descriptor, pid)
            )

    def _adopted_ended(self, descriptor: int, pid: int) -> None:
        self.selector.unregister(descriptor)
        os.close(descriptor)
        self.scheduler.attempt_over(pid, time.time())

    def _signalled(self, signals: Shutdown) -> None:
        signals.drain()
        self._stopping |= signals.requested
        for pid in _ended_children():
            self.scheduler.attempt_over(pid, time.time())

    # ---- clients --------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = listener.accept()
                if _peer_uid(client) != os.geteuid():
                    client.close()
                    continue
                client.setblocking(False)
                self._received[client] = bytearray()
                self._heard[client] = time.monotonic()
                self.selector.register(client, selectors.EVENT_READ, self._receive)
                self._receive(client)

    def _receive(self, client: socket.socket) -> None:
        buffer = self._received[client]
        try:
            data = client.recv(2**20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard[client] = time.monotonic()
        buffer += data
        line, newline, _ = buffer.partition(b"\n")
        if newline:
            self._last_request = time.monotonic()
            if self._begins_to_wait(client, bytes(line)):
                return
            self._answers[client] = json.dumps(self._answer(bytes(line))).encode() + b"\n"
        elif not data or len(buffer) > _LARGEST_REQUEST:
            self._drop(client)

    def _begins_to_wait(self, client: socket.socket, line: bytes) -> bool:
        """Whether a process of a job said that it waits: it does while it stays connected."""
        if b'"waiting"' not in line:
            return False
        try:
            message = json.loads(line)
            waits = (message["v"], message["verb"]) == (PROTOCOL, "waiting")
            run = str(message["run"])
        except (ValueError, TypeError, KeyError):
            return False
        if not waits or not self.scheduler.job_waits(run, 1):
            return False
        del self._received[client], self._heard[client]
        self._waiting[client] = run
        self.selector.modify(client, selectors.EVENT_READ, self._wakes)
        return True

    def _wakes(self, client: socket.socket) -> None:
        """The process that waited goes on, or has ended."""
        with contextlib.suppress(BlockingIOError, OSError):
            if client.recv(4096):
                return
        self.scheduler.job_waits(self._waiting.pop(client), -1)
        self.selector.unregister(client)
        client.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
            version = message.get("v")
            if version != PROTOCOL:
                # A newer client replaces this scheduler: running jobs go on, the next one adopts.
                self._stopping = isinstance(version, int) and version > PROTOCOL
                return {"v": PROTOCOL, "error": "version", "message": "other protocol version"}
            if message.get("verb") == "stop":
                self._stopping = True
                return {"v": PROTOCOL, "value": None}
            return {"v": PROTOCOL, "value": carry_out(self.scheduler, message)}
        except Refused as refusal:
            return {
                "v": PROTOCOL,
                "error": refusal.error,
                "message": str(refusal),
                "hint": refusal.hint,
            }
        except Exception as problem:  # noqa: BLE001 - one bad request must not end all others
            host.note(traceback.format_exc())
            text = f"the embedded scheduler failed: {type(problem).__name__}: {problem}"
            return {
                "v": PROTOCOL,
                "error": "CommandRefused",
                "message": text,
                "hint": f"see {self.place.log}",
            }

    def _send_answers(self) -> None:
        for client, answer in list(self._answers.items()):
            try:
                sent = client.send(answer)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(client)
                continue
            if sent == len(answer):
                self._drop(client)
            else:
                if sent:
                    self._heard[client] = time.monotonic()
                self._answers[client] = answer[sent:]
                self.selector.modify(client, selectors.EVENT_WRITE, lambda _: None)

    def _drop_silent(self) -> None:
        """Let go of those who are connected and neither ask nor read: they keep nobody here."""
        late = time.monotonic() - self.silent_s
        for client in [client for client, heard in self._heard.items() if heard <= late]:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        self._answers.pop(client, None)
        self._received.pop(client, None)
        self._heard.pop(client, None)
        self.selector.unregister(client)
        client.close()


def main(place: Place, ready: int) -> None:
    """Become the scheduler of this place; says on `ready` when it serves, or why it cannot."""
    if os.fork():  # the starter does not have to wait for this process
        os._exit(0)
    os.umask(0o077)
    try:
        daemon = _begin(place)
    except Exception as problem:  # the client that started us must hear of it
        os.write(ready, f"{type(problem).__name__}: {problem}".encode()[:4000])
        raise
    os.write(ready, b"ready" if daemon else b"busy")
    os.close(ready)
    if daemon is not None:
        daemon.run()


def _begin(place: Place) -> Daemon | None:
    """Make the place ready to serve; None if another scheduler is there."""
    lock = os.open(place.life_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _lock_within(lock, 5.0):
        return None
    # Of the same length always, so that it can be written on a full disk, too.
    os.write(lock, f"{os.getpid():<12}\n".encode())
    # Tools that clean /tmp leave a locked directory alone.
    fcntl.flock(os.open(place.directory, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    _write_srun(place)
    os.makedirs(os.path.join(place.directory, "jobs"), mode=0o700, exist_ok=True)
    return Daemon(place, dict(os.environ))


def _lock_within(descriptor: int, seconds: float) -> bool:
    """Take the lock; an earlier scheduler may be about to leave."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _write_srun(place: Place) -> None:
    """Put an `srun` into the jobs' own folder of programs."""
    os.makedirs(place.bin, mode=0o700, exist_ok=True)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "srun.py")
    python = shlex.quote(sys.executable or shutil.which("python3") or "python3")
    text = f'#!/bin/sh\nexec {python} -I -S {shlex.quote(program)} "$@"\n'
    path, draft = os.path.join(place.bin, "srun"), os.path.join(place.bin, ".srun")
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        if file.read() == text:
            return
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o700)
    os.replace(draft, path)


def _listen(path: str) -> socket.socket:
    # The life lock is ours: whoever listened there is gone.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _signals() -> Shutdown:
    """Readable after SIGCHLD or SIGTERM."""
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    return Shutdown(stops=(signal.SIGTERM,), wakes=(signal.SIGCHLD,))


def _ended_children() -> Iterator[int]:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid


def _peer_uid(client: socket.socket) -> int:
    """The user at the other end; the directory's mode already keeps all others out."""
    if hasattr(socket, "SO_PEERCRED"):
        packed = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", packed)[1])
    local_peercred = 1  # macOS: struct xucred begins with version and uid
    packed = client.getsockopt(0, local_peercred, 76)
    return int(struct.unpack_from("II", packed)[1])


def _bound_log(path: str) -> None:
    """Keep the log small: the last part moves aside once."""
    try:
        if os.path.getsize(path) <= _LARGEST_LOG:
            return
        os.replace(path, f"{path}.old")
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return
        raise
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _seconds(environ: dict[str, str], name: str, default: float) -> float:
    try:
        return float(environ.get(name, ""))
    except ValueError:
        return default


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
