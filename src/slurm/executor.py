"""Executor: `concurrent.futures` over warm workers, in jobs that come and go with the queue."""

from __future__ import annotations

import concurrent.futures
import itertools
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from slurm import errors, rundir
from slurm.blocks import BEAT, Block, Waiting, died, in_order, run_here, wanted_blocks
from slurm.model.options import normalize
from slurm.model.units import parse_duration
from slurm.packaging import Prepared, Request, pickling, prepare
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.function import context_parameter, ship_function
from slurm.runner import block as block_runner
from slurm.task import Task

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.job import Job

P = ParamSpec("P")
T = TypeVar("T")

#: How often results are looked for: quickly while calls end, then less and less.
FASTEST, SLOWEST = 0.005, 0.25
#: So many rounds may fail, one after the other, before the calls do.
PATIENCE = 40
#: A block is given at most so many bytes at once.
MOST_BYTES = 8 << 20


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
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._queue: deque[Waiting] = deque()
        self._blocks: list[Block] = []
        self._captured: str | None = None
        self._functions: dict[int, tuple[int, Any, Any, Prepared]] = {}
        self._by_number: dict[int, bytes] = {}
        self._numbers = itertools.count(1)
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
    ) -> Iterator[T]:
        """Like the built-in `map`, in parallel; `chunksize` calls travel and run together."""
        if chunksize < 1:
            raise errors.UsageError(f"chunksize={chunksize} is not 1 or more")
        end = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables, strict=False)
        if chunksize == 1:
            futures = [self._submit(fn, Call(args, {}), chunk=False) for args in calls]
            return in_order(futures, end, lambda value: [value])
        chunks = iter(lambda: tuple(itertools.islice(calls, chunksize)), ())
        futures = [self._submit(fn, Call(chunk, {}), chunk=True) for chunk in chunks]
        return in_order(futures, end, lambda values: values)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the jobs end when all calls are finished."""
        with self._lock:
            self._shut = True
            dropped = list(self._queue) if cancel_futures else []
            if cancel_futures:
                self._queue.clear()
            thread = self._thread
        for call in dropped:
            call.future.cancel()
        self._wake.set()
        if wait and thread is not None:
            thread.join()

    @property
    def jobs(self) -> list[Job[Any]]:
        """The jobs that hold the workers now."""
        with self._lock:
            return [block.job for block in self._blocks]

    # ---- calls ----------------------------------------------------------------------------------

    def _submit(
        self, fn: Callable[..., Any], call: Call, chunk: bool
    ) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        function = fn.unwrapped if isinstance(fn, Task) else fn
        if self.cluster.backend_type == "debug":
            return run_here(future, function, call, chunk)
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            number, context, prepared = self._ship(function)
        name = str(getattr(function, "__name__", function))
        waiting = Waiting(future, number, name, chunk)
        shape = _any_call if chunk else function
        with pickling(self.cluster, prepared):
            shipped = ship_arguments(shape, [call], None if chunk else context)
        if shipped.upstream:
            raise errors.UsageError(
                f"a job is among the arguments of {name}; an executor cannot wait for it",
                hint="pass its value: job.result()",
            )
        waiting.data = rundir.joined(shipped.blobs[0])
        with self._lock:
            self._queue.append(waiting)
            self._active_at = time.monotonic()
            self._start()
        self._wake.set()
        return future

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="slurm-executor", daemon=True)
            self._thread.start()

    def _ship(self, function: Callable[..., Any]) -> tuple[int, Any, Prepared]:
        """The number under which workers know a function; it is pickled once."""
        found = self._functions.get(id(function))
        if found is None:
            cluster, options = self.cluster, self._options
            prepared = prepare(Request(cluster, cluster.packaging, function, options))
            with pickling(self.cluster, prepared):
                path, captured = prepared.environment.path, self._captured_by(prepared)
                reason = prepared.by_value
                data = ship_function(function, path, reason=reason, captured=captured).data
            # The function is kept, so that its id stays its own.
            number, context = len(self._functions) + 1, context_parameter(function)
            found = (number, function, context, prepared)
            self._functions[id(function)] = found
            self._by_number[found[0]] = data
        return found[0], found[2], found[3]

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
        for block in list(self._blocks):
            if block.read():
                self._active_at, self._failures = time.monotonic(), 0
            if block.job.settled:
                self._bury(block)
        with self._lock:
            open_calls = len(self._queue) + sum(len(block.given) for block in self._blocks)
            over = self._shut and not open_calls
        self._scale(open_calls, over)
        for block in sorted(self._blocks, key=lambda block: len(block.given)):
            if block.begun and not block.closed:
                self._give(block)
                block.beat()
        return over

    def _bury(self, block: Block) -> None:
        """A block is over: what it had not finished goes elsewhere, up to a limit."""
        block.read()
        with self._lock:
            self._blocks.remove(block)
            cause = _cause(block.job)
            again = []
            for waiting in block.given.values():
                waiting.lost += cause is not None
                if waiting.lost > self._retries:
                    waiting.future.set_exception(died(waiting, block.job, cause))
                else:
                    again.append(waiting)
            self._queue.extendleft(reversed(again))
        if cause is not None and not block.begun:
            # It could not even begin: another one would fare no better.
            self._fail_all(cause)

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            calls, self._queue = list(self._queue), deque()
            for block in self._blocks:
                calls += block.given.values()
                block.given.clear()
        for waiting in calls:
            if not waiting.future.done():
                waiting.future.set_exception(error)

    def _scale(self, calls: int, over: bool) -> None:
        alive = [block for block in self._blocks if not block.closed]
        wanted = 0 if over else wanted_blocks(calls, self._each, self._fewest, self._most)
        for _ in range(wanted - len(alive)):
            self._blocks.append(self._new_block())
        now = time.monotonic()
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
            room = min(block.ahead - len(block.given), max(share, block.workers))
            while self._queue and room > len(calls) and size < MOST_BYTES:
                waiting = self._queue.popleft()
                if waiting.start():
                    calls.append((next(self._numbers), waiting))
                    size += len(waiting.data)
        if calls:
            block.give(calls, self._by_number)


def _cause(job: Job[Any]) -> BaseException | None:
    """Why a job has no value; None for one that has."""
    try:
        return job.exception()
    except errors.SlurmError as error:
        return error


def _any_call(*args: Any, **kwargs: Any) -> None:
    """The signature of a chunk."""


def _check(max_workers: int, min_workers: int, workers_per_job: int, retries: int) -> None:
    given = {"max_workers": (max_workers, 1), "workers_per_job": (workers_per_job, 1)}
    given.update(min_workers=(min_workers, 0), retries=(retries, 0))
    for name, (value, least) in given.items():
        if value < least:
            raise errors.OptionError(
                f"{name}={value!r} is not a whole number of {least} or more",
                hint="cluster.executor(max_workers=8, min_workers=0)",
            )
    if min_workers > max_workers:
        raise errors.OptionError(
            f"min_workers={min_workers} is more than max_workers={max_workers}",
            hint="give a maximum that is at least the minimum",
        )
