"""The journal of a workflow: what it submitted, so that its next attempt finds it again.

Each submission is noted before it is made, with the names of its calls: `slurm.recall` says what a
name is and how a killed workflow that starts again from its first line meets its own children.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm import errors, locks, rundir
from slurm.batch import Batch

if TYPE_CHECKING:
    from slurm.dependencies import Dependency
    from slurm.job import Job
    from slurm.target import Target


@dataclass(frozen=True)
class Entry:
    """One submission: the names of its calls by index, the task's name, and the run.

    A map has one name for all of it, and what begins anew in each attempt has none.
    """

    calls: tuple[str, ...]
    task: str
    run: str


class Journal:
    """What one workflow has submitted; `run` is the workflow's own run, relative to the base."""

    def __init__(self, base: str, run: str, index: int = 0, *, on_disk: bool = True) -> None:
        self.base = base
        self.run = run
        self.index = index
        #: What the workflow has called and not submitted yet.
        self.batch = Batch(patient=False)
        self._path = os.path.join(base, run, rundir.journal_name(index)) if on_disk else None
        self._lock = locks.rlock("journal")
        self._used: Counter[str] = Counter()
        self._order: dict[str, int] = {}
        self._entries: dict[str, Entry] = {}
        self._places: dict[str, tuple[Entry, int]] = {}
        self._made: dict[str, list[Job[Any]]] = {}
        for entry in _read(self._path) if self._path else ():
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        for name in entry.calls:
            before = self._places.get(name)
            if before is not None and before[0].run != entry.run:
                self._entries.pop(before[0].run, None)  # it was noted, and never submitted
        self._entries[entry.run] = entry
        self._places.update({name: (entry, at) for at, name in enumerate(entry.calls)})

    # ---- names ----------------------------------------------------------------------------------

    def name(self, target: str, content: Iterable[rundir.Content]) -> str:
        """The name of a call that is made now; equal ones are told apart by their order."""
        digest = hashlib.blake2b(f"{target}\0".encode(), digest_size=12)
        for part in content:
            digest.update(rundir.size_of(part).to_bytes(8, "big"))
            for piece in rundir.pieces_of(part):
                digest.update(piece)
        key = digest.hexdigest()
        with self._lock:
            name = f"{key}.{self._used[key]}"
            self._used[key] += 1
            self._order[name] = len(self._order)
        return name

    def find(self, name: str) -> tuple[Entry, int] | None:
        """The submission in which the call of this name went out, and its index there."""
        with self._lock:
            return self._places.get(name)

    def name_at(self, run: str, index: int) -> str | None:
        """The name of a call by its place."""
        with self._lock:
            entry = self._entries.get(run)
        return None if entry is None or index >= len(entry.calls) else entry.calls[index]

    # ---- submissions ----------------------------------------------------------------------------

    def entries(self, task: str | None = None) -> list[Entry]:
        """All submissions, or those of the tasks with this name, in the order of their calls."""
        with self._lock:
            found = [entry for entry in self._entries.values() if task in (None, entry.task)]
            return sorted(found, key=lambda entry: self.number(entry, 0))

    def number(self, entry: Entry, index: int) -> int:
        """Where a call stands among all of this attempt; -1: it was not made yet."""
        name = entry.calls[min(index, len(entry.calls) - 1)] if entry.calls else ""
        return self._order.get(name, -1)

    def holds(self, run: str) -> bool:
        """Whether a run of this name is noted already."""
        with self._lock:
            return run in self._entries

    def note(self, calls: Sequence[str], task: str, run: str) -> None:
        """Note a submission before it is made."""
        self._refuse_if_stopped(task)
        entry = Entry(tuple(calls), task, run)
        with self._lock:
            self._add(entry)
            if self._path is not None:
                rundir.make_run_folder(os.path.dirname(self._path))
                line = json.dumps([entry.calls, entry.task, entry.run]).encode()
                # A line of a killed attempt may be cut off: ours begins on a line of its own.
                rundir.append(self._path, b"\n" + line + b"\n", sync=True)

    def strike(self, entry: Entry) -> None:
        """Forget a submission that was never made."""
        with self._lock:
            self._entries.pop(entry.run, None)
            for name in entry.calls:
                self._places.pop(name, None)

    def keep(self, run: str, jobs: list[Job[Any]], task: str | None = None) -> None:
        """Keep the jobs of a run; `task` is given where none is noted (under the debugger)."""
        with self._lock:
            self._made[run] = jobs
            if task is not None:
                self._add(Entry((), task, run))

    def keep_one(self, job: Job[Any]) -> None:
        """Keep the job that the workflow itself has for a call, in the place of our own."""
        with self._lock:
            jobs = self._made.get(job.run)
            if jobs is not None and job.index < len(jobs):
                jobs[job.index] = job

    def jobs(self, run: str) -> list[Job[Any]] | None:
        """The jobs of a run that were made in this process, None for an earlier attempt's."""
        return self._made.get(run)

    def waits(self) -> bool:
        """Whether a child of this attempt is not over yet."""
        with self._lock:
            made = [job for jobs in self._made.values() for job in jobs]
        return any(job.watched and not job.settled for job in made)

    def place(self, run: str) -> str:
        """Where a child's run lies, relative to the base: `<workflow>/tasks/<task>/<run>`."""
        return f"{self.run}/{rundir.TASKS}/{run.rsplit('-', 3)[0]}/{run}"

    def _refuse_if_stopped(self, name: str) -> None:
        mark = os.path.join(self.base, self.run, rundir.stop_name(self.index))
        if os.path.exists(mark):
            raise errors.JobCancelled(
                f"{name} is not submitted: the workflow {self.run} was cancelled"
            )

    def refuse_circle(self, condition: Dependency) -> None:
        """Refuse a child that would wait for the workflow which it is part of."""
        for job in condition.jobs:
            above = self.run == job.run or self.run.startswith(f"{job.run}/{rundir.TASKS}/")
            if above and condition.kind != "after":
                raise errors.UsageError(
                    f"circular dependency: a job that {self.run} submits cannot wait for "
                    f"{job!r}, which is that workflow itself or one around it",
                    hint="leave that job out: what a workflow submits begins when it is submitted",
                )


def _read(path: str) -> Iterator[Entry]:
    try:
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            calls, task, run = json.loads(line)
        except ValueError:
            continue  # empty, or cut off by a death: nothing was submitted under it
        yield Entry(tuple(map(str, calls)), str(task), str(run))


# ---- which workflow this process runs -----------------------------------------------------------

_current: Journal | None = None


def set_current(journal: Journal | None) -> Journal | None:
    """Make this the journal of all that this process submits; returns the one before."""
    global _current
    before, _current = _current, journal
    return before


def current_journal() -> Journal | None:
    """The journal of the workflow that runs in this process."""
    return _current


def journal_for(cluster: Target) -> Journal | None:
    """The journal that submissions to this cluster go through; None outside of workflows."""
    found = _current
    if found is None or cluster.backend_type == "debug":
        return None
    return found if found.base == cluster.base else None


def metadata_of(journal: Journal | None) -> dict[str, Any]:
    """What a child's metadata says of the workflow around it."""
    return {"parent": None if journal is None else [journal.run, journal.index]}


# ---- processes that a workflow forks ------------------------------------------------------------


def _send_before_fork() -> None:
    """What was called so far goes out once, from here: the child would have it all, too."""
    if _current is not None:
        with contextlib.suppress(errors.SlurmError):  # the jobs themselves raise it
            _current.batch.send()


def _forget_after_fork() -> None:
    """The thread that sends in time is not in the child."""
    if _current is not None:
        _current.batch = Batch(patient=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_send_before_fork, after_in_child=_forget_after_fork)
