"""What the scheduler keeps in memory: batches with unfinished jobs, and its timers."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm.api.embedded.engine import Facts
from slurm.api.embedded.queue import Batch, Job
from slurm.api.embedded.request import Need, Request
from slurm.api.sbatch_lines import BadRequest


@dataclass
class LiveBatch:
    """A submission of which not all jobs have ended."""

    batch: Batch
    request: Request
    need: Need
    directory: str
    jobs: dict[int | None, Job]
    satisfied: bool = False  # its dependency, once and for all
    alarms: set[int] = field(default_factory=set)  # when to decide anew about it
    waits_for: str = ""  # the reason that its waiting jobs were last told
    running: int = 0
    begun: set[int | None] = field(default_factory=set)
    ended: int = 0
    failed: int = 0
    last_start: int = 0
    _environ: dict[str, str] | None = field(default=None, repr=False)
    _argv: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for job in self.jobs.values():
            if job.start is not None or job.end is not None:
                self.begun.add(job.index)
            self.ended += job.end is not None
            self.failed += job.end is not None and job.state != "COMPLETED"
            self.last_start = max(self.last_start, job.start or 0)

    @property
    def full(self) -> bool:
        """Whether the array's own throttle lets no more start."""
        return self.request.throttle is not None and self.running >= self.request.throttle

    @property
    def over(self) -> bool:
        """Whether all of its jobs have ended."""
        return self.ended == len(self.jobs)

    @property
    def per_element(self) -> bool:
        """Whether elements wait for single elements of another array."""
        dependency = self.request.dependency
        return dependency is not None and any(e.kind == "aftercorr" for e in dependency.edges)

    @property
    def singleton(self) -> bool:
        """Whether it waits for earlier jobs of its name."""
        dependency = self.request.dependency
        return dependency is not None and any(e.kind == "singleton" for e in dependency.edges)

    def facts(self) -> Facts:
        """What a job that waits for this batch must know."""
        return Facts(len(self.jobs), len(self.begun), self.ended, self.failed, self.last_start)

    def environ(self) -> dict[str, str]:
        """The submitter's environment."""
        if self._environ is None:
            with open(os.path.join(self.directory, "environ"), encoding="ascii") as file:
                self._environ = json.load(file)
        return self._environ

    def argv(self) -> tuple[str, ...]:
        """The command that runs the script: its own first line names the interpreter."""
        if self._argv is None:
            script = os.path.join(self.directory, "slurm_script")
            with open(script, encoding="utf-8", errors="surrogateescape") as file:
                self._argv = (*interpreter(file.readline()), script)
        return self._argv


def interpreter(first_line: str) -> tuple[str, ...]:
    """The program that a script's first line asks for, as the kernel reads it."""
    words = first_line[2:].strip().split(None, 1)
    if not first_line.startswith("#!") or not words:
        raise BadRequest(
            "This does not look like a batch script.  The first line must start with #! "
            "followed by the path to an interpreter."
        )
    return tuple(words)


def facts_of(jobs: list[Job]) -> Facts | None:
    """What a job must know that waits for these, which have all ended or are one element."""
    if not jobs:
        return None
    return Facts(
        total=len(jobs),
        started=sum(job.start is not None or job.end is not None for job in jobs),
        ended=sum(job.end is not None for job in jobs),
        failed=sum(job.end is not None and job.state != "COMPLETED" for job in jobs),
        last_start=max(job.start or 0 for job in jobs),
    )


def write_batch(directory: str, script: str, environ: dict[str, str]) -> None:
    """Keep a copy of the script and of the environment, readable for this user only."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:  # of an earlier queue that was put aside
        shutil.rmtree(directory)
        os.mkdir(directory, 0o700)
    texts = {"slurm_script": script, "environ": json.dumps(environ)}
    for name, text in texts.items():
        path = os.path.join(directory, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)


@dataclass(frozen=True, order=True)
class Timer:
    """Something to do at a time, for one attempt of a job."""

    at: float
    number: int
    kind: str
    job_id: int
    restarts: int


class Timers:
    """All that is due some time."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[Timer]:
        return iter(self._heap)

    def add(self, at: float, kind: str, job: Job) -> None:
        """Remember to do `kind` for this attempt of the job."""
        heapq.heappush(self._heap, Timer(at, next(self._numbers), kind, job.id, job.restarts))

    def due(self, now: float) -> Iterator[Timer]:
        """Take out what is due."""
        while self._heap and self._heap[0].at <= now:
            yield heapq.heappop(self._heap)

    def first(self) -> Timer | None:
        """The next one, which stays."""
        return self._heap[0] if self._heap else None

    def drop_first(self) -> None:
        """Forget the next one."""
        heapq.heappop(self._heap)
