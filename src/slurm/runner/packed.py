"""Runs one element of a packed map: hands ranges of its items to warm workers, records outcomes."""

import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from slurm import rundir
from slurm.runner import batches, premises
from slurm.runner import run as runner
from slurm.runner.beat import INTERVAL, Beat
from slurm.runner.board import MOST, Call
from slurm.runner.cache import announce
from slurm.runner.memory import OomCounter
from slurm.runner.ranges import Queue
from slurm.runner.retry import is_retried_for_memory
from slurm.runner.trouble import trouble
from slurm.runner.usage import Usage
from slurm.runner.waiting import Waiting
from slurm.runner.workers import SETTLED, Calls, Worker, calls_there, exit_code, how_it_ended

#: An item that was under way when its worker died is tried again so often, each time alone.
RETRIES = 2
#: So many workers may die in a row before they begin an item.
STILLBORN = 3
#: A range should take so many seconds: long enough to cost nothing, short enough to be shared.
RANGE_S = 0.05
#: A range that takes so many seconds holds an item that is slow: it ends with that item.
SLOW_S = 0.2
#: What was written reaches the disk so many seconds later at most.
SYNC_S = 0.2
#: Whether all workers live is looked at so often.
CENSUS_S = 0.5
#: A worker that died of TERM may have heard before its parent that the job has to end.
TERM_S = 1.0


def run_pack(run: str, who: rundir.Identity, size: int, items: int, workers: int) -> int:
    """Run the items of this element; the exit code is 1 if one of them failed for good."""
    line = rundir.format_event("start", who, pid=os.getpid(), time=int(time.time()))
    runner.note(run, line)
    first, stop = who.index * size, min(items, (who.index + 1) * size)
    try:
        over = earlier_outcomes(run, first, stop) if _may_have_run(who) else {}
        calls = calls_there(run, who)
        if not calls.compared or premises.look(run):
            announce(run, first, stop)
    except runner.Postponed:
        runner.say(runner.GOES_ON)
        return 0
    except BaseException as error:  # noqa: BLE001 - what keeps the pack from starting is its outcome
        _, header, payload, _ = trouble(error)
        header.update(outcome=rundir.ERROR, rest=True)
        return runner.record(run, who, batches.PACK, header, payload, 1)
    pack = Pack(calls, Queue(first, stop, set(over)), workers)
    pack.failed = sum(over.values())
    usage = Usage()
    try:
        with usage:
            pack.work()
        pack.sync()
    except runner.Refused as error:
        pack.refused = error
    except OSError as error:
        runner.say(f"slurm-sdk: the results could not be written: {error}\n")
        return rundir.EXIT_NOT_WRITTEN
    finally:
        pack.end()
    if pack.code is not None:
        return pack.code
    if pack.waiting.moved:
        runner.say(runner.GOES_ON)
        return 0
    header, code = pack.summary(stop - first)
    header["usage"] = usage.report()
    return runner.record(run, who, batches.PACK, header, b"", code)


def _may_have_run(who: rundir.Identity) -> bool:
    """Whether items may have run before: the job was requeued, forgotten by Slurm, or retried."""
    part = os.environ.get("SLURM_SDK_PART", "0")
    return bool(who.attempt or os.environ.get("SLURM_SDK_AGAIN") or not part.isdigit())


def earlier_outcomes(run: str, first: int, stop: int) -> Dict[int, bool]:
    """The items that an earlier attempt has settled, and whether each failed: none runs again."""
    found: Dict[int, bool] = {}
    for record in batches.item_records(run):
        if first <= record.index < stop:
            found.setdefault(record.index, record.kind != rundir.VALUE)
    return found


class Pack:
    """The parent of the workers: it runs no code of the user, so it outlives every item."""

    def __init__(self, calls: Calls, queue: Queue, workers: int) -> None:
        self.calls = calls
        self.queue = queue
        self.failed = 0
        self.code: Optional[int] = None
        self._wanted = max(1, min(workers, queue.left))
        self._workers: List[Worker] = []
        self._deaths: Dict[int, List[str]] = {}
        self._stillborn = 0
        self._lost = ""
        self._starved: List[int] = []  # items that are left to a job with more memory
        self.waiting = Waiting()
        #: Why items that wait cannot be left to another job.
        self.refused: Optional[runner.Refused] = None
        self._signals: List[int] = []
        self._passed_on = 0
        self._dirty = False
        self._synced = self._beaten = self._counted = self._began = time.monotonic()
        self._oom = OomCounter()
        self._kills = 0
        self._beat = Beat(calls.run)
        self._install()

    # ---- the loop -------------------------------------------------------------------------------

    def work(self) -> None:
        """Do all items; those that wait are left to a job behind what they wait for."""
        self._work_off()
        while self.waiting and not (self._ending or self.queue.left or self._starved):
            if self.waiting.look(self.calls, self.queue):
                self._dismiss()  # what the workers have read of other runs is old
                self._work_off()
            elif not self._ending:
                self.waiting.move(self.calls)
                return

    @property
    def _ending(self) -> bool:
        return self._stopping or self.code is not None

    def _work_off(self) -> None:
        """Hand out ranges until no item is left, or the job has to end."""
        while True:
            self._hand_out()
            busy = [worker for worker in self._workers if worker.range is not None]
            if not busy:
                return
            ready, _, _ = select.select([worker.answers for worker in busy], [], [], 0.1)
            self._pass_signals_on()
            for worker in busy:
                if worker.answers not in ready:
                    continue
                if os.read(worker.answers, 1):
                    self._ended(worker)
                else:
                    self._died(worker, worker.reap())
            self._keep_up()

    def _hand_out(self) -> None:
        if self._stopping or self.code is not None or (self._signals and self.calls.graceful):
            return
        while len(self._workers) < self._wanted and self._idle() < self.queue.left:
            if self._stillborn >= STILLBORN:
                break
            self._workers.append(Worker(self.calls, list(self._workers)))
        for worker in self._workers:
            if worker.range is None:
                order = self.queue.take(self._size(worker))
                if order is None:
                    return
                worker.order(*order)

    def _idle(self) -> int:
        return sum(1 for worker in self._workers if worker.range is None)

    def _size(self, worker: Worker) -> int:
        """How many items make a range of the right length; towards the end all get their share."""
        fair = -(-self.queue.left // (2 * self._wanted))
        return max(1, min(int(worker.rate * RANGE_S), MOST, fair))

    def _ended(self, worker: Worker) -> None:
        assert worker.range is not None
        first, stop = worker.range
        done, taken, at = worker.board.done, worker.board.take(worker.taken), first + worker.taken
        elapsed = max(time.monotonic() - worker.since, 1e-6)
        worker.rate = min(done / elapsed, 16 * max(worker.rate, 1 / RANGE_S))
        worker.range = None
        self._stillborn = 0
        self.queue.give_back(first + done, stop)
        # The worker goes on while its outcomes are written.
        self._hand_out()
        self._write(at, *taken)

    # ---- death ----------------------------------------------------------------------------------

    def _died(self, worker: Worker, status: Optional[int]) -> None:
        """Keep what the worker finished; only the item it was at is in doubt."""
        assert worker.range is not None
        first, stop = worker.range
        done, begun = worker.board.done, worker.board.begun
        self._workers.remove(worker)
        worker.close()
        self._write(first + worker.taken, *worker.board.take(worker.taken))
        at = first + done
        if begun > done:
            self._stillborn = 0
            self.queue.give_back(at + 1, stop)
            self._doubt(at, status)
        else:
            self._stillborn += 1
            self._lost = how_it_ended(status)
            self.queue.give_back(at, stop)

    def _doubt(self, index: int, status: Optional[int]) -> None:
        if exit_code(status) == rundir.EXIT_NOT_WRITTEN:
            self.code = rundir.EXIT_NOT_WRITTEN
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM:
            self._await_term()
        if self._stopping or self.code is not None:
            self.queue.suspect(index)
            return
        kills = self._oom.kills()
        memory, self._kills = kills > self._kills, kills
        ways = self._deaths.setdefault(index, [])
        ways.append(how_it_ended(status) + (" for want of memory" if memory else ""))
        runner.say(f"slurm-sdk: a worker {ways[-1]} while it worked on item {index}\n")
        if len(ways) <= RETRIES:
            self.queue.suspect(index)
            return
        if memory and is_retried_for_memory(self.calls.run):
            self._starved.append(index)
            return
        header = {
            "error": "JobOutOfMemory" if memory else "WorkerDied",
            "message": f"item {index} ended its worker in each of {len(ways)} tries: the last "
            f"one {ways[-1]}",
            "hint": "ask for more memory: task.with_options(mem=...)"
            if memory
            else "run the function for this item alone: task.local(...)",
        }
        blob = batches.encode_trouble(rundir.ERROR, header, b"", 1 << 16)
        word = batches.TROUBLE | len(blob)
        self._write(index, 1, 1, batches.encode_batch([word], blob))

    def _await_term(self) -> None:
        """Wait a moment for the signal that ended a worker: it may be meant for the whole job."""
        until = time.monotonic() + TERM_S
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.02)

    # ---- what is written ------------------------------------------------------------------------

    def _write(
        self,
        first: int,
        count: int,
        failed: int,
        payload: bytes,
        waits: Sequence[Tuple[int, Call]] = (),
    ) -> None:
        if not count:
            return
        for number, call in waits:
            self.waiting.add(first + number, call)
        self.failed += failed
        header: Dict[str, Any] = {"first": first, "count": count, "python": _PYTHON}
        # No rank: the name of a file that it may need differs from those of its items.
        who = self.calls.who._replace(index=first, rank=-1)
        rundir.append_record(self.calls.run, who, batches.BATCH, header, payload, sync=False)
        self._dirty = True

    def _keep_up(self) -> None:
        now = time.monotonic()
        if self._dirty and now - self._synced >= SYNC_S:
            self.sync()
        if now - self._counted >= CENSUS_S:
            self._counted = now
            # A process that the function left behind can keep a dead worker's pipe open.
            for worker in [worker for worker in self._workers if worker.range is not None]:
                if worker.gone() and not select.select([worker.answers], [], [], 0)[0]:
                    self._died(worker, worker.status)
        for worker in self._workers:
            if worker.range is not None and now - worker.since >= SLOW_S:
                self._relieve(worker, now)
        if now - self._beaten >= INTERVAL:
            self._beaten = now
            self._beat.beat()

    def _relieve(self, worker: Worker, now: float) -> None:
        """Nothing waits behind an item that takes long: neither outcomes nor other items."""
        rest = worker.shorten(now)
        if rest is not None:
            self.queue.give_back(*rest)
        if now - worker.asked >= SETTLED and worker.board.done > worker.taken:
            assert worker.range is not None
            taken = worker.board.take(worker.taken)
            self._write(worker.range[0] + worker.taken, *taken)
            worker.taken += taken[0]

    def sync(self) -> None:
        """Bring what was written to the disk."""
        if self._dirty:
            rundir.sync_records(self.calls.run)
        self._dirty, self._synced = False, time.monotonic()

    def summary(self, items: int) -> Tuple[Dict[str, Any], int]:
        """The header of the pack's own record, and the exit code."""
        header: Dict[str, Any] = {
            "outcome": rundir.VALUE,
            "items": items,
            "failed": self.failed,
            "workers": self._wanted,
            "seconds": round(time.monotonic() - self._began, 6),
        }
        if self._left or self._starved:
            header.update(self._unfinished(), outcome=rundir.ERROR, rest=True)
        elif self.failed:
            header.update(
                outcome=rundir.ERROR,
                error="JobFailed",
                message=f"{self.failed} of its {items} items failed for good",
            )
        else:
            return header, 0
        return header, 1

    def _unfinished(self) -> Dict[str, Any]:
        if self.refused is not None:
            return trouble(self.refused)[1]
        if self._stillborn >= STILLBORN:
            return {
                "error": "WorkerDied",
                "message": f"{STILLBORN} workers died before they began an item: the last one "
                f"{self._lost}",
                "hint": "its log may say why",
            }
        if self._starved and not self.queue.left:
            return {
                "error": "JobOutOfMemory",
                "message": f"the memory did not suffice for {len(self._starved)} of its items",
                "hint": "ask for more memory: task.with_options(mem=...)",
            }
        return {
            "error": "TimeLimitReached",
            "message": f"{self._left} items were not begun: the time limit was near",
            "hint": "ask for more time, or for fewer items per job with pack=",
        }

    # ---- signals --------------------------------------------------------------------------------

    @property
    def _stopping(self) -> bool:
        return signal.SIGTERM in self._signals or signal.SIGINT in self._signals

    def _install(self) -> None:
        name = os.environ.get("SLURM_SDK_WARNING", "USR2")
        warning = getattr(signal, "SIG" + name, signal.SIGUSR2)
        for number in (warning, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._signals.append(number))

    def _pass_signals_on(self) -> None:
        """Tell the workers: those whose function cannot stop by itself die of TERM at once."""
        for number in self._signals[self._passed_on :]:
            self._passed_on += 1
            for worker in self._workers:
                worker.signal(number)

    def end(self) -> None:
        """End the workers; those that are idle leave by themselves."""
        if self._stopping and self._left and self.code is None and not self.waiting.moved:
            self.code = 128 + int(signal.SIGTERM)
        self._dismiss()

    @property
    def _left(self) -> int:
        """How many items have no outcome."""
        return self.queue.left + len(self.waiting)

    def _dismiss(self) -> None:
        for worker in self._workers:
            worker.close()
        until = time.monotonic() + 2
        for worker in self._workers:
            while not worker.gone():
                if time.monotonic() > until:
                    worker.signal(signal.SIGKILL)
                time.sleep(0.002)
        self._workers = []


_PYTHON = "{}.{}.{}".format(*sys.version_info[:3])
