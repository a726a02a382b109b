"""The collector: one background collection that feeds the exporter and every page.

A scrape or a page view never asks Slurm: it gets the last `View`, which says how old it is.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slurm.api.looking import Looking
from slurm.api.slurm_rows import UnreadableAnswer
from slurm.errors import (
    ConnectionLost,
    RestTokenRefused,
    RestUnreachable,
    SchedulerUnreachable,
    SlurmError,
)
from slurm.monitor.events import Event, events
from slurm.monitor.sharing import Sharing
from slurm.monitor.snapshot import Snapshot
from slurm.monitor.source import source_of
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
#: Seconds that the end waits for a collection that has begun; it only reads.
LEAVING = 2.0
#: So many events are kept for who joins late.
KEPT_EVENTS = 2000
#: Why a collection fails, by the errors that say so; all others are `other`.
CAUSES: dict[str, tuple[type[Exception], ...]] = {
    "unreachable": (SchedulerUnreachable, RestUnreachable, ConnectionLost),
    "token": (RestTokenRefused,),
    "unreadable": (UnreadableAnswer,),
    "other": (Exception,),
}


def pause(interval: float, took: float, failures: int) -> float:
    """Seconds until the next collection: longer where it took long, and after each failure."""
    if failures:
        # Its return shall be seen soon, whatever the waiting for it took.
        return max(interval, took, min(BACK_OFF, interval * 2.0 ** min(failures, 10)))
    return min(LONGEST, max(interval, SHARE * took))


@dataclass(frozen=True)
class Health:
    """How the collector itself fares."""

    #: Since when it counts, epoch seconds of this machine.
    began: float = field(default_factory=time.time)
    collections: int = 0
    #: How many failed, by one of `CAUSES`.
    causes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    #: Failures in a row; 0 after a success.
    in_a_row: int = 0
    #: Seconds that the last collection took, and of CPU, that of Slurm's commands here included.
    took: float = 0.0
    cpu: float = 0.0
    #: How often Slurm was asked for something: commands, or requests to slurmrestd.
    commands: int = 0
    #: What the last failure said; "" after a success.
    problem: str = ""
    #: Until the next collection.
    pause: float = 0.0

    @property
    def failures(self) -> int:
        """How many collections failed."""
        return sum(self.causes.values())


@dataclass(frozen=True)
class View:
    """What a reader gets: the last snapshot, its age, and how the collector fares."""

    snapshot: Snapshot | None
    #: Seconds since it was taken, by a clock that nobody sets.
    age: float
    health: Health
    stale: bool


class _Kept:
    """What changes seldom: asked for now and then, and kept for a while where nobody tells it."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._asked = float("-inf")
        #: When each part was told, and what.
        self._told: dict[str, tuple[float, Any]] = {}
        self._lag: float | None = None

    def due(self, now: float) -> bool:
        """Whether it is time to ask; what fails is not tried anew with each collection."""
        return now - self._asked >= SELDOM

    def asked(self, now: float) -> None:
        """It is asked for now; what accounting said is no longer true."""
        self._asked, self._lag = now, None

    def learn(self, found: Sharing, now: float) -> None:
        """Take what was told."""
        parts = found._asdict()
        self._lag = parts.pop("accounting_lag")
        self._told.update({n: (now, value) for n, value in parts.items() if value is not None})

    def added_to(self, snapshot: Snapshot, now: float) -> Snapshot:
        """The snapshot with what is known; a part that is too old is left out."""
        known = {n: told for n, told in self._told.items() if now - told[0] < self._longest}
        return replace(
            snapshot,
            accounting_lag=self._lag,
            older={name: now - at for name, (at, _) in known.items()},
            **{name: value for name, (_, value) in known.items()},
        )


class Collector:
    """Collects in a thread of its own once started; readers call `view`, listeners hear events."""

    def __init__(
        self,
        backend: Looking,
        *,
        interval: float = INTERVAL,
        stale_after: float = STALE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source_of(backend)
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
        self._seldom = _Kept(SELDOM + stale_after)
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
        """Collect no more; a collection that has begun is waited for a moment."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LEAVING)

    def view(self) -> View:
        """What is known now; asks nobody."""
        with self._lock:
            age = self._clock() - self._taken if self._snapshot is not None else float("inf")
            return View(self._snapshot, age, self._health, age > self._stale_after)

    def collect(self) -> bool:
        """Collect once, now; False where it failed. Two at a time are one after the other."""
        with self._collecting:
            begun, cpu = self._clock(), _cpu()
            before = self._snapshot
            try:
                after = self._source.often(before)
                # What is asked seldom may wait long for accounting: jobs are looked at no rarer.
                took = self._clock() - begun
                after = self._with_seldom(after)
                happened = events(before, after) if before is not None else []
                with self._lock:
                    self._snapshot, self._taken = after, begun
                    self.tally.add(happened)
                    self.recent.extend(happened)
                for heard in self._listeners:
                    heard(after, happened)
            except Exception as error:  # noqa: BLE001 - a surprise must not end the collecting
                with self._lock:
                    self._failed(error, self._clock() - begun)
                return False
            with self._lock:
                self._succeeded(took, self._clock() - begun, _cpu() - cpu)
        return True

    def _succeeded(self, often: float, took: float, cpu: float) -> None:
        self._health = replace(
            self._health,
            collections=self._health.collections + 1,
            commands=self._source.calls,
            in_a_row=0,
            took=took,
            cpu=cpu,
            problem="",
            pause=pause(self._interval, often, 0),
        )

    def _failed(self, error: Exception, took: float) -> None:
        cause = next(name for name, kinds in CAUSES.items() if isinstance(error, kinds))
        kind = "" if isinstance(error, SlurmError | UnreadableAnswer) else type(error).__name__
        said = (str(error).splitlines() or [""])[0]
        in_a_row = self._health.in_a_row + 1
        self._health = replace(
            self._health,
            collections=self._health.collections + 1,
            causes={**self._health.causes, cause: self._health.causes[cause] + 1},
            commands=self._source.calls,
            in_a_row=in_a_row,
            took=took,
            problem=f"{kind}: {said}" if kind else said,
            pause=pause(self._interval, took, in_a_row),
        )

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.collect()
            self._stop.wait(self._health.pause)

    def _with_seldom(self, snapshot: Snapshot) -> Snapshot:
        if self._seldom.due(self._clock()):
            self._seldom.asked(self._clock())
            # Whatever goes wrong here is a gap, and the age of its part tells of it.
            with contextlib.suppress(Exception):
                self._seldom.learn(self._source.seldom(snapshot), self._clock())
        return self._seldom.added_to(snapshot, self._clock())


def _cpu() -> float:
    """CPU seconds of this thread, and of the commands that it waited for."""
    used = os.times()
    return time.thread_time() + used.children_user + used.children_system
