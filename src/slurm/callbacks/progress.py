"""ProgressCallback: one live line per run while somebody waits, on a terminal or in a notebook."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from slurm import locks
from slurm.callbacks.base import BaseCallback
from slurm.model.states import JobState
from slurm.threads import begin

if TYPE_CHECKING:
    from slurm.callbacks import contexts
    from slurm.job import Job

#: What is over sooner is not shown at all.
DELAY = 0.4
#: More lines than this are not live; single calls of one task share one then.
MOST = 8


@dataclass
class Row:
    """What is known of one run, or of many single calls of one task."""

    name: str
    job_id: str
    total: int
    is_array: bool
    since: float
    jobs: list[Job[Any]] = field(repr=False)
    state: JobState = JobState.PENDING
    done: int = 0
    failed: int = 0
    running: int = 0
    ended: float | None = None
    #: Whether it has stood on the screen while it was not over.
    seen: bool = False

    @property
    def over(self) -> bool:
        """Whether all of it has ended."""
        return self.done >= self.total

    @property
    def elapsed(self) -> float:
        """Seconds since it was submitted."""
        return (self.ended or time.time()) - self.since

    def catch_up(self) -> None:
        """Take in what the jobs themselves know: events may still be on their way."""
        if not self.over and all(job.settled for job in self.jobs):
            packed = self.jobs[0].packed
            good = packed.good if packed else sum(job.succeeded for job in self.jobs)
            self.done, self.failed, self.running = self.total, self.total - good, 0
            self.state = self.jobs[-1].known_state
            self.ended = time.time()

    def words(self) -> str:
        """What is said of it beside its name, its id and its bar."""
        if self.is_array:
            parts = [f"{self.failed} failed"] if self.failed else []
            parts += [f"{self.running} running"] if self.running else []
            return ", ".join(parts) or ("" if self.over or self.done else _why(self.jobs[0]))
        job = self.jobs[0]
        if self.over:
            return "" if job.succeeded else self.state.value
        if self.state.phase != "pending":
            return f"{self.state.value} on {job.node}" if job.node else self.state.value
        return _why(job)


#: The rows of runs that are over, each given once, and those of the others.
Snapshot: TypeAlias = "tuple[list[Row], list[Row]]"


def _why(job: Job[Any]) -> str:
    if job.evidence.status is None:
        return "submitted"  # the scheduler has not been asked yet
    reason = job.reason
    return f"PENDING ({reason})" if reason not in ("", "None") else "PENDING"


def together(rows: list[Row]) -> list[Row]:
    """The rows as they are shown: where there are many, single calls of one task share a row."""
    if len(rows) <= MOST:
        return rows
    shown: dict[str, Row] = {}
    for number, row in enumerate(rows):
        key = f"#{number}" if row.is_array else row.name
        if key not in shown:
            shown[key] = Row(row.name, "", 0, True, row.since, [])
            if row.is_array:
                shown[key] = row
                continue
        one = shown[key]
        one.total += 1
        one.done += row.over
        one.failed += row.failed
        one.running += row.state.phase == "active" and not row.over
        one.jobs += row.jobs
        one.ended = max(one.ended or 0.0, row.ended or 0.0) if one.over else None
    return list(shown.values())


class ProgressCallback(BaseCallback):
    """Shows each run as one line while `result()` or the like waits: a spinner, or a bar.

    Added to every cluster of a program on a terminal or in a notebook, unless it is made with
    `progress=False` or the variable `SLURM_SDK_PROGRESS` is 0.
    """

    travels = False

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._lock = locks.rlock("progress")
        self._rows: dict[str, Row] = {}
        self._waiting = 0
        self._since = self._left = 0.0
        self._timer: threading.Timer | None = None
        self._display: Any = None

    # ---- what it hears --------------------------------------------------------------------------

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """A new line."""
        if ctx.jobs:
            begun = ctx.time - ctx.duration
            row = Row(ctx.name, ctx.job_id, ctx.count, ctx.is_array, begun, list(ctx.jobs))
            with self._lock:
                self._rows[ctx.run] = row

    def on_status_change(self, ctx: contexts.StatusChangeContext) -> None:
        """The state of a single job."""
        with self._lock:
            row = self._rows.get(ctx.run)
            if row is not None and not row.is_array:
                row.state = ctx.state

    def on_array_progress(self, ctx: contexts.ArrayProgressContext) -> None:
        """The counts of a map."""
        with self._lock:
            row = self._rows.get(ctx.run)
            if row is not None and not row.over:
                row.done, row.failed, row.running = ctx.done, ctx.failed, ctx.running
                row.ended = ctx.time if ctx.done >= ctx.total else None
                self._drop_unseen()

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """The end of a single job."""
        with self._lock:
            row = self._rows.get(ctx.run)
            if row is not None and not row.is_array and not row.over:
                row.state, row.done, row.ended = ctx.state, 1, ctx.time
                row.failed = not ctx.succeeded
                self._drop_unseen()

    def _drop_unseen(self) -> None:
        """What ended while nobody looked is never shown."""
        if self._display is None and not self._waiting:
            kept = {run: row for run, row in self._rows.items() if row.seen or not row.over}
            self._rows = kept

    # ---- what it shows --------------------------------------------------------------------------

    def on_wait_begin(self) -> None:
        """Show the lines, if the wait takes long enough."""
        with self._lock:
            self._waiting += 1
            if self._waiting > 1:
                return
            now = time.monotonic()
            # Short waits one after the other are one long wait.
            self._since = now if now - self._left > DELAY else self._since
            self._timer = threading.Timer(max(0.0, self._since + DELAY - now), self._show)
            self._timer.daemon = True
            self._timer.start()

    def on_wait_end(self) -> None:
        """Take the live lines away; those of runs that are over stay."""
        with self._lock:
            self._waiting -= 1
            if self._waiting:
                return
            self._left = time.monotonic()
            if self._timer is not None:
                self._timer.cancel()
            display, self._display = self._display, None
            if display is None:
                for row in self._rows.values():
                    row.catch_up()
                self._drop_unseen()
                # A line that stood there in an earlier wait still has to say how it ended.
                if any(row.seen and row.over for row in self._rows.values()):
                    display = self._start()
        if display is not None:
            display.stop()  # not under the lock: its thread may want to look once more

    def _show(self) -> None:
        with self._lock:
            if self._waiting and self._display is None:
                self._display = self._start()

    def _start(self) -> Display | None:
        kind = _kind_of_display(self._console)
        if kind is None:
            return None
        display = kind(self._snapshot, self._console)
        display.start()
        return display

    def _snapshot(self) -> Snapshot:
        """The rows of runs that are over, each given once, and those that are not."""
        with self._lock:
            for row in self._rows.values():
                row.catch_up()
            rows = together(list(self._rows.values()))
            over, live = [r for r in rows if r.over], [r for r in rows if not r.over]
            for row in self._rows.values():
                row.seen = True
            gone = {id(job) for row in over for job in row.jobs}
            self._rows = {
                run: row for run, row in self._rows.items() if id(row.jobs[0]) not in gone
            }
            return over, live


class Display:
    """Draws the rows again and again, on a thread of its own, until it is stopped."""

    period = 0.125

    def __init__(self, snapshot: Callable[[], Snapshot], console: Any = None) -> None:
        self._snapshot = snapshot
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to draw."""
        self._thread = begin(self._run, "slurm-progress")

    def stop(self) -> None:
        """Draw a last time, and leave only what is over."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2)

    def _run(self) -> None:
        self.draw(*self._snapshot())
        while not self._over.wait(self.period):
            self.draw(*self._snapshot())
        self.close(*self._snapshot())

    def draw(self, over: list[Row], live: list[Row]) -> None:
        """Show rows; those that are over are given once."""
        raise NotImplementedError

    def close(self, over: list[Row], live: list[Row]) -> None:
        """Show the last ones, and take away what is not over."""
        raise NotImplementedError


def _kind_of_display(console: Any) -> type[Display] | None:
    """What shows the rows here: a notebook's cell, or the terminal; None where neither works."""
    from slurm.callbacks.gathering import in_notebook

    if console is None and in_notebook():
        from slurm.callbacks.notebook import CellDisplay

        return CellDisplay
    try:
        from slurm.callbacks.terminal import TerminalDisplay
    except ImportError:  # rich is not installed where only the job's part of the SDK is
        return None
    return TerminalDisplay


def clock(seconds: float) -> str:
    """A time for people: `0:07`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class RichLoggerCallback(ProgressCallback):
    """The same under the name that users of slurm-sdk know."""


_shared: ProgressCallback | None = None


def shared() -> ProgressCallback:
    """The one display of this process."""
    global _shared
    if _shared is None:
        _shared = ProgressCallback()
    return _shared
