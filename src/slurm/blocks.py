"""Blocks of an executor, seen from the client: jobs with workers, to which calls are given."""

from __future__ import annotations

import concurrent.futures
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
#: A block is given at most so many calls ahead.
MOST_AHEAD = 8192

_VERDICTS = {
    rundir.VALUE: Verdict.VALUE,
    rundir.EXIT: Verdict.EXITED,
    rundir.ERROR: Verdict.RAISED,
}


class Waiting:
    """A call and its future."""

    def __init__(
        self, future: concurrent.futures.Future[Any], function: int, name: str, chunk: bool
    ) -> None:
        self.future = future
        self.function = function
        self.name = name
        self.chunk = chunk
        self.data = b""
        self.lost = 0
        self.sent = False

    def start(self) -> bool:
        """Whether the call may be sent; one that was cancelled may not."""
        self.sent = self.sent or self.future.set_running_or_notify_cancel()
        return self.sent


class Block:
    """A job with workers: what it was given, and what was read of it."""

    def __init__(self, job: Job[Any], workers: int, options: Mapping[str, Any]) -> None:
        self.job = job
        self.workers = workers
        self.given: dict[int, Waiting] = {}
        self.begun = False
        self.closed = False
        self.ahead = 2 * workers
        self.active_at = time.monotonic()
        self._backend = job.cluster.backend
        self._options = options
        self._seen: dict[str, int] = {}
        self._knows: set[int] = set()
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
            self.ahead = next_ahead(self.ahead, ended, self.workers)
        return ended

    def _take(self, record: rundir.Record) -> None:
        at, payload = 0, record.payload
        name = record.header.get("file")
        if name is not None:
            stored = self._backend.read_value(self.job.run, str(name))
            payload = rundir.checked_payload(record, stored)
        for number, kind, header, size in record.header["done"]:
            waiting = self.given.pop(number, None)
            body, at = payload[at : at + size], at + size
            if waiting is not None:
                self._settle(waiting, rundir.Record(record.job, number, 0, 0, kind, header, body))

    def _settle(self, waiting: Waiting, record: rundir.Record) -> None:
        subject = Subject(waiting.name, self.job.id, self.job.path, self._options)
        evidence = Evidence(records=[record])
        results = Results(self._backend, self.job.run, evidence, subject)
        value, error = results.outcome(_VERDICTS[record.kind], False)
        if error is not None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(value)

    def give(self, calls: Sequence[tuple[int, Waiting]], functions: Mapping[int, bytes]) -> None:
        """Send calls, and the functions that the block does not know: one append for all."""
        who = rundir.Identity(self.job.bare, 0, 0, 0)
        pieces = []
        for number in sorted({waiting.function for _, waiting in calls} - self._knows):
            kind, header = block_runner.FUNCTION_RECORD, {"number": number}
            pieces.append(rundir.encode_record(who, kind, header, functions[number]))
        table = [[n, call.function, int(call.chunk), len(call.data)] for n, call in calls]
        payload = b"".join(call.data for _, call in calls)
        kind = block_runner.CALLS_RECORD
        pieces.append(rundir.encode_record(who, kind, {"calls": table}, payload))
        self.given.update(calls)
        self._backend.append_calls(self.job.run, b"".join(pieces))
        self._knows |= {waiting.function for _, waiting in calls}

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


def next_ahead(ahead: int, ended: int, workers: int) -> int:
    """How many calls a block should have: many short ones, so that its workers never wait."""
    if ended >= ahead // 2:
        return min(2 * ahead, MOST_AHEAD)
    return max(2 * workers, ahead // 2) if ended < ahead // 8 else ahead


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
    futures: list[concurrent.futures.Future[Any]],
    end: float | None,
    unpack: Callable[[Any], Iterable[Any]],
) -> Iterator[Any]:
    """The values of futures, one after the other; what is not needed any more is cancelled."""
    try:
        for future in futures:
            left = None if end is None else max(0.0, end - time.monotonic())
            yield from unpack(future.result(left))
    finally:
        for future in futures:
            future.cancel()


def died(waiting: Waiting, job: Job[Any], cause: BaseException | None) -> errors.WorkerDied:
    """The error of a call that was lost with its block too often."""
    error = errors.WorkerDied(
        f"{waiting.name} was lost with its worker {waiting.lost} times, the last time in job "
        f"{job.id}",
        hint="the cause of this error says what became of that job",
        job_id=job.id,
    )
    error.__cause__ = cause
    return error
