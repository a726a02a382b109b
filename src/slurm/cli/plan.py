"""`slurm plan script.py`: what a script would submit, and why, before anything is submitted."""

from __future__ import annotations

import contextlib
import functools
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import slurm.cluster
import slurm.debug
import slurm.submission
from slurm import rundir
from slurm.api.backend import Backend, connect
from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import FORM, Answer, Form
from slurm.cli.screen import Screen
from slurm.errors import OptionError, RunNotFound
from slurm.job import Job
from slurm.submission import Plan
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
        lines.append(f"function by {plan.by}: {plan.function.why}")
        return "\n     ".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        plan, cut = self.plan, self.plan.cut
        pack = plan.submission.pack
        return {
            "number": self.number,
            "task": plan.name,
            "kind": self.kind,
            "items": len(plan.arguments.blobs),
            "arrays": [part.size for part in cut.parts] if cut else [],
            "at_once": min(cut.at_once, len(cut.parts)) if cut else 1,
            "why": cut.why if cut else "one call",
            "pack": None if pack is None else dict(pack._asdict(), jobs=pack.jobs),
            "max_concurrent": plan.submission.throttle,
            "dependency": plan.submission.dependency,
            "options": plan.options,
            "function": {"by": plan.by, "why": plan.function.why},
            "sbatch_calls": {"now": self.now, "later": self.later},
        }


@dataclass
class Recorder:
    """What a script would have submitted so far."""

    planned: list[Planned] = field(default_factory=list)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    coming: Plan | None = None

    def submit(self, run: str, files: dict[str, bytes], parts: int, at_once: int) -> list[str]:
        """Take a submission for made; the ids are its number in the plan."""
        assert self.coming is not None
        number = len(self.planned) + 1
        waits = rundir.has_token(self.coming.script)
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

    def call(self, verb: str, *args: Any) -> Any:
        """Carry a verb out, or take it for done."""
        recorder = self.recorder
        if verb == "submit":
            return recorder.submit(*args[:4])
        if verb == "order_step":
            return recorder.order_step(args[1], args[2], args[3])
        if verb == "read" and args[0] in recorder.files:
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
    "stop_parts": None,
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

    def refresh_run(self, run: str) -> None:
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
    send = slurm.submission.send

    def record(cluster: Any, plan: Plan, arguments: bytes, watch: bool = True) -> Any:
        recorder.coming = plan
        return send(cluster, plan, arguments, watch)

    @functools.cache
    def watcher_for(backend: Backend) -> PlanningWatcher:
        return PlanningWatcher(backend, recorder)

    def stop(*_: object) -> None:
        raise PlanEnds("the debug backend would run the function in this process")

    changes: tuple[tuple[Any, str, Any], ...] = (
        (slurm.cluster, "connect", lambda *a: PlanningBackend(connect(*a), recorder)),
        (slurm.cluster, "watcher_for", watcher_for),
        (slurm.submission, "send", record),
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


@dataclass(frozen=True)
class ScriptPlan(Answer):
    """What became of planning a script."""

    script: str
    planned: tuple[Planned, ...]
    #: Why it ends before the script does, and in which line; None: all of the script was planned.
    ended: str | None = None
    line: int | None = None
    #: The script's own exception.
    error: str | None = None

    @property
    def exit_code(self) -> int:
        """1 where the script itself failed."""
        return TASK_FAILED if self.error else DONE

    def lines(self, screen: Screen) -> list[str]:
        """Each submission, their sum, and where the plan ends."""
        lines = [one.text for one in self.planned]
        now, later = sum(p.now for p in self.planned), sum(p.later for p in self.planned)
        total = f"{_count(len(self.planned), 'submission')}, {_count(now, 'call')} of sbatch"
        lines.append(total + (f" now and {later} later" if later else ""))
        if self.ended:
            place = f" ({Path(self.script).name}, line {self.line})" if self.line else ""
            lines.append(f"planned up to here: {self.ended}{place}")
        if self.error:
            lines.append(f"the script failed: {self.error}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "script": self.script,
            "complete": self.ended is None and self.error is None,
            "ended": self.ended,
            "line": self.line,
            "error": self.error,
            "submissions": [one.as_dict() for one in self.planned],
            "sbatch_calls": {
                "now": sum(one.now for one in self.planned),
                "later": sum(one.later for one in self.planned),
            },
        }


def plan_script(script: str, arguments: Sequence[str] = (), timeout: float = 60) -> ScriptPlan:
    """Run a script until it needs a result, and say what it would have submitted."""
    recorder = Recorder()
    ended = error = None
    line: int | None = None
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        with planning(recorder), _limited(timeout), contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(script, run_name="__main__")
    except PlanEnds as end:
        ended, line = str(end), _line_of(end, script)
    except SystemExit as end:
        error = None if end.code in (None, 0) else f"it called sys.exit({end.code!r})"
    except Exception as raised:  # noqa: BLE001 - a script may raise anything; it is reported
        error, line = f"{type(raised).__name__}: {raised}", _line_of(raised, script)
    finally:
        sys.argv, sys.path[:] = argv, path
    return ScriptPlan(script, tuple(recorder.planned), ended, line, error)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End the plan of a script that waits for something which planned jobs never do."""

    def late(*_: object) -> None:
        raise PlanEnds(f"the script did not go on within {seconds:g} s (--timeout)")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _line_of(error: BaseException, script: str) -> int | None:
    """The line of the script itself that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == script), None)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def plan(
    script: Annotated[Path, Parameter(help="A Python script that uses the SDK.")],
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, help="Its own arguments.")],
    timeout: Annotated[float, Parameter(help="Seconds after which the plan ends.")] = 60,
    form: Form = FORM,
) -> ScriptPlan:
    """Run the script without submitting anything, until it needs a result.

    What the script prints goes to standard error. Exit code 1: the script itself failed.
    """
    if not script.is_file():
        raise OptionError(f"script={str(script)!r} is no file", hint="slurm plan path/of/script.py")
    return plan_script(str(script), arguments, timeout)
