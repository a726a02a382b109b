"""Blocks of an executor, seen from the client: jobs with workers, to which calls are given."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir
from slurm.evidence import Evidence
from slurm.failure import Subject
from slurm.outcome import Verdict
from slurm.results import Results
from slurm.runner import block as block_runner
from slurm.runner import inbox

if TYPE_CHECKING:
    from slurm.job import Job
    from slurm.packaging.arguments import Call

#: How often a block hears that its client is there.
BEAT = 15.0
#: A block has calls of so many seconds before it, but at most so many calls.
HORIZON, MOST_AHEAD = 0.2, 8192
#: It keeps about so many functions.
MOST_FUNCTIONS = 64

_VERDICTS = {
    rundir.VALUE: Verdict.VALUE,
    rundir.EXIT: Verdict.EXITED,
    rundir.ERROR: Verdict.RAISED,
}


@dataclass(frozen=True)
class Callee:
    """A function as it is sent to blocks, which know it by its number."""

    number: int
    data: bytes


class Waiting:
    """A call and its future."""

    def __init__(
        self, future: concurrent.futures.Future[Any], callee: Callee, name: str, chunk: bool
    ) -> None:
        self.future = future
        self.callee = callee
        self.name = name
        self.chunk = chunk
        self.data: rundir.Content = b""
        self.lost = 0
        #: It was in a message that was too large.
        self.by_itself = False
        self.sent = False

    def start(self) -> bool:
        """Whether the call may be sent; one that was cancelled may not."""
        self.sent = self.sent or self.future.set_running_or_notify_cancel()
        return self.sent

    def drop(self) -> None:
        """End a call that was sent and never began as cancelled."""
        with self.future._condition:
            self.future._state = "CANCELLED"
        self.future.set_running_or_notify_cancel()
        self.future._invoke_callbacks()  # type: ignore[attr-defined]


class Block:
    """A job with workers: what it was given, and what was read of it."""

    def __init__(self, job: Job[Any], workers: int, options: Mapping[str, Any]) -> None:
        self.job = job
        self.workers = workers
        self.given: dict[int, Waiting] = {}
        self.begun = False
        self.closed = False
        self.ahead = workers + 1
        self.active_at = time.monotonic()
        self._backend = job.cluster.backend
        self._options = options
        self._seen: dict[str, int] = {}
        self._knows: dict[int, Callee] = {}
        self._call_s = 0.0
        self._dropped = 0
        self._beat_at = 0.0

    def read(self) -> int:
        """Read what is new and settle the futures of finished calls; returns how many."""
        if self.begun and not self.given:
            return 0
        answer = self._backend.read_run(self.job.run, self._seen)
        self._seen = answer["seen"]
        for data in answer["events"]:
            events = rundir.decode_events(data)[0]
            self.begun = self.begun or any(event.kind == "start" for event in events)
        before = len(self.given)
        for data in answer["segments"]:
            for record in rundir.decode_records(data)[0]:
                if record.kind == block_runner.DONE_RECORD:
                    self._take(record)
        ended = before - len(self.given)
        if ended:
            self.active_at = time.monotonic()
            self.ahead = wanted_ahead(self._call_s, self.workers)
        return ended

    def _take(self, record: rundir.Record) -> None:
        spent, count = record.header.get("spent", (0, 0))
        if count:
            mean = spent / count / 1e6
            self._call_s = (self._call_s or mean) * 0.5 + mean * 0.5
        at, payload = 0, record.payload
        name = record.header.get("file")
        if name is not None:
            stored = self._backend.read_value(self.job.run, str(name))
            payload = rundir.checked_payload(record, stored)
        for number, kind, header, size in record.header["done"]:
            waiting = self.given.pop(number, None)
            body, at = payload[at : at + size], at + size
            if waiting is not None and header.get("stopped"):
                waiting.lost += 1
                self.given[number] = waiting  # it goes elsewhere when the job is over
            elif waiting is not None and header.get("dropped"):
                waiting.drop()
            elif waiting is not None:
                self._settle(waiting, rundir.Record(record.job, number, 0, 0, kind, header, body))

    def _settle(self, waiting: Waiting, record: rundir.Record) -> None:
        subject = Subject(waiting.name, self.job.id, self.job.path, self._options)
        evidence = Evidence(records=[record])
        results = Results(self._backend, self.job.run, evidence, subject)
        value, error = None, None
        try:
            value, error = results.outcome(_VERDICTS[record.kind], False)
        except errors.ConnectError:
            self.given[record.index] = waiting
            raise
        except BaseException as raised:  # noqa: BLE001 - unpickling runs the user's own code
            error = raised
        if error is not None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(value)

    def give(self, calls: Sequence[tuple[int, Waiting]]) -> None:
        """Send calls, and the functions that the block does not know: one append for all."""
        who = rundir.Identity(self.job.bare, 0, 0, 0)
        pieces = []
        needed = {waiting.callee.number: waiting.callee for _, waiting in calls}
        for number in sorted(needed.keys() - self._knows.keys()):
            kind, header = block_runner.FUNCTION_RECORD, {"number": number}
            pieces.append(rundir.encode_record(who, kind, header, needed[number].data))
        table, inline, files = [], [], {}
        for number, call in calls:
            size = rundir.size_of(call.data)
            apart = size > rundir.SMALL
            table.append([number, call.callee.number, int(call.chunk), -1 if apart else size])
            if apart:
                files[block_runner.arguments_name(number)] = call.data
            else:
                inline.append(rundir.joined(call.data))
        table_of = {"calls": table, "forget": self._forgotten(needed)}
        kind = block_runner.CALLS_RECORD
        pieces.append(rundir.encode_record(who, kind, table_of, b"".join(inline)))
        self.given.update(calls)
        self._backend.append_calls(self.job.run, b"".join(pieces), files)
        self._knows.update(needed)

    def _forgotten(self, needed: Mapping[int, Callee]) -> list[int]:
        """The functions that the block need not keep; each version of one that changes counts."""
        if len(self._knows) <= MOST_FUNCTIONS:
            return []
        used = {waiting.callee.number for waiting in self.given.values()} | needed.keys()
        gone = [number for number in self._knows if number not in used]
        for number in gone:
            del self._knows[number]
        return gone

    def drop(self) -> None:
        """Let the block give back what none of its workers has begun."""
        last = max(self.given, default=0)
        if last > self._dropped:
            self._dropped = last
            self._tell(inbox.DROP, str(last))

    def beat(self) -> None:
        """Let the block know now and then that somebody is there."""
        if time.monotonic() - self._beat_at > BEAT:
            self._beat_at = time.monotonic()
            self._tell(inbox.BEAT, f"{os.getpid()} {time.time()}")

    def close(self) -> None:
        """Let the block end once it has nothing to do."""
        self.closed = True
        if self.begun:
            self._tell(inbox.CLOSE)
        else:
            self.job.cancel()

    def _tell(self, word: str, text: str = "") -> None:
        self._backend.tell_pilot(self.job.run, rundir.CALLS, [word], text)


def wanted_blocks(calls: int, per_block: int, fewest: int, most: int) -> int:
    """How many blocks there should be for so many calls that are not finished."""
    needed = -(-calls // per_block)
    return max(-(-fewest // per_block), min(needed, -(-most // per_block)))


def wanted_ahead(call_s: float, workers: int) -> int:
    """How many calls a block should have: what its workers do while the next ones are on the way.

    A call that was sent can be cancelled no more, so of long ones it has one that waits.
    """
    if not call_s:
        return workers + 1
    return min(MOST_AHEAD, workers + max(1, int(workers * HORIZON / call_s)))


def run_here(
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


def in_order(
    futures: Iterator[concurrent.futures.Future[Any]],
    ahead: int | None,
    end: float | None,
    unpack: Callable[[Any], Iterable[Any]],
) -> Iterator[Any]:
    """The values of futures, one after the other; what is not needed any more is cancelled.

    `ahead`: so many are submitted before their values are asked for; None: all.
    """
    window = deque(itertools.islice(futures, ahead))
    return _in_order(window, futures, end, unpack)


def _in_order(
    window: deque[concurrent.futures.Future[Any]],
    futures: Iterator[concurrent.futures.Future[Any]],
    end: float | None,
    unpack: Callable[[Any], Iterable[Any]],
) -> Iterator[Any]:
    try:
        while window:
            left = None if end is None else max(0.0, end - time.monotonic())
            window[0].result(left)
            # A value is not kept once it was given away.
            yield from unpack(window.popleft().result())
            window.extend(itertools.islice(futures, 1))
    finally:
        for future in window:
            future.cancel()


def died(waiting: Waiting, job: Job[Any], cause: BaseException | None) -> errors.WorkerDied:
    """The error of a call that was lost with its block too often."""
    times = f"{waiting.lost} times" if waiting.lost > 1 else "once"
    if cause is None:
        what = f"was under way when its worker had to stop, {times}, the last time in job {job.id}"
        hint = "give the workers more time than the call takes: cluster.executor(time=...)"
    else:
        what = f"was lost with its worker {times}, the last time in job {job.id}"
        hint = "the cause of this error says what became of that job"
    error = errors.WorkerDied(f"{waiting.name} {what}", hint=hint, job_id=job.id)
    error.__cause__ = cause
    return error
