"""The journal of a workflow: what it submitted, so that its next attempt finds it again.

Each submission is noted before it is made, under a name that the next attempt computes anew: the
task and the content of the arguments. So a workflow that was killed and starts again from its
first line meets its own children instead of submitting them twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.dependencies import Dependency
    from slurm.job import Job
    from slurm.packaging.arguments import ShippedArguments
    from slurm.submission import Plan


@dataclass(frozen=True)
class Entry:
    """One submission: the key of the call, the task's name, and the run that was chosen for it."""

    key: str
    task: str
    run: str


def call_key(target: str, arguments: ShippedArguments, array: bool) -> str:
    """What identifies a call from one attempt to the next: the function and its arguments."""
    digest = hashlib.blake2b(f"{target}\0{array}\0".encode(), digest_size=16)
    for blob in (*arguments.blobs, *arguments.shared):
        digest.update(len(blob).to_bytes(8, "big"))
        digest.update(blob)
    return digest.hexdigest()


class Journal:
    """What one workflow has submitted; `run` is the workflow's own run, relative to the base."""

    def __init__(self, base: str, run: str, index: int = 0, *, on_disk: bool = True) -> None:
        self.base = base
        self.run = run
        self.index = index
        self._path = os.path.join(base, run, rundir.journal_name(index)) if on_disk else None
        self._lock = threading.RLock()
        self._used: Counter[str] = Counter()
        self._entries: list[Entry] = list(_read(self._path)) if self._path else []
        self._made: dict[str, list[Job[Any]]] = {}

    def entries(self, task: str | None = None) -> list[Entry]:
        """All submissions in order, or those of the tasks with this name."""
        with self._lock:
            return [entry for entry in self._entries if task in (None, entry.task)]

    def keep(self, run: str, jobs: list[Job[Any]], task: str | None = None) -> None:
        """Keep the jobs of a run; `task` is given where none is noted (under the debugger)."""
        with self._lock:
            self._made[run] = jobs
            if task is not None:
                self._entries.append(Entry("", task, run))

    def jobs(self, run: str) -> list[Job[Any]] | None:
        """The jobs of a run that were made in this process, None for an earlier attempt's."""
        return self._made.get(run)

    def waits(self) -> bool:
        """Whether a child of this attempt is not over yet."""
        with self._lock:
            return any(not job.settled for jobs in self._made.values() for job in jobs)

    def place(self, run: str) -> str:
        """Where a child's run lies, relative to the base: `<workflow>/tasks/<task>/<run>`."""
        return f"{self.run}/{rundir.TASKS}/{run.rsplit('-', 3)[0]}/{run}"

    def has_sent(self, target: str, arguments: ShippedArguments, array: bool) -> bool:
        """Whether an earlier attempt has surely submitted the call that comes next."""
        with self._lock:
            entry = self._earlier(call_key(target, arguments, array))
        if entry is None:
            return False
        names = (rundir.id_name(0), rundir.claim_name(0), rundir.pump_name(0))
        return any(os.path.lexists(os.path.join(self.base, entry.run, name)) for name in names)

    def enter(self, plan: Plan) -> tuple[Plan, bool]:
        """Note a submission before it is made; True: an earlier attempt had come as far as this.

        The plan that comes back is placed at the run which that attempt chose.
        """
        self._refuse_if_stopped(plan.name)
        key = call_key(plan.function.target, plan.arguments, plan.cut is not None)
        with self._lock:
            entry = self._earlier(key)
            self._used[key] += 1
            if entry is not None:
                run = f"{self.base}/{entry.run}"
                return replace(plan, submission=replace(plan.submission, run=run)), True
            entry = Entry(key, plan.name, plan.submission.relative)
            self._entries.append(entry)
            if self._path is not None:
                rundir.make_private_folder(os.path.dirname(self._path))
                line = json.dumps([entry.key, entry.task, entry.run]).encode()
                # A line of a killed attempt may be cut off: ours begins on a line of its own.
                rundir.append(self._path, b"\n" + line + b"\n", sync=True)
        return plan, False

    def _earlier(self, key: str) -> Entry | None:
        same = [entry for entry in self._entries if entry.key == key]
        number = self._used[key]
        return same[number] if number < len(same) else None

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
            key, task, run = json.loads(line)
        except ValueError:
            continue  # empty, or cut off by a death: nothing was submitted under it
        yield Entry(str(key), str(task), str(run))


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


def journal_for(cluster: Cluster) -> Journal | None:
    """The journal that submissions to this cluster go through; None outside of workflows."""
    found = _current
    if found is None or cluster.backend_type == "debug":
        return None
    return found if found.base == cluster.base else None


def metadata_of(journal: Journal | None) -> dict[str, Any]:
    """What a child's metadata says of the workflow around it."""
    return {"parent": None if journal is None else [journal.run, journal.index]}
