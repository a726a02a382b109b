"""Executor: `concurrent.futures` over warm workers, in jobs that come and go with the queue."""

from __future__ import annotations

import atexit
import concurrent.futures
import hashlib
import itertools
import logging
import os
import secrets
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from slurm import errors, locks, rundir, spool
from slurm.attributes import own
from slurm.blocks import (
    BEAT,
    MOST_FUNCTIONS,
    Block,
    Callee,
    Waiting,
    died,
    in_order,
    run_here,
    wanted_blocks,
)
from slurm.donecalls import CalledFuture
from slurm.model.options import normalize
from slurm.model.units import parse_duration
from slurm.packaging import Prepared, Request, pickling, prepare
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.function import (
    by_value_reason,
    context_parameter,
    refuse_generator,
    ship_function,
)
from slurm.runner import block as block_runner
from slurm.task import Task
from slurm.threads import AT_EXIT, are_gone, begin, end_of_patience, refusal
from slurm.waiters import checked_timeout

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.job import Job

P = ParamSpec("P")
T = TypeVar("T")

#: How often results are looked for: quickly while calls end, then less and less.
FASTEST, SLOWEST = 0.005, 0.25
#: So many rounds may fail, one after the other, before the calls do.
PATIENCE = 40
#: So many blocks in a row may end before they begin, where earlier ones have begun; and while
#: others work, no new one is tried for so many seconds.
STILLBORN, PAUSE = 3, 30.0
#: A block is given at most so many bytes at once.
MOST_BYTES = 8 << 20

#: A function as blocks get it, its context parameter, and how its code gets to the node.
Shipped: TypeAlias = "tuple[Callee, Any, Prepared]"

log = logging.getLogger("slurm")


class Executor(concurrent.futures.Executor):
    """Runs calls in warm worker processes on the cluster; made by `cluster.executor(...)`.

    ```python
    with cluster.executor(max_workers=8, cpus_per_task=2) as pool:
        print(list(pool.map(score, molecules, chunksize=100)))
    ```
    """

    def __init__(
        self,
        cluster: Cluster,
        max_workers: int,
        min_workers: int,
        workers_per_job: int,
        retries: int,
        *,
        idle: str | int,
        options: Mapping[str, Any],
    ) -> None:
        _check(max_workers, min_workers, workers_per_job, retries)
        self.cluster = cluster
        self._most, self._fewest, self._each = max_workers, min_workers, workers_per_job
        self._retries = retries
        self._idle = float(parse_duration(idle) or 10**9)
        self._options = normalize(options, where="cluster.executor")
        self._lock = locks.rlock("executor")
        self._wake = threading.Event()
        #: Set when no call is open and none can come.
        self._finished = threading.Event()
        self._queue: deque[Waiting] = deque()
        self._blocks: list[Block] = []
        self._captured: str | None = None
        #: What dask and others look at to learn how much runs at once.
        self._max_workers = max_workers
        self._imported: dict[int, tuple[Any, Shipped]] = {}
        self._by_content: OrderedDict[bytes, Callee] = OrderedDict()
        self._prepared: dict[tuple[str, ...], Prepared] = {}
        self._numbers = itertools.count(1)
        self._callees = itertools.count(1)
        self._dropping = False
        self._any_begun = False
        self._stillborn = 0
        self._not_before = 0.0
        self._shut = False
        self._failures = 0
        self._active_at = time.monotonic()
        self._thread: threading.Thread | None = None
        if min_workers and cluster.backend_type != "debug":
            self._start()

    # ---- what concurrent.futures promises -------------------------------------------------------

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """Run `fn(*args, **kwargs)` in a worker."""
        return self._submit(fn, Call(args, kwargs), chunk=False)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Like the built-in `map`, in parallel; `chunksize` calls travel and run together.

        With `buffersize` so many are under way at once, and the others are not read yet.
        """
        for name, number in (("chunksize", chunksize), ("buffersize", buffersize)):
            if number is not None and number < 1:
                raise errors.UsageError(f"{name}={number} is not 1 or more")
        seconds = checked_timeout(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        calls = zip(*iterables, strict=False)
        if chunksize == 1:
            futures = (self._submit(fn, Call(args, {}), chunk=False) for args in calls)
            return in_order(futures, buffersize, end, lambda value: [value])
        chunks = iter(lambda: tuple(itertools.islice(calls, chunksize)), ())
        futures = (self._submit(fn, Call(chunk, {}), chunk=True) for chunk in chunks)
        return in_order(futures, buffersize, end, lambda values: values)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the jobs end when all calls are finished.

        `cancel_futures`: those that no worker has begun are cancelled.
        """
        with self._lock:
            self._shut = True
            self._dropping = self._dropping or cancel_futures
            thread = self._thread
            dropped = list(self._queue) if self._dropping else []
            if dropped:
                self._queue.clear()
        for call in dropped:
            call.drop() if call.sent else call.future.cancel()
        self._wake.set()
        if wait and thread is not None and not are_gone():
            self._join(thread, lambda: time.monotonic() + AT_EXIT)

    def _join(self, thread: threading.Thread, deadline: Callable[[], float]) -> None:
        """Wait for the calls, however long they take, then until `deadline` for the jobs' end.

        A host that cannot be reached delays only what waits for an answer from it: a job that
        hears nothing more ends by itself.
        """
        while thread.is_alive() and not self._finished.wait(SLOWEST):
            pass
        thread.join(max(0.0, deadline() - time.monotonic()))

    @property
    def jobs(self) -> list[Job[Any]]:
        """The jobs that hold the workers now."""
        with self._lock:
            return [block.job for block in self._blocks]

    # ---- calls ----------------------------------------------------------------------------------

    def _submit(
        self, fn: Callable[..., Any], call: Call, chunk: bool
    ) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = CalledFuture()
        function = fn.unwrapped if isinstance(fn, Task) else fn
        refuse_generator(function, str(own(function, "__name__", type(function).__name__)))
        if self.cluster.backend_type == "debug":
            return run_here(future, function, call, chunk)
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
        callee, context, prepared = self._ship(function)
        name = str(own(function, "__name__", function))
        waiting = Waiting(future, callee, name, chunk)
        shape = _any_call if chunk else function
        with pickling(self.cluster, prepared):
            shipped = ship_arguments(shape, [call], None if chunk else context)
        if shipped.upstream:
            raise errors.UsageError(
                f"a job is among the arguments of {name}; an executor cannot wait for it",
                hint="pass its value: job.result()",
            )
        # A copy: the caller may change what it gave as soon as this returns.
        waiting.data = spool.keep(shipped.blobs[0])
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.append(waiting)
            self._active_at = time.monotonic()
            self._start()
        self._wake.set()
        return future

    def _start(self) -> None:
        if self._thread is None:
            # The program's end waits for it, as for the threads of the standard library's pools.
            _finish_at_exit(self)
            self._thread = begin(self._run, "slurm-executor")

    def _ship(self, function: Callable[..., Any]) -> Shipped:
        """The function as it is sent: one that workers import once, another as it is now."""
        with self._lock:
            found = self._imported.get(id(function))
        if found is not None:
            return found[1]
        reason = by_value_reason(function)
        request = Request(self.cluster, self.cluster.packaging, function, self._options)
        place = (request.source, str(own(function, "__module__", "")), str(reason))
        prepared = self._prepared.get(place) or prepare(request)
        context = context_parameter(function)
        with pickling(self.cluster, prepared):
            path, captured = prepared.environment.path, self._captured_by(prepared)
            sent = ship_function(function, path, reason=prepared.by_value, captured=captured)
        content = hashlib.blake2b(sent.data).digest()
        with self._lock:
            self._prepared[place] = prepared
            callee = self._by_content.pop(content, None)
            callee = callee or Callee(next(self._callees), sent.data)
            self._by_content[content] = callee
            if len(self._by_content) > MOST_FUNCTIONS:
                self._by_content.popitem(last=False)
            shipped = (callee, context, prepared)
            if sent.by == "reference":
                # The function is kept, so that its id stays its own.
                self._imported[id(function)] = (function, shipped)
        return shipped

    def _begin_again(self) -> None:
        """After a fork the calls of before are the parent's, and so are its blocks."""
        self._wake, self._finished = threading.Event(), threading.Event()
        self._queue, self._blocks, self._thread = deque(), [], None

    def _captured_by(self, prepared: Prepared) -> str:
        """The code that all workers import: as it was at the first call.

        A process that has imported a module cannot take another one for it.
        """
        if self._captured is None:
            self._captured = prepared.environment.captured
            if self._captured and prepared.deliver is not None:
                prepared.deliver(self.cluster)
        return self._captured

    # ---- the thread that talks to the blocks ----------------------------------------------------

    def _run(self) -> None:
        while True:
            quiet = time.monotonic() - self._active_at
            self._wake.wait(min(max(quiet / 20, FASTEST), SLOWEST))
            self._wake.clear()
            try:
                if self._turn():
                    return
            except Exception as error:  # noqa: BLE001 - a future must never wait for a dead thread
                # Files or the scheduler do not answer: tried again, for a while.
                self._failures += 1
                if self._failures > PATIENCE or isinstance(error, errors.SubmitRefused):
                    self._fail_all(error)
                time.sleep(SLOWEST)

    def _turn(self) -> bool:
        """One round; True when there is nothing left to do."""
        self._open_calls()
        for block in list(self._blocks):
            if block.read():
                self._active_at, self._failures = time.monotonic(), 0
            if block.begun:
                self._any_begun, self._stillborn = True, 0
            if block.job.settled:
                self._bury(block)
        open_calls = self._open_calls()
        over = self._finished.is_set()
        self._scale(open_calls, over)
        for block in sorted(self._blocks, key=lambda block: len(block.given)):
            if block.begun and not block.closed:
                if self._dropping:
                    block.drop()
                self._give(block)
                block.beat()
        return over

    def _open_calls(self) -> int:
        """How many calls are not finished; asked by the thread that gives them to blocks."""
        with self._lock:
            found = len(self._queue) + sum(len(block.given) for block in self._blocks)
            if self._shut and not found:
                self._finished.set()
        return found

    def _bury(self, block: Block) -> None:
        """A block is over: what it had not finished goes elsewhere, up to a limit."""
        block.read()
        cause = _cause(block.job)
        lost: list[Waiting] = []
        with self._lock:
            self._blocks.remove(block)
            again: list[Waiting] = []
            for waiting in block.given.values():
                waiting.lost += cause is not None
                (lost if waiting.lost > self._retries else again).append(waiting)
            block.given = {}
            self._queue.extendleft(reversed(again))
        for waiting in lost:
            waiting.future.set_exception(died(waiting, block.job, cause))
        if cause is not None and not block.begun and not block.closed:
            self._stillborn += 1
            self._held_up(cause)

    def _held_up(self, cause: BaseException) -> None:
        """A block could not begin: the others go on; without any the calls have failed."""
        if any(not block.closed for block in self._blocks):
            self._not_before = time.monotonic() + PAUSE
            log.warning("slurm: a job of an executor could not begin: %s", cause)
        elif self._stillborn >= (STILLBORN if self._any_begun else 1):
            self._stillborn = 0
            self._fail_all(cause)

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            calls, self._queue = list(self._queue), deque()
            for block in self._blocks:
                calls += block.given.values()
                block.given.clear()
            self._failures = 0
        for waiting in calls:
            if waiting.start():
                waiting.future.set_exception(error)

    def _scale(self, calls: int, over: bool) -> None:
        alive = [block for block in self._blocks if not block.closed]
        wanted = 0 if over else wanted_blocks(calls, self._each, self._fewest, self._most)
        now = time.monotonic()
        for number in range(wanted - len(alive)):
            if alive and now < self._not_before:
                break
            try:
                self._blocks.append(self._new_block())
            except errors.SubmitRefused as error:
                if not alive and not number:
                    raise
                self._stillborn += 1
                self._held_up(error)
                break
        for block in alive[wanted:]:
            rested = not block.given and now - block.active_at > self._idle
            if over or rested:
                block.close()

    def _new_block(self) -> Block:
        options: dict[str, Any] = dict(self._options)
        cpus = int(str(options.get("cpus_per_task") or 1)) * self._each
        # A lost job is replaced by a new one: this one would begin with calls of before.
        options.update(cpus_per_task=cpus, launch="once", requeue=False, retry=None, cache=None)
        options.setdefault("job_name", "executor")
        idle = max(4 * BEAT, self._idle)
        submitter = self.cluster.submit(Task(block_runner.serve), **options)
        # Sent at once, also inside of a batch.
        plan = submitter.plan(self._each, self._retries, idle, secrets.token_hex(8))
        (job,) = submitter.send(plan)
        return Block(job, self._each, options)

    def _give(self, block: Block) -> None:
        """Send the next calls to a block: one append, whatever their number."""
        calls: list[tuple[int, Waiting]] = []
        size = 0
        with self._lock:
            share = -(-len(self._queue) // max(1, sum(b.begun for b in self._blocks)))
            room = min(block.ahead - len(block.given), max(share, block.workers + 1))
            if any(map(self._alone, block.given.values())):
                return
            while self._queue and room > len(calls) and size < MOST_BYTES:
                if self._alone(self._queue[0]):
                    if block.given or calls:
                        break
                    room = 1
                waiting = self._queue.popleft()
                if waiting.start():
                    calls.append((next(self._numbers), waiting))
                    size += rundir.size_of(waiting.data)
        if not calls:
            return
        try:
            block.give(calls)
        except errors.UsageError as error:
            # Too large for one message, whenever it is tried: only the call that is so has failed.
            if len(calls) == 1:
                block.given.pop(calls[0][0], None)
                calls[0][1].future.set_exception(error)
                return
            for _, waiting in calls:
                waiting.by_itself = True
            self._take_back(block, calls)
        except Exception:  # raised again: the calls go back to the queue first
            self._take_back(block, calls)
            raise

    def _take_back(self, block: Block, calls: Sequence[tuple[int, Waiting]]) -> None:
        """What could not be written would be waited for, and never come."""
        with self._lock:
            lost = [call for number, call in calls if block.given.pop(number, None)]
            self._queue.extendleft(reversed(lost))

    def _alone(self, waiting: Waiting) -> bool:
        """Whether a call goes without others: on its last try no other has its share in it."""
        return waiting.by_itself or 0 < waiting.lost >= self._retries


def _cause(job: Job[Any]) -> BaseException | None:
    """Why a job has no value; None for one that has."""
    try:
        return job.exception()
    except errors.SlurmError as error:
        return error


_pools: weakref.WeakSet[Executor] = weakref.WeakSet()


def _finish_at_exit(pool: Executor) -> None:
    """See to it that the calls of a pool that was never shut down are finished all the same."""
    with _registering:
        first = not _pools
        _pools.add(pool)
        if first and not _registered:
            # Before other threads are gone; ThreadPoolExecutor uses the same.
            try:
                getattr(threading, "_register_atexit", atexit.register)(_finish_all)
            except RuntimeError as error:
                raise refusal("an executor was used for the first time") from error
            _registered.append(True)


def _finish_all() -> None:
    pools = list(_pools)
    for pool in pools:
        pool.shutdown(wait=False)
    for pool in pools:
        if pool._thread is not None and not are_gone():
            pool._join(pool._thread, end_of_patience)


def _after_fork() -> None:
    for pool in list(_pools):
        pool._begin_again()


_registering = locks.lock("executors")
_registered: list[bool] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _any_call(*args: Any, **kwargs: Any) -> None:
    """The signature of a chunk."""


#: No pool is as large as this; what is, is a mistake.
MOST = 10**6


def _check(max_workers: int, min_workers: int, workers_per_job: int, retries: int) -> None:
    given = {"max_workers": (max_workers, 1), "workers_per_job": (workers_per_job, 1)}
    given.update(min_workers=(min_workers, 0), retries=(retries, 0))
    for name, (value, least) in given.items():
        if type(value) is not int or not least <= value <= MOST:
            raise errors.OptionError(
                f"{name}={value!r} is not a whole number from {least} to {MOST}",
                hint="cluster.executor(max_workers=8, min_workers=0)",
            )
    if min_workers > max_workers:
        raise errors.OptionError(
            f"min_workers={min_workers} is more than max_workers={max_workers}",
            hint="give a maximum that is at least the minimum",
        )
