"""The locks of the client: each has a name, and the names have one order in which to take them.

With `SLURM_SDK_CHECK_LOCKS=1` a lock that is taken in another order, a wait while another lock is
held, and a call of user code with a lock held raise `WrongOrder`. Without it these are the plain
locks of the standard library. In a forked child all of them are free: a thread that held one in
the parent does not exist there.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    import threading

#: From the outermost to the innermost: who holds one may take those that stand below it, never one
#: above. A name stands for all locks of its kind.
ORDER = (
    "debug.turn",  # a turn: on the debug backend the thread that asks for a job runs it
    "batch.turn",  # a turn: one thread submits what a batch has collected
    "value.turn",  # a turn: one thread makes a job's value or error
    "packaging.build",  # one build at a time; others wait for what it makes
    "packaging.capture",  # what of the user's code is kept for calls
    "packaging.modules",  # which modules are pickled by value
    "submitit",  # what the drop-in knows of jobs that are not ours
    "executor",  # the calls and blocks of a pool
    "executors",  # which pools are finished at the program's end
    "progress",  # the rows of the progress display
    "watcher.reading",  # one reader of run directories at a time
    "cluster.connecting",  # the first use of a cluster's backend
    "ssh.connections",  # which hosts have a connection
    "ssh.connecting",  # one attempt to connect at a time
    "ssh.link",  # who waits for which answer of a connection
    "allocation.notes",  # what was read of an allocation's steps
    "watchers",  # which targets have a watcher
    "watcher",  # what the watcher knows of open runs
    "packed",  # the outcomes of a packed map
    "job",  # the future of one job
    "returned",  # how many of a workflow's returned jobs are open
    "batch",  # the calls that a batch has collected
    "journal",  # what a workflow has submitted
    "clusters",  # which clusters are open
    "following",  # the states of which callbacks have heard
    "benchmark",  # what the benchmark callback has counted
    "line",  # the events that wait for one callback
    "donecalls",  # the done-callbacks that wait
    "wanted",  # the jobs that a thread of the standard library waits for
    "yield",  # how many threads of a job wait for other jobs
)
#: What user code may be called under: who waits for a turn waits for what it makes.
TURNS = frozenset({"debug.turn", "batch.turn", "value.turn"})
#: Of these a thread may hold several; for jobs `concurrent.futures` orders them by their ids.
SEVERAL = TURNS | {"job"}

CHECKED = os.environ.get("SLURM_SDK_CHECK_LOCKS", "") not in ("", "0")

#: What was raised in this process: a thread that goes on whatever happens may have swallowed it.
wrong: list[str] = []

_made: WeakSet[Any] = WeakSet()


class WrongOrder(AssertionError):
    """A lock was taken, or user code called, where another thread may be waiting the other way."""


def lock(name: str) -> threading.Lock:
    """A lock that a thread takes once."""
    import threading

    made: threading.Lock = _known(name, threading.Lock())
    return made


def rlock(name: str) -> threading.RLock:
    """A lock that the thread which holds it may take again."""
    import threading

    made: threading.RLock = _known(name, threading.RLock())
    return made


def condition(name: str) -> threading.Condition:
    """A condition, whose lock may be taken again by the thread that holds it."""
    import threading

    return adopt(name, threading.Condition())


def adopt(name: str, plain: threading.Condition) -> threading.Condition:
    """A condition that something else has made, as one of ours."""
    if CHECKED:
        import threading

        plain = threading.Condition(_Checked(name, threading.RLock()))  # type: ignore[arg-type]
    _made.add(plain)
    return plain


def _known(name: str, made: Any) -> Any:
    if CHECKED:
        made = _Checked(name, made)
    _made.add(made)
    return made


def free_those_of_others() -> None:
    """Free all locks but those that this thread holds: it is the only one there is."""
    for made in list(_made):
        if not (hasattr(made, "_is_owned") and made._is_owned()):
            made._at_fork_reinit()


def _forget_after_fork() -> None:
    """Free all locks: this is the only thread of the child, and it is in no critical section."""
    for made in list(_made):
        made._at_fork_reinit()
    if CHECKED:
        _held().clear()
    _forget_imports()


def _forget_imports() -> None:
    """Begin imports again that another thread was in the middle of: nobody ends them here.

    Python frees its own import lock in a child, and not those of single modules; of ours many are
    imported where they are first needed.
    """
    import _frozen_importlib as bootstrap
    import _thread

    locks: dict[Any, Any] = getattr(bootstrap, "_module_locks", {})
    for name, reference in list(locks.items()):
        if getattr(reference(), "owner", None) not in (None, _thread.get_ident()):
            del locks[name]
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                del sys.modules[name]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


# ---- the check ----------------------------------------------------------------------------------

# A turn may be taken within another one, and no lock before a turn.
_RANKS = {name: 0 if name in TURNS else rank for rank, name in enumerate(ORDER)}
_local: Any = None


def _held() -> list[_Checked]:
    """The locks that this thread holds, in the order in which it took them."""
    global _local
    if _local is None:
        import threading

        _local = threading.local()
    try:
        found: list[_Checked] = _local.held
    except AttributeError:
        found = _local.held = []
    return found


def refuse_held(what: str) -> None:
    """Raise if this thread holds a lock; for what may wait, or runs code that is not ours."""
    if CHECKED:
        names = [one.name for one in _held() if one.name not in TURNS]
        if names:
            _refuse(f"{what} while {', '.join(names)} is held")


def _refuse(text: str) -> None:
    import traceback

    wrong.append(f"{text}\n{''.join(traceback.format_stack())}")
    sys.stderr.write(f"slurm.locks: {wrong[-1]}")
    raise WrongOrder(text)


class _Checked:
    """A lock that knows its name, and who holds it."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self.rank = _RANKS[name]
        self._inner = inner

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        held = _held()
        if blocking and self not in held:
            for one in held:
                if one.rank > self.rank or (one.rank == self.rank and self.name not in SEVERAL):
                    _refuse(f"{self.name} was taken while {one.name} was held")
        got: bool = self._inner.acquire(blocking, timeout)
        if got:
            held.append(self)
        return got

    __enter__ = acquire

    def release(self) -> None:
        self._inner.release()
        held = _held()
        # The newest of them: it may have been taken several times.
        del held[len(held) - 1 - held[::-1].index(self)]

    def __exit__(self, *_: object) -> None:
        self.release()

    # What a condition asks of its lock.

    def locked(self) -> bool:
        found: bool = self._inner.locked()  # of an RLock since Python 3.14, which asks for it
        return found

    def _is_owned(self) -> bool:
        return self in _held()

    def _release_save(self) -> Any:
        held = _held()
        others = [one.name for one in held if one is not self and one.name not in TURNS]
        if others:
            _refuse(f"a wait for {self.name} while {', '.join(others)} is held")
        count = held.count(self)
        held[:] = [one for one in held if one is not self]
        return count, self._inner._release_save()

    def _acquire_restore(self, saved: Any) -> None:
        count, inner = saved
        self._inner._acquire_restore(inner)
        _held().extend([self] * count)

    def _at_fork_reinit(self) -> None:
        self._inner._at_fork_reinit()
