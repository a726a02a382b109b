"""What the agent tells without being asked: which watched runs have news, while a request waits.

One request is held until there is news; a newer one takes its place. The agent knows how far it
has told of each run, so that idle runs cost no traffic. Runs on the login node, on Python 3.6.
"""

import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Set

#: How often the events folder is read while somebody waits for a result, and while nobody does.
FASTEST, ATTENDED, UNATTENDED = 0.02, 0.2, 1.0
#: Runs are read anew this often whatever the events say: at least so many seconds, and longer
#: where there are many of them.
SWEEP, SWEPT_PER_SECOND = 30.0, 100.0
#: One answer carries about this much; the rest follows at once.
ANSWER_LIMIT = 16 << 20
#: Of one node's segment an answer carries this much; a record is smaller.
SEGMENT_LIMIT = 4 << 20

_NOTHING: Dict[str, int] = {}
_NO_BEATS: List[Any] = []


class _Run:
    """A watched run: how far its files have been told of."""

    __slots__ = ("beats", "eager", "parts", "seen", "told")

    def __init__(self, seen: Dict[str, int], parts: bool, eager: bool) -> None:
        self.seen = seen
        self.parts = parts
        self.eager = eager
        self.beats: List[Any] = _NO_BEATS
        self.told: Any = None


class Watched:
    """The runs that one connection watches."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._lock = threading.Lock()  # guards what requests change
        self._turn = threading.Lock()  # one request waits at a time
        self._runs: Dict[str, _Run] = {}
        self._due: Set[str] = set()
        self._sizes: Dict[str, int] = agent.changes(None)[0]
        self._newest = 0
        self._attended = True
        self._woken = threading.Event()
        self._active_at = time.monotonic()
        self._sweep_at = time.monotonic() + SWEEP

    def follow(
        self,
        number: int,
        watch: Dict[str, Sequence[Any]],
        drop: Sequence[str],
        attended: bool,
        hold: float,
    ) -> Dict[str, Any]:
        """Wait for news of the watched runs, up to `hold` seconds or until a newer request comes.

        `watch` adds runs or changes how they are watched: how far they were read (None: as far as
        before), whether ids of later parts are wanted, and whether they are read all the time.
        """
        with self._lock:
            self._newest = max(self._newest, number)
            self._attended = attended
            for run, (seen, parts, eager) in watch.items():
                known = self._runs.get(run)
                if seen is None and known is not None:
                    known.parts, known.eager = parts, eager
                else:
                    self._runs[run] = _Run(seen or _NOTHING, parts, eager)
                self._due.add(run)
            for run in drop:
                self._runs.pop(run, None)
            if watch:
                self._active_at = time.monotonic()
        self._woken.set()
        with self._turn:
            return {"runs": self._wait(number, time.monotonic() + min(hold, 60.0))}

    def _wait(self, number: int, until: float) -> Dict[str, Any]:
        while True:
            self._woken.clear()
            news = self._look()
            if news or number < self._newest or time.monotonic() >= until:
                return news
            self._woken.wait(min(self._pause(), max(0.0, until - time.monotonic())))

    def _pause(self) -> float:
        quiet = max(0.0, time.monotonic() - self._active_at)
        slowest = ATTENDED if self._attended else UNATTENDED
        return min(max(quiet / 20, FASTEST), slowest)

    def _look(self) -> Dict[str, Any]:
        self._sizes, named = self._agent.changes(self._sizes)
        now = time.monotonic()
        with self._lock:
            due = {run for run in named if run in self._runs} | self._due
            due |= {name for name, run in self._runs.items() if run.eager}
            swept = now >= self._sweep_at
            if swept:
                self._sweep_at = now + max(SWEEP, len(self._runs) / SWEPT_PER_SECOND)
                due |= set(self._runs)
            self._due = set()
        news: Dict[str, Any] = {}
        room = ANSWER_LIMIT
        for name in sorted(due):
            if room <= 0:
                with self._lock:
                    self._due.add(name)
                continue
            answer = self._read(name, swept)
            if answer is not None:
                news[name] = answer
                room -= sum(map(len, answer["events"])) + sum(map(len, answer["segments"]))
        if news:
            self._active_at = now
        return news

    def _read(self, name: str, swept: bool) -> Optional[Dict[str, Any]]:
        """What is new in a run; None where nothing is."""
        run = self._runs.get(name)
        if run is None:
            return None
        try:
            answer = self._agent.read_run(name, run.seen, run.parts, SEGMENT_LIMIT, swept)
        except OSError:
            return None  # its directory is gone; what was read of others must not be lost with it
        run.seen = answer["seen"] or _NOTHING  # ten thousand empty ones would be megabytes
        if answer.pop("more", False):
            with self._lock:
                self._due.add(name)
        ids = (answer["parts"], answer.get("again"), answer["cancelled"])
        new_ids = run.parts and ids != run.told
        run.told = ids if run.parts else None
        beats, run.beats = run.beats, (answer["beats"] or _NO_BEATS) if swept else run.beats
        told = answer["events"] or answer["segments"] or answer["untrusted"] or new_ids
        return answer if told or beats != run.beats else None
