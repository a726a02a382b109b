"""A block of warm workers: a job that takes calls out of its inbox and hands them to processes."""

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from typing import Any, Deque, Dict, List, Set, Tuple

from slurm import rundir
from slurm.context import JobContext
from slurm.runner import inbox
from slurm.runner.callee import (
    CALL,
    FORGET,
    FUNCTION,
    Frames,
    encode_detail,
    encode_frame,
    work,
)

#: How often the inbox is read: quickly while calls come, then less and less.
FASTEST, SLOWEST = 0.005, 0.25
#: A worker has calls of so many seconds before it, at least one and at most so many, and of
#: about so many bytes: what it was given cannot be taken back.
AHEAD_S, AHEAD, AHEAD_BYTES = 0.01, 64, 1 << 18
#: Results are written together: after so many seconds, or so many bytes.
GATHER, GATHER_BYTES = 0.02, 512 << 10


class Call:
    """One call: its number, its function's number, and its pickled arguments."""

    def __init__(self, number: int, function: int, chunk: bool, data: bytes, apart: bool) -> None:
        self.number = number
        self.function = function
        self.chunk = chunk
        #: The pickled arguments, or the path of the file in which they are.
        self.data = data
        self.apart = apart
        self.deaths = 0

    def over(self) -> None:
        """Nobody needs its arguments any more."""
        if self.apart:
            with contextlib.suppress(OSError):
                os.unlink(self.data)


class Worker:
    """One process that calls functions, and the calls that it was given."""

    def __init__(self, others: "List[Worker]", job: str) -> None:
        mine, theirs = socket.socketpair()
        self.socket: socket.socket = mine
        # What is buffered would be written by both.
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            mine.close()
            for other in others:
                other.socket.close()
            _become(theirs, job)
        theirs.close()
        mine.setblocking(False)
        self.frames = Frames()
        self.given: Deque[Call] = deque()
        self.knows: Set[int] = set()
        self.out = bytearray()

    def give(self, call: Call, functions: Dict[int, bytes]) -> None:
        """Put a call before the worker, and its function where it does not have it."""
        if call.function not in self.knows:
            self.knows.add(call.function)
            self.out += encode_frame(FUNCTION, call.function, 0, functions[call.function])
        self.given.append(call)
        detail = encode_detail(call.function, call.chunk, call.apart)
        self.out += encode_frame(CALL, call.number, detail, call.data)

    def forget(self, function: int) -> None:
        """Let go of a function that is called no more."""
        if function in self.knows:
            self.knows.remove(function)
            self.out += encode_frame(FORGET, function, 0, b"")

    def send(self) -> None:
        """Send what the socket takes now."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self.out:
                sent = self.socket.send(self.out[:AHEAD_BYTES])
                del self.out[:sent]

    def ended(self) -> str:
        """How the process ended, in words."""
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        return f"exit code {os.WEXITSTATUS(status)}"


def _become(theirs: socket.socket, job: str) -> None:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        work(theirs, job)
    finally:
        os._exit(0)


class Block:
    """Workers, the calls that wait for them, and the results that wait to be written."""

    def __init__(self, run: str, who: rundir.Identity, count: int, retries: int) -> None:
        self._run = run
        self._who = who
        self._retries = retries
        self._folder = inbox.inbox_folder(run, rundir.CALLS)
        rundir.make_run_folder(self._folder)
        self._read_to = 0
        self._functions: Dict[int, bytes] = {}
        self._queue: Deque[Call] = deque()
        self._done: List[Tuple[int, str, Dict[str, Any], bytes]] = []
        self._done_bytes = 0
        self._written_at = self.active_at = time.monotonic()
        self._sequence = 0
        self._beat = ""
        self._dropped = 0
        self._call_s = 2 * AHEAD_S  # how long calls take; until that is known a worker has one
        self._spent = [0, 0]  # microseconds and calls since the last report
        self.closed = False
        self.finished = 0
        self._selector = selectors.DefaultSelector()
        self.workers: List[Worker] = []
        for _ in range(count):
            self._hire()

    def _hire(self) -> None:
        worker = Worker(self.workers, self._who.job)
        self.workers.append(worker)
        self._selector.register(worker.socket, selectors.EVENT_READ, worker)

    @property
    def busy(self) -> bool:
        """Whether any call waits or runs."""
        return bool(self._queue) or any(worker.given for worker in self.workers)

    def turn(self) -> None:
        """One round: read the inbox, hand out calls, take results, write them."""
        self._read_inbox()
        self._hand_out()
        quiet = time.monotonic() - self.active_at
        pause = min(max(quiet / 20, FASTEST), SLOWEST)
        for key, events in self._selector.select(pause):
            if events & selectors.EVENT_WRITE:
                self._send(key.data)
            if events & selectors.EVENT_READ:
                self._listen(key.data)
        late = time.monotonic() - self._written_at > GATHER
        if self._done and (late or self._done_bytes > GATHER_BYTES or not self.busy):
            self._write()

    def _read_inbox(self) -> None:
        names = os.listdir(self._folder)
        if rundir.CALLS + ".seg" in names:
            with rundir.open_trusted(os.path.join(self._folder, rundir.CALLS + ".seg")) as f:
                f.seek(self._read_to)
                records, used = rundir.decode_records(f.read())
            self._read_to += used
            for record in records:
                self._take(record)
        if inbox.BEAT in names:
            with open(os.path.join(self._folder, inbox.BEAT)) as text:
                beat = text.read()
            if beat != self._beat:
                self._beat, self.active_at = beat, max(self.active_at, time.monotonic() - 5)
        if inbox.DROP in names:
            with open(os.path.join(self._folder, inbox.DROP)) as text:
                self._drop(int(text.read() or 0))
        self.closed = self.closed or inbox.CLOSE in names

    def _drop(self, last: int) -> None:
        """Give back the calls up to a number that no worker has yet."""
        if last <= self._dropped:
            return
        self._dropped = last
        queue, self._queue = self._queue, deque()
        for call in queue:
            if call.number <= last:
                self._finish(call, rundir.ERROR, {"dropped": True}, b"")
            else:
                self._queue.append(call)

    def _take(self, record: rundir.Record) -> None:
        self.active_at = time.monotonic()
        payload = record.payload
        if record.kind == FUNCTION_RECORD:
            self._functions[int(record.header["number"])] = payload
            return
        at = 0
        for number in record.header.get("forget", ()):
            self._functions.pop(number, None)
            for worker in self.workers:
                worker.forget(number)
        for number, function, chunk, size in record.header["calls"]:
            apart = size < 0
            data = payload[at : at + size]
            if apart:
                data = os.path.join(self._folder, arguments_name(number)).encode()
            self._queue.append(Call(number, function, bool(chunk), data, apart))
            at += max(0, size)

    def _hand_out(self) -> None:
        share = len(self._queue) // len(self.workers) + 1
        for worker in sorted(self.workers, key=lambda worker: len(worker.given)):
            room = min(share, AHEAD, int(1 + AHEAD_S / self._call_s)) - len(worker.given)
            while room > 0 and self._queue and len(worker.out) < AHEAD_BYTES:
                worker.give(self._queue.popleft(), self._functions)
                room -= 1
            if worker.out:
                self._send(worker)

    def _send(self, worker: Worker) -> None:
        worker.send()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.out else 0)
        if self._selector.get_key(worker.socket).events != events:
            self._selector.modify(worker.socket, events, worker)

    def _listen(self, worker: Worker) -> None:
        try:
            data = worker.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._bury(worker)
            return
        self._results(worker, data)

    def _results(self, worker: Worker, data: bytes) -> None:
        for kind, number, spent, payload in worker.frames.feed(data):
            self.active_at = time.monotonic()
            call = worker.given.popleft()
            assert call.number == number
            header, body = rundir.decode_function(payload, "a result")
            self._spent[0] += spent
            self._spent[1] += 1
            self._call_s = max(1e-6, 0.8 * self._call_s + 0.2e-6 * spent)
            self._finish(call, kind, header, body)

    def _finish(self, call: Call, kind: str, header: Dict[str, Any], body: bytes) -> None:
        call.over()
        self.finished += 1
        self._done.append((call.number, kind, header, body))
        self._done_bytes += len(body)

    def _bury(self, worker: Worker) -> None:
        """A worker died: its current call is tried again, the others lose nothing."""
        self._selector.unregister(worker.socket)
        worker.socket.close()
        self.workers.remove(worker)
        how = worker.ended()
        sys.stderr.write(f"slurm-sdk: worker {worker.pid} died: {how}\n")
        if worker.given:
            call = worker.given[0]
            call.deaths += 1
            if call.deaths > self._retries:
                worker.given.popleft()
                times = f"{call.deaths} worker(s), the last one by {how}"
                message = f"the call killed {times}"
                hint = "run it alone to see why; too much memory, os._exit and crashes do this"
                self._finish(
                    call,
                    rundir.ERROR,
                    {"error": "WorkerDied", "message": message, "hint": hint},
                    b"",
                )
        self._queue.extendleft(reversed(worker.given))
        self._hire()

    def _write(self) -> None:
        batch, self._done, self._done_bytes = self._done, [], 0
        self._sequence += 1
        self._written_at = time.monotonic()
        listed = [[number, kind, header, len(body)] for number, kind, header, body in batch]
        # Index 0 is the outcome of the block itself; each batch has an index of its own.
        who = self._who._replace(index=self._sequence)
        payload = b"".join(body for _, _, _, body in batch)
        header = {"done": listed, "spent": self._spent}
        self._spent = [0, 0]
        rundir.append_record(self._run, who, DONE_RECORD, header, payload)

    def end(self) -> None:
        """Let the workers go; write what is done, and which calls were under way."""
        for worker in self.workers:
            if worker.given:
                self._stop(worker)
            worker.socket.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            os.waitpid(worker.pid, 0)
        if self._done:
            self._write()

    def _stop(self, worker: Worker) -> None:
        """Stop a worker in its call; what it has finished counts."""
        os.kill(worker.pid, signal.SIGKILL)
        worker.socket.settimeout(1)  # a child of the call may keep its end open
        with contextlib.suppress(OSError):
            while data := worker.socket.recv(1 << 20):
                self._results(worker, data)
        if worker.given:
            self._finish(worker.given[0], rundir.ERROR, {"stopped": True}, b"")


#: The kinds of records that a client and a block exchange.
FUNCTION_RECORD, CALLS_RECORD, DONE_RECORD = "function", "calls", "done"


def arguments_name(number: int) -> str:
    """The file in the inbox that holds the arguments of a call, where they are large."""
    return f"{number}.arguments"


def serve(workers: int, retries: int, idle: float, token: str, ctx: JobContext) -> int:
    """The function of a job that is a block of workers; returns how many calls it finished.

    The token is another one each time: a workflow that begins anew must not take an old one.
    """
    from slurm.runner.run import identity

    block = Block(os.environ["SLURM_SDK_RUN"], identity(), workers, retries)
    try:
        while not ctx.should_stop:
            block.turn()
            if block.busy:
                continue
            if block.closed or time.monotonic() - block.active_at > idle:
                break
    finally:
        block.end()
    return block.finished
