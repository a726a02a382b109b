"""Executor: `concurrent.futures` over warm workers, in jobs that come and go with the queue."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from slurm import errors, rundir
from slurm.failure import Subject
from slurm.model.options import normalize
from slurm.model.units import parse_duration
from slurm.outcome import Evidence, Verdict
from slurm.packaging import prepare_for, sending
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.function import context_parameter, ship_function
from slurm.results import Results
from slurm.runner import block as block_runner
from slurm.runner import inbox
from slurm.task import Task

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.job import Job

P = ParamSpec("P")
T = TypeVar("T")

#: How often results are looked for: quickly while calls end, then less and less.
FASTEST, SLOWEST = 0.005, 0.25
#: How often a block hears that its client is there.
BEAT = 15.0
#: A block is given at most so many calls, and so many bytes at once.
MOST_AHEAD, MOST_BYTES = 8192, 8 << 20


class _Waiting:
    """A call and its future."""

    def __init__(self, future: concurrent.futures.Future[Any], function: int, name: str) -> None:
        self.future = future
        self.function = function
        self.name = name
        self.chunk = False
        self.data = b""
        self.lost = 0
        self.sent = False


class _Block:
    """A job with workers: what it was given, and what was read of it."""

    def __init__(self, job: Job[Any], workers: int) -> None:
        self.job = job
        self.workers = workers
        self.seen: dict[str, int] = {}
        self.given: dict[int, _Waiting] = {}
        self.knows: set[int] = set()
        self.begun = False
        self.closed = False
        self.ahead = 2 * workers
        self.idle_since = time.monotonic()
        self.beat_at = 0.0


def wanted_blocks(calls: int, per_block: int, fewest: int, most: int) -> int:
    """How many blocks there should be for so many calls that are not finished."""
    needed = -(-calls // per_block)
    return max(-(-fewest // per_block), min(needed, -(-most // per_block)))


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
        self._queue: deque[_Waiting] = deque()
        self._blocks: list[_Block] = []
        self._functions: dict[Any, tuple[int, bytes, Any]] = {}
        self._by_number: dict[int, bytes] = {}
        self._numbers = itertools.count(1)
        self._shut = False
        self._failures = 0
        self._active_at = time.monotonic()
        self._thread: threading.Thread | None = None

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
            return _in_order(futures, end, lambda value: [value])
        chunks = iter(lambda: tuple(itertools.islice(calls, chunksize)), ())
        futures = [self._submit(fn, Call(chunk, {}), chunk=True) for chunk in chunks]
        return _in_order(futures, end, lambda values: values)

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
            return _here(future, function, call, chunk)
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            number, context = self._ship(function)
        name = str(getattr(function, "__name__", function))
        waiting = _Waiting(future, number, name)
        waiting.chunk = chunk
        shape = _any_call if chunk else function
        with sending(self.cluster):
            shipped = ship_arguments(shape, [call], None if chunk else context)
        if shipped.upstream:
            raise errors.UsageError(
                f"a job is among the arguments of {name}; an executor cannot wait for it",
                hint="pass its value: job.result()",
            )
        waiting.data = shipped.blobs[0]
        with self._lock:
            self._queue.append(waiting)
            self._active_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
        self._wake.set()
        return future

    def _ship(self, function: Callable[..., Any]) -> tuple[int, Any]:
        """The number under which workers know a function; it is pickled once."""
        found = self._functions.get(function)
        if found is None:
            environment, reason = prepare_for(
                self.cluster, self.cluster.packaging, function, self._options
            )
            with sending(self.cluster):
                data = ship_function(function, environment.path, reason=reason).data
            found = (len(self._functions) + 1, data, context_parameter(function))
            self._functions[function] = found
            self._by_number[found[0]] = data
        return found[0], found[2]

    # ---- the thread that talks to the blocks ----------------------------------------------------

    def _run(self) -> None:
        while True:
            quiet = time.monotonic() - self._active_at
            self._wake.wait(min(max(quiet / 20, FASTEST), SLOWEST))
            self._wake.clear()
            try:
                if self._turn():
                    return
            except errors.SlurmError as error:
                # Files or the scheduler do not answer: tried again, for a while.
                self._failures += 1
                if self._failures > 20:
                    self._fail_all(error)
                time.sleep(SLOWEST)

    def _turn(self) -> bool:
        """One round; True when there is nothing left to do."""
        for block in list(self._blocks):
            self._read(block)
            if block.job.settled:
                self._bury(block)
        with self._lock:
            open_calls = len(self._queue) + sum(len(block.given) for block in self._blocks)
            over = self._shut and not open_calls
        self._scale(open_calls, over)
        for block in sorted(self._blocks, key=lambda block: len(block.given)):
            if block.begun and not block.closed:
                self._give(block)
                self._beat(block)
        return over

    def _read(self, block: _Block) -> None:
        if block.begun and not block.given:
            return
        answer = self.cluster.backend.read_run(block.job.run, block.seen)
        block.seen = answer["seen"]
        for data in answer["events"]:
            block.begun = block.begun or any(
                e.kind == "start" for e in rundir.decode_events(data)[0]
            )
        before = len(block.given)
        for data in answer["segments"]:
            for record in rundir.decode_records(data)[0]:
                if record.kind == block_runner.DONE_RECORD:
                    self._take(block, record)
        ended = before - len(block.given)
        if ended:
            self._active_at = block.idle_since = time.monotonic()
            self._failures = 0
            # Short calls are given further ahead, so that workers never wait for this thread.
            grow = ended >= block.ahead // 2
            block.ahead = min(2 * block.ahead, MOST_AHEAD) if grow else block.ahead
            if ended < block.ahead // 8:
                block.ahead = max(2 * block.workers, block.ahead // 2)

    def _take(self, block: _Block, record: rundir.Record) -> None:
        at, payload = 0, rundir_payload(self.cluster, block.job.run, record)
        for number, kind, header, size in record.header["done"]:
            waiting = block.given.pop(number, None)
            body, at = payload[at : at + size], at + size
            if waiting is not None:
                one = rundir.Record(record.job, number, 0, 0, kind, header, body)
                self._settle(block, waiting, one)

    def _settle(self, block: _Block, waiting: _Waiting, record: rundir.Record) -> None:
        subject = Subject(waiting.name, block.job.id, block.job.path, self._options)
        evidence = Evidence(records=[record])
        results = Results(self.cluster.backend, block.job.run, evidence, subject)
        verdict = {rundir.VALUE: Verdict.VALUE, rundir.EXIT: Verdict.EXITED}.get(
            record.kind, Verdict.RAISED
        )
        value, error = results.outcome(verdict, False)
        if error is not None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(value)

    def _bury(self, block: _Block) -> None:
        """A block is over: what it had not finished goes elsewhere, up to a limit."""
        self._read(block)
        with self._lock:
            self._blocks.remove(block)
            cause = None if block.job.succeeded else block.job.exception()
            again = []
            for waiting in block.given.values():
                waiting.lost += cause is not None
                if waiting.lost > self._retries:
                    waiting.future.set_exception(_died(waiting, block, cause))
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
            rested = not block.given and now - block.idle_since > self._idle
            if over or rested:
                self._close(block)

    def _new_block(self) -> _Block:
        options: dict[str, Any] = dict(self._options)
        cpus = int(str(options.get("cpus_per_task") or 1)) * self._each
        options.update(cpus_per_task=cpus, launch="once")
        options.setdefault("job_name", "executor")
        idle = max(4 * BEAT, self._idle)
        submitter = self.cluster.submit(Task(block_runner.serve), **options)
        return _Block(submitter(self._each, self._retries, idle), self._each)

    def _close(self, block: _Block) -> None:
        block.closed = True
        if block.begun:
            self._tell(block, [inbox.CLOSE])
        else:
            block.job.cancel()

    def _tell(self, block: _Block, words: list[str], text: str = "") -> None:
        self.cluster.backend.tell_pilot(block.job.run, rundir.CALLS, words, text)

    def _beat(self, block: _Block) -> None:
        if time.monotonic() - block.beat_at > BEAT:
            block.beat_at = time.monotonic()
            self._tell(block, [inbox.BEAT], f"{os.getpid()} {time.time()}")

    def _give(self, block: _Block) -> None:
        """Send the next calls to a block: one append, whatever their number."""
        calls: list[tuple[int, _Waiting]] = []
        size = 0
        with self._lock:
            share = -(-len(self._queue) // max(1, sum(b.begun for b in self._blocks)))
            room = min(block.ahead - len(block.given), max(share, block.workers))
            while self._queue and room > len(calls) and size < MOST_BYTES:
                waiting = self._queue.popleft()
                if waiting.sent or waiting.future.set_running_or_notify_cancel():
                    waiting.sent = True
                    calls.append((next(self._numbers), waiting))
                    size += len(waiting.data)
            block.given.update(calls)
        if not calls:
            return
        who = rundir.Identity(block.job.bare, 0, 0, 0)
        pieces = []
        for number in sorted({waiting.function for _, waiting in calls} - block.knows):
            block.knows.add(number)
            kind, header = block_runner.FUNCTION_RECORD, {"number": number}
            pieces.append(rundir.encode_record(who, kind, header, self._by_number[number]))
        table = [[n, call.function, int(call.chunk), len(call.data)] for n, call in calls]
        payload = b"".join(call.data for _, call in calls)
        kind = block_runner.CALLS_RECORD
        pieces.append(rundir.encode_record(who, kind, {"calls": table}, payload))
        self.cluster.backend.append_calls(block.job.run, b"".join(pieces))


def rundir_payload(cluster: Cluster, run: str, record: rundir.Record) -> bytes:
    """The bytes of a batch of results, read from their own file where the record points to one."""
    name = record.header.get("file")
    if name is None:
        return record.payload
    return rundir.checked_payload(record, cluster.backend.read_value(run, str(name)))


def _any_call(*args: Any, **kwargs: Any) -> None:
    """The signature of a chunk."""


def _here(
    future: concurrent.futures.Future[Any], function: Callable[..., Any], call: Call, chunk: bool
) -> concurrent.futures.Future[Any]:
    """On the debug backend a call runs at once, in this process."""
    try:
        if chunk:
            future.set_result([function(*args) for args in call.args])
        else:
            future.set_result(function(*call.args, **call.kwargs))
    except Exception as error:  # noqa: BLE001 - whatever the function raises is its outcome
        future.set_exception(error)
    return future


def _in_order(
    futures: list[concurrent.futures.Future[Any]],
    end: float | None,
    unpack: Callable[[Any], Iterable[Any]],
) -> Iterator[Any]:
    try:
        for future in futures:
            left = None if end is None else max(0.0, end - time.monotonic())
            yield from unpack(future.result(left))
    finally:
        for future in futures:
            future.cancel()


def _died(waiting: _Waiting, block: _Block, cause: BaseException | None) -> errors.WorkerDied:
    error = errors.WorkerDied(
        f"{waiting.name} was lost with its worker {waiting.lost} times, the last time in job "
        f"{block.job.id}",
        hint="the cause of this error says what became of that job",
        job_id=block.job.id,
    )
    error.__cause__ = cause
    return error


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
