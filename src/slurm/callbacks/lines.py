"""Lines: each callback hears events in order, on a thread that lives while there is something."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakValueDictionary

from slurm import errors, locks
from slurm.callbacks.base import HOOKS, BaseCallback, call, listens
from slurm.donecalls import done_calls
from slurm.threads import begin, end_of_patience

if TYPE_CHECKING:
    from slurm.callbacks.contexts import Context


class Line:
    """The way to one callback: what is put in is told in order, by one thread at a time."""

    def __init__(self, callback: BaseCallback) -> None:
        self.callback = callback
        self.hooks = frozenset(hook for hook in HOOKS if listens(callback, hook))
        self._events: deque[tuple[Callable[[], Context], object]] = deque()
        self._keys: set[object] = set()
        self._changed = locks.condition("line")
        self._thread: threading.Thread | None = None

    def forget(self) -> None:
        """In a forked child: what was not heard yet is heard in the parent."""
        self._events.clear()
        self._keys.clear()
        self._thread = None

    def put(self, make: Callable[[], Context], key: object = None) -> None:
        """Tell what `make` gives when it is its turn; one with a key that waits already counts."""
        with self._changed:
            if key is not None and key in self._keys:
                return
            self._keys.add(key)
            self._events.append((make, key))
            if self._thread is None or not self._thread.is_alive():
                # It is not started where the interpreter ends, or there are too many.
                with suppress(RuntimeError):
                    self._thread = begin(self._tell, "slurm-callback")

    def _tell(self, deadline: float = math.inf) -> None:
        while True:
            with self._changed:
                if not self._events or time.monotonic() > deadline:
                    self._thread = None
                    self._changed.notify_all()
                    return
                make, key = self._events[0]
                self._keys.discard(key)
            locks.refuse_held("a callback was called")
            context = make()
            call(self.callback, context.hook, context)
            with self._changed:
                self._events.popleft()

    def drain(self, deadline: float) -> bool:
        """Wait until nothing is left to tell; False: time was up."""
        with self._changed:
            if self._thread is threading.current_thread():
                return True
            orphaned = bool(self._events) and (self._thread is None or not self._thread.is_alive())
            if not orphaned:
                left = max(0.0, deadline - time.monotonic())
                return self._changed.wait_for(lambda: not self._events, left)
            self._thread = threading.current_thread()
        # No thread could be started for them: the interpreter ends, or there are too many.
        self._tell(deadline)
        return not self._events


_lines: WeakValueDictionary[int, Line] = WeakValueDictionary()


def line_for(callback: BaseCallback) -> Line:
    """The line of a callback; clusters that share the callback share it."""
    found = _lines.get(id(callback))
    if found is None:
        found = _lines[id(callback)] = Line(callback)
    return found


@atexit.register
def _drain_at_exit() -> None:
    drain_all(end_of_patience())


def drain_all(deadline: float) -> bool:
    """Wait until all callbacks have heard everything."""
    told = done_calls.told(deadline)  # what is about to be put in counts, too
    late = [line for line in list(_lines.values()) if not line.drain(deadline)]
    return told and not late


def _forget_after_fork() -> None:
    for line in list(_lines.values()):
        line.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


class Callbacks(Sequence[BaseCallback]):
    """The callbacks of one cluster, and the ways to them."""

    def __init__(self, callbacks: Iterable[BaseCallback] = ()) -> None:
        given: tuple[Any, ...] = tuple(callbacks)
        for one in given:
            if not isinstance(one, BaseCallback):
                made = ", not the class" if isinstance(one, type) else ""
                raise errors.OptionError(
                    f"callbacks=[...] holds {one!r}, which is not a callback",
                    hint=f"give objects of subclasses of slurm.callbacks.BaseCallback{made}",
                )
        self._lines = tuple(line_for(one) for one in given)

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> BaseCallback: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BaseCallback, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        found = tuple(line.callback for line in self._lines)
        return found[index]

    def listen(self, *hooks: str) -> bool:
        """Whether one of them has one of these hooks."""
        return any(not line.hooks.isdisjoint(hooks) for line in self._lines)

    def tell(self, context: Context) -> None:
        """Tell all that listen; returns at once."""
        self.tell_latest(context.hook, lambda: context, None)

    def tell_latest(self, hook: str, make: Callable[[], Context], key: object) -> None:
        """The same for what is made when it is told; what waits under the same key is enough."""
        for line in self._lines:
            if hook in line.hooks:
                line.put(make, key)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While somebody waits for results, those that show it may do so."""
        shown = [line.callback for line in self._lines if "on_wait_begin" in line.hooks]
        if shown:
            locks.refuse_held("a callback was called")
        for callback in shown:
            call(callback, "on_wait_begin")
        try:
            yield
        finally:
            for callback in reversed(shown):
                call(callback, "on_wait_end")
