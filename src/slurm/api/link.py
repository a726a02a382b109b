"""One connection: an ssh process with the agent at its far end; many requests on one channel."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from slurm import locks
from slurm.api import frames, starting
from slurm.api.agent_error import AgentError
from slurm.api.bundle import opening
from slurm.errors import ProtocolError
from slurm.threads import begin

#: What login shells may print before the agent speaks.
NOISE_LIMIT = 1 << 20
#: After so many silent seconds the agent is asked for a sign of life, which may take so long.
QUIET, SIGN_OF_LIFE = 5.0, 15.0
#: No answer takes longer than this, however lively the agent is meanwhile.
LONGEST = 3600.0


class LinkLost(Exception):
    """The connection broke; whether a request was carried out is not known."""


class _Waiter:
    """Somebody who waits for one answer."""

    def __init__(self, told: Callable[[], None] | None = None) -> None:
        self.done = threading.Event()
        self.answer: dict[str, Any] | None = None
        self.told = told

    def give(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer
        self.done.set()
        if self.told is not None:
            self.told()


class Link:
    """A running agent. It is used until it breaks, then thrown away for a new one."""

    def __init__(self, command: Sequence[str]) -> None:
        self.problem: Exception | None = None
        self.stalled = False  # it broke without a word: what carries it may not know yet
        #: Seconds without an answer after which it was given up; 0: it was not for that.
        self.gave_up = 0.0
        self.bytes_in = self.bytes_out = 0
        self._lock = locks.lock("ssh.link")
        self._waiters: dict[int, _Waiter] = {}
        self._number = 0
        self._lost: str | None = None
        self._heard_at = time.monotonic()
        self._asked: tuple[float, _Waiter] | None = None
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # A file, not a pipe: the control process that ssh leaves behind would keep a pipe open.
        self._said: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        self._process = starting.popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C in the terminal is for the user's program alone
            bufsize=0,
        )
        marker = "slurm-agent-" + os.urandom(12).hex()
        self._out.put(opening(marker))
        for loop, args in ((self._write, ()), (self._read, (marker,))):
            begin(loop, "slurm-ssh", *args)

    # ---- requests -------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether this connection can be used no more."""
        return self._lost is not None

    def ask(self, verb: str, *args: Any) -> Any:
        """Carry out a verb and wait for its answer, as long as the other side is alive."""
        waiter = self.start(verb, args)
        until = time.monotonic() + LONGEST
        while not waiter.done.wait(QUIET):
            self.check()
            if time.monotonic() > until:
                self.close(f"no answer within {LONGEST:.0f} s")
        return self.result(waiter)

    def ask_within(self, seconds: float, verb: str, *args: Any) -> Any:
        """The same where the whole conversation may not take longer than this."""
        waiter = self.start(verb, args)
        if not waiter.done.wait(seconds):
            self.gave_up = seconds
            self.close(f"no answer within {seconds:.0f} s")
        return self.result(waiter)

    def start(
        self, verb: str, args: Sequence[Any], told: Callable[[], None] | None = None
    ) -> _Waiter:
        """Send a request; `told` is called when its answer is there or will never be."""
        waiter = _Waiter(told)
        with self._lock:
            if self._lost is not None:
                raise LinkLost(self._lost)
            self._number += 1
            number = self._number
            self._waiters[number] = waiter
        try:
            self._out.put(frames.encode({"id": number, "verb": verb, "args": list(args)}))
        except frames.BadFrame as error:
            with self._lock:
                self._waiters.pop(number, None)
            raise AgentError(
                "too-large", str(error), hint="send large data as a file: File(path)"
            ) from None
        return waiter

    def result(self, waiter: _Waiter) -> Any:
        """The answer that a waiter was given."""
        answer = waiter.answer
        if answer is None:
            raise self.problem or LinkLost(self._lost or "the connection was lost")
        if "error" in answer:
            raise _as_told(answer["error"])
        return answer.get("ok")

    def check(self) -> None:
        """Give up a connection that gives no sign of life."""
        now = time.monotonic()
        asked = self._asked
        if asked is not None and not asked[1].done.is_set():
            if now - asked[0] > SIGN_OF_LIFE:
                self.stalled = True
                self.close(f"no sign of life for {now - self._heard_at:.0f} s")
            return
        if now - self._heard_at >= QUIET:
            with contextlib.suppress(LinkLost):
                self._asked = (now, self.start("ping", ()))

    def close(self, why: str) -> None:
        """End it: whoever waits learns that the connection is lost."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = why
            waiters, self._waiters = list(self._waiters.values()), {}
        self._out.put(None)
        with contextlib.suppress(OSError):
            self._process.kill()
        for waiter in waiters:
            waiter.give(None)

    def forget(self) -> None:
        """In a forked child: let go of the parent's ssh, which ends when its pipes are closed."""
        self._lost = self._lost or "the connection is that of the process that forked this one"
        self._process.returncode = 0  # not ours to wait for, nor to kill
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def wait_ended(self, seconds: float) -> int | None:
        """The exit code of ssh, once it has ended."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        """What ssh said on its standard error."""
        try:
            data = os.pread(self._said.fileno(), 64 << 10, 0)
        except (OSError, ValueError):
            return ""
        return data.decode("utf-8", "replace")

    # ---- the two threads ------------------------------------------------------------------------

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while (data := self._out.get()) is not None:
                view = memoryview(data)
                while view:
                    view = view[pipe.write(view) or 0 :]
                self.bytes_out += len(data)
        except (OSError, ValueError):
            pass  # the reader sees the end, and says so
        with contextlib.suppress(OSError):
            pipe.close()

    def _read(self, marker: str) -> None:
        why = "the connection was lost"
        try:
            stream = _Counted(self, self._process.stdout)
            stream.skip_to(f"\n{marker}\n".encode())
            while True:
                message = frames.read(stream)
                self._deliver(message)
        except frames.BadFrame as error:
            self.problem = ProtocolError(
                f"the agent's answer cannot be read: {error}",
                hint="something between here and there changes the data; the connection was closed",
            )
            why = str(error)
        except (EOFError, OSError, ValueError):
            pass
        self.close(why)
        # Reaped here, so that no dead process stays behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)

    def _deliver(self, message: dict[str, Any]) -> None:
        self._heard_at = time.monotonic()
        number = message.get("id")
        if type(number) is not int:  # 1.0 and True would be found where 1 is
            raise frames.BadFrame("an answer without a number")
        with self._lock:
            # What nobody waits for, any more or at all, is dropped.
            waiter = self._waiters.pop(number, None)
        if waiter is not None:
            waiter.give(message)
        elif number == -1:
            raise frames.BadFrame(str(message.get("error")))

    def heard(self, count: int) -> None:
        """Note that bytes came in."""
        self.bytes_in += count
        self._heard_at = time.monotonic()


def _as_told(told: Any) -> Exception:
    """The error that the agent tells; one of another shape is no agent's."""
    if isinstance(told, list) and len(told) == 4:
        kind, message, evidence, hint = told
        words = isinstance(evidence, list) and all(isinstance(line, str) for line in evidence)
        hinted = hint is None or isinstance(hint, str)
        if isinstance(kind, str) and isinstance(message, str) and words and hinted:
            return AgentError(kind, message, evidence, hint)
    return ProtocolError(f"the agent's error cannot be read: {str(told)[:200]!r}")


class _Counted:
    """The standard output of ssh, buffered, from the agent's first word on."""

    def __init__(self, link: Link, pipe: Any) -> None:
        self._link = link
        self._pipe = pipe
        self._data = b""

    def skip_to(self, marker: bytes) -> None:
        """Pass over what login shells print, up to a bound."""
        seen = b"\n"
        while (at := seen.find(marker)) < 0:
            if len(seen) > NOISE_LIMIT:
                raise frames.BadFrame("the login shell printed a megabyte before the agent spoke")
            piece = self._pipe.read(64 << 10)
            if not piece:
                raise EOFError
            self._link.heard(len(piece))
            seen += piece
        self._data = seen[at + len(marker) :]

    def read(self, count: int) -> bytes:
        """Up to so many bytes; b"" at the end."""
        if not self._data:
            self._data = self._pipe.read(256 << 10)
            self._link.heard(len(self._data))
        piece, self._data = self._data[:count], self._data[count:]
        return piece
