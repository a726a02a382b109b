"""Done-callbacks are the user's code: they run on threads of their own, never the watcher's."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from slurm import locks
from slurm.threads import are_gone, begin, end_of_patience, refuse_at_the_end

#: Who waits behind a callback that takes longer than this is called from another thread.
PATIENCE = 0.5

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("slurm")


class DoneCalls:
    """Calls back in order, on a thread that is started when the first callback is due.

    One that takes long, or waits, keeps its thread, and another thread goes on with the next.
    """

    def __init__(self) -> None:
        self._changed = locks.condition("donecalls")
        self._begin()

    def _begin(self) -> None:
        self._process = object()
        self._queue: deque[Callable[[], None]] = deque()
        #: Who takes the next callback, and since when the present one runs.
        self._lead: threading.Thread | None = None
        self._since: float | None = None
        #: Who takes over when the present one takes long.
        self._second: threading.Thread | None = None
        #: How many callbacks run, and how many threads are about to say that a job is over.
        self._running = self._telling = 0

    def ours(self, call: Callable[P, object]) -> Callable[P, None]:
        """The same call, which does nothing in a forked child: there nobody asked for it."""
        process = self._process

        def mine(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._process is process:
                call(*args, **kwargs)

        return mine

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """While jobs are said to be over: a program that ends meanwhile waits for what follows."""
        with self._changed:
            self._telling += 1
        try:
            yield
        finally:
            with self._changed:
                self._telling -= 1
                self._changed.notify_all()

    def run(self, callback: Callable[[], None]) -> None:
        """Call back when those before it are through, or take long."""
        with self._changed:
            self._queue.append(callback)
            if self._lead is None:
                self._lead = self._start(self._work)
            self._back_up()
            self._changed.notify_all()

    def _start(self, work: Callable[[], None]) -> threading.Thread | None:
        try:
            return begin(work, "slurm-callbacks")
        except RuntimeError:
            return None  # the interpreter ends: who drains calls them

    def _back_up(self) -> None:
        if self._queue and self._since is not None and self._second is None:
            self._second = self._start(self._stand_by)

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._lead is not me)
                if self._lead is not me:
                    return
                callback = self._queue.popleft()
                self._since = time.monotonic()
                self._running += 1
                self._back_up()
            _call(callback)
            with self._changed:
                self._running -= 1
                if self._lead is me:
                    self._since = None
                self._changed.notify_all()

    def _stand_by(self) -> None:
        """Take over when a callback takes long and others wait."""
        me = threading.current_thread()
        while True:
            time.sleep(PATIENCE / 2)
            with self._changed:
                if self._second is not me or not self._queue:
                    self._second = None if self._second is me else self._second
                    return
                if self._since is not None and time.monotonic() - self._since > PATIENCE:
                    self._lead, self._second, self._since = me, None, None
                    break
        self._work()

    def drain(self, deadline: float) -> bool:
        """Wait until all that is over was told, and called back; False: time was up."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        not (self._telling or self._running or self._queue)
                        or (self._queue and self._lead is None)
                    ),
                    max(0.0, deadline - time.monotonic()),
                )
                if self._lead is not None or not self._queue:
                    return not (self._telling or self._running or self._queue)
                callback = self._queue.popleft()
            _call(callback)

    def told(self, deadline: float) -> bool:
        """Wait until no thread is about to say that a job is over; False: time was up."""
        with self._changed:
            left = max(0.0, deadline - time.monotonic())
            return self._changed.wait_for(lambda: not self._telling, left)

    def forget(self) -> None:
        """In a forked child: what waits is the parent's to call."""
        self._begin()


def _call(callback: Callable[[], None]) -> None:
    locks.refuse_held("a done-callback was called")
    try:
        callback()
    except BaseException:  # the user's code: SystemExit and Ctrl-C of one end no other
        log.exception("slurm: a done-callback raised; jobs are not affected")


done_calls = DoneCalls()


class CalledFuture(Future[T]):
    """A future whose done-callbacks cannot hurt the thread that ends it, nor each other."""

    def result(self, timeout: float | None = None) -> T:
        """The value, once it is there; raises what the call raised."""
        self._refuse_at_the_end()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result()` would raise, or None."""
        self._refuse_at_the_end()
        return super().exception(timeout)

    def _refuse_at_the_end(self) -> None:
        if are_gone() and not self.done():
            refuse_at_the_end("a call of an executor was waited for")

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call this with the future when it is done, in this process and on a thread of its own."""
        super().add_done_callback(done_calls.ours(fn))

    def _invoke_callbacks(self) -> None:
        for callback in self._done_callbacks:  # type: ignore[attr-defined]
            done_calls.run(functools.partial(callback, self))


def _drain_at_exit() -> None:
    if not done_calls.drain(end_of_patience()):
        log.warning("slurm: the program ends before all done-callbacks have returned")


atexit.register(_drain_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=done_calls.forget)
