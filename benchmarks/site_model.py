"""A large site in virtual time: our own planner, agent, watcher and records on a modelled Slurm.

Ten thousand nodes do not fit on one machine, but what they would do to our code does. Submission,
run directory, agent, watcher and the outcomes of items are the real code; only the scheduler and
the nodes are modelled, and time is a number. Of the model:

- the controller starts `launch_rate` jobs a second and lets `free` nodes work at once;
- a node fails with the rate 1 / `mtbf`; Slurm notices after `node_timeout` and queues the job anew;
- what a node writes is seen by the client up to `visibility` seconds later;
- every file that the client opens takes `file_latency`, and every call of squeue `call_latency`
  and `row_latency` for each row of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import heapq
import itertools
import os
import pickle
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.plot import log_chart
from slurm import Cluster, rundir, task, watched, watcher
from slurm.api.connect import LocalBackend
from slurm.api.slurm_commands import JobStatus
from slurm.rundir import records
from slurm.runner import batches

_VALUE = pickle.dumps(1.5)


@dataclass(frozen=True)
class Site:
    """The numbers of a site; the defaults are a large one with an ordinary shared file system."""

    nodes: int = 10_000
    launch_rate: float = 100.0
    start: float = 1.0
    mtbf: float = 3 * 86400.0
    node_timeout: float = 300.0
    visibility: float = 3.0
    file_latency: float = 0.0005
    call_latency: float = 0.05
    row_latency: float = 0.00001
    max_array_size: int = 10_000


@dataclass(frozen=True)
class Load:
    """What is run: so many items, how long one takes, how many workers a job has."""

    items: int
    seconds: float = 30.0
    workers: int = 32
    pack: Any = "auto"
    seed: int = 4711


@dataclass
class Cost:
    """What a run cost, in the site's time and in ours."""

    items: int
    jobs: int = 0
    makespan: float = 0.0
    ideal: float = 0.0
    submit_calls: int = 0
    status_calls: int = 0
    looks: int = 0
    opens: int = 0
    files: int = 0
    bytes: int = 0
    failures: int = 0
    twice: int = 0
    seen_after: list[float] = field(default_factory=list)
    client_cpu: float = 0.0
    client_memory: int = 0

    @property
    def opens_per_second(self) -> float:
        return self.opens / max(self.makespan, 1.0)


class Clock:
    """Stands in for the module `time` in the watcher."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class _Element:
    """One element of an array on the site."""

    def __init__(self, job: str, index: int, path: str, name: str) -> None:
        self.job, self.index, self.path, self.name = job, index, path, name
        self.state, self.attempt, self.node = "PENDING", 0, -1
        self.done: set[int] = set()
        self.began = self.ended = 0.0

    def row(self) -> JobStatus:
        over = self.ended or None
        end = None if over is None else int(over)
        code = 0 if self.state == "COMPLETED" else None
        node = f"n{self.node}" if self.node >= 0 else ""
        return JobStatus(
            f"{self.job}_{self.index}", self.state, "", node, code, None, 0,
            int(self.began) or None, end, self.attempt, self.path, self.name,
        )  # fmt: skip


class ModelledSlurm:
    """A scheduler as the agent knows one, and the nodes behind it."""

    kind = "slurm"

    def __init__(self, site: Site, load: Load, clock: Clock, cost: Cost, base: str) -> None:
        self.site, self.load, self.clock, self.cost = site, load, clock, cost
        self.base = base
        self.random = random.Random(load.seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.elements: list[_Element] = []
        self.free = list(range(site.nodes))
        self.next_start = 0.0
        self.waiting: list[_Element] = []
        self._order = itertools.count()
        self._ids = itertools.count(1000)
        self.runs: dict[str, int] = {}
        self.recorded: Counter[int] = Counter()
        self.at(10.0, self._beat)

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self._order), act))

    def forget(self) -> None:
        """Let go of what is the model's own, so that the client's memory can be told."""
        self.events, self.elements, self.waiting = [], [], []
        self.recorded.clear()

    # ---- what the agent calls -------------------------------------------------------------------

    def submit(self, script: str, env: dict[str, str], cwd: str) -> str:
        self.cost.submit_calls += 1
        self.clock.now += self.site.call_latency
        text = Path(script).read_text()
        found = re.search(r"#SBATCH --array=0-(\d+)", text)
        name = os.path.relpath(script, self.base).split(os.sep)[0]
        path = os.path.join(self.base, name)
        job = str(next(self._ids))
        count = int(found[1]) + 1 if found else 1
        new = [_Element(job, index, path, name) for index in range(count)]
        self.elements += new
        self.waiting += new
        self.at(self.clock.now, self._start_some)
        return job

    def status(self, job_ids: Sequence[str]) -> list[JobStatus]:
        self.cost.status_calls += 1
        rows = [one.row() for one in self.elements]
        self.clock.now += self.site.call_latency + self.site.row_latency * len(rows)
        return rows

    def limits(self) -> dict[str, Any]:
        return {"MaxArraySize": str(self.site.max_array_size + 1), "MaxJobCount": "1000000"}

    def cancel(self, job_ids: Sequence[str]) -> None:
        raise AssertionError("nothing is cancelled here")

    # ---- what the nodes do ----------------------------------------------------------------------

    def _start_some(self) -> None:
        """Start what can start, at the rate of the controller."""
        while self.waiting and self.free:
            self.next_start = max(self.next_start, self.clock.now) + 1 / self.site.launch_rate
            element = self.waiting.pop(0)
            element.node = self.free.pop()
            self.at(self.next_start, lambda one=element: self._begin(one))  # type: ignore[misc]

    def _begin(self, element: _Element) -> None:
        """A node runs an element: its workers take the items that have no outcome yet."""
        element.state, element.began = "RUNNING", self.clock.now
        self._note(element, "begin")
        size = self._size(element)
        first = element.index * size
        left = [n for n in range(first, min(self.load.items, first + size))
                if n not in element.done]  # fmt: skip
        workers = [self.clock.now + self.site.start] * min(self.load.workers, max(1, len(left)))
        heapq.heapify(workers)
        ends: list[tuple[float, int]] = []
        for item in left:
            end = heapq.heappop(workers) + self.random.expovariate(1 / self.load.seconds)
            heapq.heappush(workers, end)
            ends.append((end, item))
        over = max(workers)
        death = self.clock.now + self.random.expovariate(1 / self.site.mtbf)
        if death < over:
            self.cost.failures += 1
            ends = [one for one in ends if one[0] < death]
            self.at(death + self.site.node_timeout, lambda: self._requeue(element))
        else:
            self.at(over, lambda: self._end(element))
        # What ends within a second goes to the disk together.
        ends.sort()
        for second, group in itertools.groupby(ends, key=lambda one: int(one[0])):
            items = [item for _, item in group]
            seen = second + 1 + self.random.uniform(0, self.site.visibility)
            self.at(seen, lambda some=items: self._write(element, some))  # type: ignore[misc]

    def _beat(self) -> None:
        """Every node shows every ten seconds that it lives."""
        for element in self.elements:
            if element.state == "RUNNING" and element.node >= 0:
                path = os.path.join(element.path, rundir.BEATS, f"n{element.node}")
                rundir.write_atomically(path, f"{self.clock.now:020.6f}".encode(), sync=False)
        self.at(self.clock.now + 10, self._beat)

    def _size(self, element: _Element) -> int:
        return self.runs[os.path.basename(element.path)]

    def _write(self, element: _Element, items: list[int]) -> None:
        who = rundir.Identity(element.job, 0, 0, element.attempt)
        data = b""
        for item in items:
            element.done.add(item)
            self.recorded[item] += 1
            header = {"first": item, "count": 1, "python": "3"}
            payload = batches.encode_batch([len(_VALUE)], _VALUE)
            data += rundir.encode_record(who._replace(index=item), batches.BATCH, header, payload)
        self._append(element, rundir.RESULTS, f"n{element.node}.seg", data)

    def _append(self, element: _Element, folder: str, name: str, data: bytes) -> None:
        path = os.path.join(element.path, folder, name)
        if not os.path.exists(path):
            self.cost.files += 1
        self.cost.bytes += rundir.append(path, data, sync=False) and len(data)

    def _note(self, element: _Element, kind: str, **fields: Any) -> None:
        who = rundir.Identity(element.job, element.index, 0, element.attempt)
        line = rundir.format_event(kind, who, **fields)
        self._append(element, rundir.EVENTS, f"n{element.node}.txt", line.encode())

    def _end(self, element: _Element) -> None:
        element.state, element.ended = "COMPLETED", self.clock.now
        self.free.append(element.node)
        self._start_some()
        late = self.clock.now + 1 + self.site.visibility

        def tell() -> None:
            who = rundir.Identity(element.job, element.index, 0, element.attempt)
            header = {"outcome": rundir.VALUE, "items": self._size(element), "seconds": 1.0}
            record = rundir.encode_record(who, batches.PACK, header, b"")
            self._append(element, rundir.RESULTS, f"n{element.node}.seg", record)
            self._note(element, "exit", code=0, phase="run")

        self.at(late, tell)

    def _requeue(self, element: _Element) -> None:
        """The node is gone; Slurm puts its job back, and another node goes on with it."""
        element.state, element.node, element.attempt = "PENDING", -1, element.attempt + 1
        self.waiting.append(element)
        self._start_some()


class _Counting(LocalBackend):
    """The real backend; what it opens is counted and takes the site's time."""

    def __init__(self, slurm: ModelledSlurm, base: str) -> None:
        super().__init__(slurm, base)
        self.slurm = slurm

    def call(self, verb: str, *args: Any) -> Any:
        before = _opened[0]
        answer = super().call(verb, *args)
        opened = _opened[0] - before
        self.slurm.cost.opens += opened
        self.slurm.clock.now += opened * self.slurm.site.file_latency
        return answer


_opened = [0]


@contextlib.contextmanager
def _counted_files() -> Iterator[None]:
    """Count the folders that are listed and the files that are opened to be read."""
    real = records._grown

    def counting(folder: str, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(OSError):
            _opened[0] += 1 + len(os.listdir(folder))
        return real(folder, *args, **kwargs)

    records._grown = counting
    try:
        yield
    finally:
        records._grown = real


def run(site: Site, load: Load) -> Cost:
    """Run the load on the site, and say what it cost."""
    clock, cost = Clock(), Cost(load.items)
    real = watcher.time
    with tempfile.TemporaryDirectory(prefix="site-") as base, _counted_files():
        watcher.time = watched.time = clock  # type: ignore[assignment]
        try:
            slurm = ModelledSlurm(site, load, clock, cost, base)
            _drive(slurm, load, clock, cost, base)
        finally:
            watcher.time = watched.time = real
    return cost


def _drive(slurm: ModelledSlurm, load: Load, clock: Clock, cost: Cost, base: str) -> None:
    cluster = Cluster("local", job_base_dir=base, progress=False)
    cluster._backend = _Counting(slurm, base)
    watching = cluster._watcher
    setattr(watching, "_keep_running", lambda loop: None)  # noqa: B010 - this loop is both threads
    began, resident = time.process_time(), _resident()
    array = cluster.submit(task(abs), cpus_per_task=load.workers).map(
        range(load.items), pack=load.pack
    )
    packed = array._packed  # type: ignore[attr-defined]
    slurm.runs[packed.run] = packed.pack.size
    cost.jobs = packed.pack.jobs
    modelled, look_at, known = 0.0, 0.0, 0
    with watching.attention():
        while len(packed.order) < load.items or watching.open_jobs:
            poll_at = watching._pace.next
            event_at = slurm.events[0][0] if slurm.events else float("inf")
            soonest = min(look_at, poll_at, event_at)
            assert soonest < float("inf"), "the model stands still"
            clock.now = max(clock.now, soonest)
            if event_at <= soonest:
                start = time.process_time()
                heapq.heappop(slurm.events)[2]()
                modelled += time.process_time() - start
            elif look_at <= soonest:
                watching._look()
                cost.looks += 1
                look_at = clock.now + (watching._pause() or 1.0)
                if len(packed.order) > known:
                    known = len(packed.order)
                    cost.seen_after.append(clock.now)
            else:
                watching._poll()
    cost.makespan = clock.now
    at_once = min(cost.jobs, slurm.site.nodes) * load.workers
    cost.ideal = load.items * load.seconds / at_once
    cost.client_cpu = time.process_time() - began - modelled
    cost.twice = sum(1 for times in slurm.recorded.values() if times > 1)
    assert packed.good == load.items, f"{packed.good} of {load.items} have a value"
    slurm.forget()
    cost.client_memory = _resident() - resident


def _resident() -> int:
    """The bytes of this process that are in memory, without what was freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- the page -----------------------------------------------------------------------------------

SIZES = (1_000, 10_000, 100_000, 1_000_000)
HEAD = """| items | jobs | makespan / ideal | sbatch | squeue | opens a second | files | MiB \
written | nodes lost | ran twice | client CPU | client memory |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
CURVES = {
    "squeue calls": lambda cost: cost.status_calls,
    "files": lambda cost: cost.files,
    "files opened / s": lambda cost: cost.opens_per_second,
    "client CPU (ms)": lambda cost: 1000 * cost.client_cpu,
    "client memory (MiB)": lambda cost: cost.client_memory / 2**20,
    "makespan (s)": lambda cost: cost.makespan,
}  # type: dict[str, Callable[[Cost], float]]


def table_row(cost: Cost) -> str:
    """One line of the table."""
    cells = (
        f"{cost.items:,}", cost.jobs, f"{cost.makespan:,.0f} / {cost.ideal:,.0f} s",
        cost.submit_calls, cost.status_calls, f"{cost.opens_per_second:.0f}", f"{cost.files:,}",
        f"{cost.bytes / 2**20:.1f}", cost.failures, cost.twice, f"{cost.client_cpu:.1f} s",
        f"{cost.client_memory / 2**20:.0f} MiB",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |\n"


def main() -> None:
    """Run the growth curve; write its table and its picture into docs/."""
    docs = Path(__file__).resolve().parent.parent / "docs"
    costs = []
    for items in SIZES:
        costs.append(run(Site(), Load(items)))
        print(table_row(costs[-1]), end="", flush=True)
    lines = {
        name: [(cost.items, read(cost)) for cost in costs if read(cost) > 0]
        for name, read in CURVES.items()
    }
    picture = log_chart("A packed map on 10,000 nodes", "items", "", lines)
    (docs / "images").mkdir(exist_ok=True)
    (docs / "images" / "large-site.svg").write_text(picture)
    page = docs / "large-sites.md"
    text, rows = page.read_text(), HEAD + "".join(map(table_row, costs))
    marks = "<!-- model -->\n", "<!-- end of model -->"
    begin, end = text.index(marks[0]) + len(marks[0]), text.index(marks[1])
    page.write_text(text[:begin] + rows + text[end:])


if __name__ == "__main__":
    main()
