"""Shutdown of a process that serves: SIGTERM and Ctrl-C are heard at whatever moment they come."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds for an orderly end; less than the ten that container engines wait before they kill.
GRACE = 8.0


class Shutdown:
    """Hears the signals that end this process, from its construction until `close`.

    A handler in Python is not enough: a signal that comes just before the main thread blocks on a
    lock does not wake it, and the handler runs when the lock is free, which may be never. The
    interpreter also writes each signal to a socket at once, and the main thread waits for that.

    Before, a signal ends the process as it ends any program. The first one that is heard asks for
    an orderly end; from then on a second one, or `grace` seconds, end the process without Python.
    """

    def __init__(
        self,
        *,
        grace: float = GRACE,
        stops: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT),
        wakes: tuple[int, ...] = (),
    ) -> None:
        #: Whether a signal has asked for the end.
        self.requested = False
        self._grace = grace
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        # A shell starts its background jobs with SIGINT ignored, and ignored it stays.
        self._stops = {
            number: handler
            for number in stops
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN
            or number != signal.SIGINT
        }
        self._wakes = {number: signal.getsignal(number) for number in wakes}
        for number in self._wakes:
            signal.signal(number, lambda *_: None)
        for number in self._stops:
            signal.signal(number, self._heard)

    def __enter__(self) -> Shutdown:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """A descriptor that is readable after a signal."""
        return self._reader.fileno()

    def wait(self) -> None:
        """Block until a signal asks for the end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            while not self.requested:
                selector.select()
                self.drain()

    def drain(self) -> None:
        """Make `fileno` wait for the next signal."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    @contextmanager
    def calling(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` in the running event loop of asyncio when the end is asked for."""
        import asyncio

        loop = asyncio.get_running_loop()

        def heard() -> None:
            self.drain()
            if self.requested:
                loop.remove_reader(self.fileno())
                stop()

        loop.add_reader(self.fileno(), heard)
        try:
            yield
        finally:
            loop.remove_reader(self.fileno())

    def close(self) -> None:
        """Hear no more. Where the end was asked for, the next signal ends the process at once."""
        signal.set_wakeup_fd(self._wakeup)
        before: dict[int, Any] = dict(self._wakes)
        if not self.requested:
            before.update(self._stops)
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._reader.close()
        self._writer.close()

    def _heard(self, *_: object) -> None:
        self.requested = True
        for number in self._stops:
            signal.signal(number, signal.SIG_DFL)
        if sys.platform != "win32":
            # Whatever hangs from here on, the kernel ends it.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, self._grace)
