"""Runs a script whose clusters plan instead of submitting, and records what would go out."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import slurm.debug
import slurm.sending
import slurm.target
from slurm import rundir
from slurm.api.backend import Backend
from slurm.api.connect import connect
from slurm.cost import Cost, cost_of
from slurm.errors import RunNotFound
from slurm.job import Job
from slurm.plan import Plan
from slurm.watcher import Watcher


class PlanEnds(BaseException):
    """The script has come to a point that only results can get it past.

    No `Exception`: a script that catches those must not go on with results that do not exist.
    """


@dataclass(frozen=True)
class Planned:
    """One submission that the script would make; `number` stands for its job's id in the plan."""

    number: int
    plan: Plan
    #: Calls of sbatch by this client, and later by the small jobs that go on with a long map.
    now: int
    later: int
    step: bool

    @property
    def kind(self) -> str:
        """A job, an array, a packed array, a workflow, or a step of an allocation."""
        if self.step:
            return "step"
        if self.plan.function.workflow:
            return "workflow"
        if self.plan.submission.pack is not None:
            return "packed array"
        return "job" if self.plan.cut is None else "array"

    @property
    def cost(self) -> Cost:
        """What it costs at most; steps use what their allocation has."""
        cut = self.plan.cut
        jobs = 0 if self.step else sum(part.size for part in cut.parts) if cut else 1
        return cost_of(self.plan.options, jobs)

    @property
    def text(self) -> str:
        """What it is, for people."""
        plan = self.plan
        shape = str(plan).splitlines()[0].partition(": ")[2]
        if self.step:
            count = sum(part.size for part in plan.cut.parts) if plan.cut else 1
            shape = "one step" if count == 1 else f"{count} steps"
            shape += " of the allocation, no call of sbatch"
        lines = [f"{self.number:>3}. {plan.name}: {shape}"]
        if plan.function.workflow:
            lines.append("a workflow: what it submits from its job is not known before it runs")
        if self.later:
            lines.append(f"then {self.later} more calls of sbatch by small jobs, without a client")
        if plan.submission.throttle:
            lines.append(f"at most {plan.submission.throttle} run at the same time")
        if plan.submission.dependency:
            waits = plan.submission.dependency.replace(rundir.PREVIOUS, "the part before")
            lines.append(f"waits for {waits}")
        options = {k: v for k, v in plan.options.items() if v is not None}
        if options:
            lines.append("with " + ", ".join(f"{k}={v!r}" for k, v in sorted(options.items())))
        if self.cost.core_hours:
            gpu = f" and {self.cost.gpu_hours:.2f} GPU-hours" if self.cost.gpu_hours else ""
            lines.append(f"at most {self.cost.core_hours:.2f} core-hours{gpu}")
        lines.append(f"function by {plan.by}: {plan.function.why}")
        return "\n     ".join(lines)


@dataclass
class Recorder:
    """What a script would have submitted so far."""

    planned: list[Planned] = field(default_factory=list)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    #: The clusters that were connected to, by their targets.
    backends: dict[str, Backend] = field(default_factory=dict)
    coming: Plan | None = None

    def submit(self, run: str, files: dict[str, bytes], parts: int, at_once: int) -> list[str]:
        """Take a submission for made; the ids are its number in the plan."""
        assert self.coming is not None
        number = len(self.planned) + 1
        waits = bool(rundir.awaited(self.coming.script))
        now = 0 if waits else min(parts, at_once)
        left = parts - now
        # Each part that is left is submitted by a small job, the first of which goes out now.
        planned = Planned(number, self.coming, now + bool(left), max(0, 2 * left - 1), False)
        self._keep(planned, run, files)
        if parts == 1:
            return [] if waits else [str(number)]
        return [f"{number}.{part}" for part in range(now)]

    def order_step(self, allocation: str, run: str, files: dict[str, bytes]) -> str:
        """Take a step of an allocation for ordered."""
        assert self.coming is not None
        number = len(self.planned) + 1
        self._keep(Planned(number, self.coming, 0, 0, True), run, files)
        return f"{allocation}.{number}"

    def _keep(self, planned: Planned, run: str, files: dict[str, bytes]) -> None:
        self.planned.append(planned)
        self.files[run] = files
        self.looks.clear()

    def read(self, run: str, name: str, offset: int, limit: int) -> bytes:
        """A file of a planned run, if it is one that the client would have written."""
        if name not in self.files[run]:
            raise PlanEnds(f"it reads {name}, which the job would write")
        data = self.files[run][name]
        return data[offset:][:limit] if offset < 0 else data[offset : offset + limit]

    def look(self, run: str) -> None:
        """The script looks at a job's state; who looks again and again waits for a change."""
        self.looks[run] = self.looks.get(run, 0) + 1
        if self.looks[run] > 2:
            raise PlanEnds("it waits for a job's state to change")


class PlanningBackend(Backend):
    """A backend that asks the real one, changes nothing there, and records what would go out."""

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        self.inner, self.recorder = inner, recorder
        self.kind, self.target = inner.kind, inner.target
        recorder.backends[inner.target] = inner

    def call(self, verb: str, *args: Any) -> Any:
        """Carry a verb out, or take it for done."""
        recorder = self.recorder
        if verb == "submit":
            return recorder.submit(*args[:4])
        if verb == "order_step":
            return recorder.order_step(args[1], args[2], args[3])
        if verb in ("read", "read_own") and args[0] in recorder.files:
            return recorder.read(*args)
        if verb in _READING and args[0] in recorder.files:
            raise PlanEnds("it reads what a job would write")
        if verb == "find_run":
            return self._find(args[0])
        if verb == "request":
            return [job for job, _ in args[1]]
        return _ANSWERS[verb] if verb in _ANSWERS else self.inner.call(verb, *args)

    def _find(self, text: str) -> str:
        known = {str(one.number) for one in self.recorder.planned}
        if text.partition("_")[0].partition(".")[0] in known or text in self.recorder.files:
            raise PlanEnds("it attaches to a job that is only planned")
        try:
            found: str = self.inner.find_run(text)
        except RunNotFound as error:
            raise PlanEnds(f"it attaches to a job: {error.message}") from error
        return found


#: Verbs about one run; of a planned run there is nothing yet.
_READING = ("read_run", "read_value", "find_job")
#: Verbs that would change something, and what they answer.
_ANSWERS: dict[str, Any] = {
    "prepare_base": None,
    "has_sdk": True,
    "put_sdk": None,
    "stop_parts": (),
    "stop_workflow": None,
    "cancel_below": 0,
    "tell_pilot": None,
    "append_calls": None,
    "advance": None,
    "cache_clear": 0,
}


class PlanningWatcher(Watcher):
    """Stands in the watcher's place: no planned job ever ends, and who waits for one is told."""

    def __init__(self, backend: Backend, recorder: Recorder) -> None:
        super().__init__(backend)
        self._recorder = recorder

    def start(self) -> None:
        """There will be no events."""

    def add(self, job: Job[Any]) -> None:
        """Let the standard library's `wait` and `as_completed` end the plan, too."""
        job._waiters = _NobodyWaits()

    def ask(self, job: Job[Any]) -> None:
        """The scheduler does not know the job."""

    def attention(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Somebody waits for a result."""
        raise PlanEnds("the rest depends on results")

    def refresh_run(self, run: str, age: float = 0.0) -> None:
        """A look at a job: harmless once, or where the SDK itself looks before it submits."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals["__name__"] in _LOOKERS:
            frame = frame.f_back
        if not str(frame.f_globals["__name__"]).startswith("slurm."):
            self._recorder.look(run)


_LOOKERS = ("slurm.job", "slurm.array", "slurm.packed", "slurm.packed_run", "slurm.returned")


class _NobodyWaits(list[Any]):
    def append(self, _: object) -> None:
        raise PlanEnds("the rest depends on results")


@contextlib.contextmanager
def planning(recorder: Recorder) -> Iterator[None]:
    """While this is open, every cluster of this process plans instead of submitting.

    The script makes its clusters itself, in any way it likes, so what all of them are built on is
    exchanged: the connection, the watcher, and what is done with a plan.
    """
    send = slurm.sending.send

    def record(cluster: Any, plan: Plan, *how: Any, **more: Any) -> Any:
        recorder.coming = plan
        return send(cluster, plan, *how, **more)

    @functools.cache
    def watcher_for(backend: Backend) -> PlanningWatcher:
        return PlanningWatcher(backend, recorder)

    def stop(*_: object) -> None:
        raise PlanEnds("the debug backend would run the function in this process")

    changes: tuple[tuple[Any, str, Any], ...] = (
        (slurm.target, "connect", lambda *a: PlanningBackend(connect(*a), recorder)),
        (slurm.target, "watcher_for", watcher_for),
        (slurm.sending, "send", record),
        (slurm.debug.DebugJob, "_execute", stop),
    )
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for place, name, value in changes:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
