"""The collector: one background collection that feeds the exporter and every page.

A scrape or a page view never asks Slurm: it gets the last `View`, which says how old it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from slurm.api.backend import Backend
from slurm.api.slurm_answers import parse_partitions, sinfo_command
from slurm.api.slurm_commands import UnreadableAnswer
from slurm.errors import SchedulerUnreachable, SlurmError
from slurm.monitor import controller, nodes, queue, sharing
from slurm.monitor.events import Event, events
from slurm.monitor.snapshot import Snapshot
from slurm.monitor.tally import Tally

#: Seconds between two collections at least, and between two looks at what changes seldom.
INTERVAL = 15.0
SELDOM = 120.0
#: Data older than this are no longer served as if they were true.
STALE = 300.0
#: So much of the time may be spent collecting: 1 / 20.
SHARE = 20.0
#: The longest pause, however slow the controller is, and where it does not answer at all.
LONGEST = 300.0
BACK_OFF = 60.0
#: So many events are kept for who joins late.
KEPT_EVENTS = 2000
#: Seconds that one command may take.
PATIENCE = 60.0


def pause(interval: float, took: float, failures: int) -> float:
    """Seconds until the next collection: longer where it took long, and after each failure."""
    if failures:
        # Its return shall be seen soon, whatever the waiting for it took.
        return max(interval, took, min(BACK_OFF, interval * 2.0 ** min(failures, 10)))
    return min(LONGEST, max(interval, SHARE * took))


@dataclass(frozen=True)
class Health:
    """How the collector itself fares."""

    collections: int = 0
    failures: int = 0
    #: Failures in a row; 0 after a success.
    in_a_row: int = 0
    #: Seconds that the last collection took, and of CPU in this process.
    took: float = 0.0
    cpu: float = 0.0
    #: Commands of Slurm that were run.
    commands: int = 0
    #: What the last failure said; "" after a success.
    problem: str = ""
    #: Until the next collection.
    pause: float = 0.0


@dataclass(frozen=True)
class View:
    """What a reader gets: the last snapshot, its age, and how the collector fares."""

    snapshot: Snapshot | None
    #: Seconds since it was taken, by a clock that nobody sets.
    age: float
    health: Health
    stale: bool


@dataclass(frozen=True)
class _Kept:
    """What changes seldom, with the time it was asked for."""

    at: float = float("-inf")
    found: Snapshot = field(default_factory=lambda: Snapshot(0.0))


class Collector:
    """Collects in a thread of its own once started; readers call `view`, listeners hear events."""

    def __init__(
        self,
        backend: Backend,
        *,
        interval: float = INTERVAL,
        stale_after: float = STALE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._interval = interval
        self._stale_after = stale_after
        self._clock = clock
        self._lock = threading.Lock()
        self._collecting = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._snapshot: Snapshot | None = None
        self._taken = 0.0
        self._health = Health()
        self._seldom = _Kept()
        self._listeners: list[Callable[[Snapshot, list[Event]], None]] = []
        #: What happened since the collector began; for readers that hold `lock`.
        self.tally = Tally()
        #: The last events, the newest last.
        self.recent: deque[Event] = deque(maxlen=KEPT_EVENTS)

    @property
    def lock(self) -> threading.Lock:
        """Held while the tally grows."""
        return self._lock

    def listen(self, heard: Callable[[Snapshot, list[Event]], None]) -> None:
        """Call a function after every collection that succeeded, in the collector's thread."""
        self._listeners.append(heard)

    def start(self) -> None:
        """Begin to collect in the background, the first time at once."""
        self._thread = threading.Thread(target=self._loop, name="collector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Collect no more; a collection that has begun is waited for, but not for ever."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def view(self) -> View:
        """What is known now; asks nobody."""
        with self._lock:
            age = self._clock() - self._taken if self._snapshot is not None else float("inf")
            return View(self._snapshot, age, self._health, age > self._stale_after)

    def collect(self) -> bool:
        """Collect once, now; False where it failed. Two at a time are one after the other."""
        with self._collecting:
            begun, cpu = self._clock(), time.thread_time()
            problem, happened = "", list[Event]()
            before = self._snapshot
            try:
                after = self._ask(before)
                if before is not None:
                    happened = events(before, after)
            except (SlurmError, UnreadableAnswer) as error:
                problem = str(error).splitlines()[0]
            except Exception as error:  # noqa: BLE001 - a surprise must not end the collecting
                problem = f"{type(error).__name__}: {error}"
            took = self._clock() - begun
            with self._lock:
                self._health = _next(self._health, problem, took, time.thread_time() - cpu)
                length = pause(self._interval, took, self._health.in_a_row)
                self._health = replace(self._health, pause=length)
                if problem:
                    return False
                self._snapshot, self._taken = after, begun
                self.tally.add(happened)
                self.recent.extend(happened)
        for heard in self._listeners:
            heard(after, happened)
        return True

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.collect()
            self._stop.wait(self._health.pause)

    def _ask(self, before: Snapshot | None) -> Snapshot:
        """One round trip for what changes often, seldom a second one for the rest."""
        asked = [
            queue.queue_command(),
            nodes.nodes_command(),
            sinfo_command(),
            controller.controller_command(),
        ]
        # A list that is too short ends with the failure that made it so.
        jobs, hosts, parts, diag = [_must(*answer) for answer in self._look(asked)]
        rows, bad_rows = queue.parse_queue(jobs, before.rows if before else {})
        found, bad_nodes = nodes.parse_nodes(hosts)
        snapshot = Snapshot(
            taken=time.time(),
            rows=rows,
            nodes=tuple(found),
            partitions=tuple(parse_partitions(parts)),
            controller=controller.parse_controller(diag),
            unreadable={"squeue": bad_rows, "sinfo": bad_nodes},
        )
        return self._with_seldom(snapshot)

    def _with_seldom(self, snapshot: Snapshot) -> Snapshot:
        if self._clock() - self._seldom.at >= SELDOM:
            # What fails here leaves a gap, no more; and is not tried anew with each collection.
            self._seldom = _Kept(self._clock())
            with contextlib.suppress(SchedulerUnreachable):
                self._seldom = replace(self._seldom, found=self._ask_seldom(snapshot))
        kept = self._seldom.found
        return replace(
            snapshot,
            shares=kept.shares,
            licences=kept.licences,
            reservations=kept.reservations,
            accounting_lag=kept.accounting_lag,
        )

    def _ask_seldom(self, snapshot: Snapshot) -> Snapshot:
        asked = [
            sharing.shares_command(),
            sharing.licences_command(),
            sharing.reservations_command(),
        ]
        over = [(row.end, row.job_id) for row in snapshot.rows.values() if row.end is not None]
        ended = {job: end for end, job in sorted(over)[-20:]}
        if ended:
            asked.append(sharing.accounting_command(ended, min(ended.values()) - 86400))
        told = [text if code == 0 else None for code, text, _ in self._look(asked)]
        shares, licences, reservations, accounted = [*told, None, None, None, None][:4]
        now = snapshot.controller.now
        lag = None
        if accounted is not None and now is not None:
            lag = sharing.accounting_lag(accounted, ended, now)
        return Snapshot(
            taken=snapshot.taken,
            shares=tuple(sharing.parse_shares(shares or "")),
            licences=tuple(sharing.parse_licences(licences or "")),
            reservations=tuple(sharing.parse_reservations(reservations or "")),
            accounting_lag=lag,
        )

    def _look(self, commands: list[list[str]]) -> list[tuple[int, str, str]]:
        with self._lock:
            self._health = replace(self._health, commands=self._health.commands + len(commands))
        return self._backend.look(commands, PATIENCE)


def _next(health: Health, problem: str, took: float, cpu: float) -> Health:
    """The health after one more collection."""
    failed = 1 if problem else 0
    return replace(
        health,
        collections=health.collections + 1,
        failures=health.failures + failed,
        in_a_row=health.in_a_row + 1 if failed else 0,
        took=took,
        cpu=cpu,
        problem=problem,
    )


def _must(code: int, text: str, words: str) -> str:
    """What a command printed that has to succeed."""
    if code != 0:
        said = [line for line in words.splitlines() if line.strip()]
        raise SchedulerUnreachable(
            said[-1] if said else f"a command of Slurm ended with {code}",
            hint="check that slurmctld runs: scontrol ping",
            evidence=said,
        )
    return text
