"""`slurm plan script.py`: what a script would submit, and why, before anything is submitted."""

from __future__ import annotations

import contextlib
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import FORM, Answer, Form, within
from slurm.cli.planner import PlanEnds, Planned, Recorder, planning
from slurm.cli.screen import Screen
from slurm.cost import Budget, budgets
from slurm.errors import OptionError, SlurmError


@dataclass(frozen=True)
class PlannedSubmission:
    """One submission that the script would make."""

    number: Annotated[int, "Stands for its job's id in the plan."]
    task: Annotated[str, "The task's name."]
    kind: Annotated[str, "job, array, packed array, workflow or step."]
    items: Annotated[int, "How many calls it holds."]
    arrays: Annotated[list[int], "The sizes of the arrays that it is cut into."]
    at_once: Annotated[int, "How many of these are submitted at once."]
    why: Annotated[str, "Why it is cut so."]
    pack: Annotated[dict[str, Any] | None, "How items are packed into jobs."]
    max_concurrent: Annotated[int | None, "How many run at the same time at most."]
    dependency: Annotated[str | None, "What it waits for."]
    options: Annotated[dict[str, Any], "What it asks for."]
    function: Annotated[dict[str, str], "How the function travels, and why."]
    sbatch_calls: Annotated[dict[str, int], "Calls of sbatch now, and later by small jobs."]
    core_hours: Annotated[float | None, "At most so many; null where no time is asked for."]
    gpu_hours: Annotated[float | None, "The same of GPUs."]


@dataclass(frozen=True)
class BudgetLeft:
    """What an account may use, and has used."""

    name: Annotated[str, "Whose limit it is."]
    resource: Annotated[str, "cpu, or a GPU's name in Slurm."]
    limit: Annotated[float, "Hours in all."]
    used: Annotated[float, "Hours that are used."]
    left: Annotated[float, "Hours that are left."]


@dataclass(frozen=True)
class ScriptPlan(Answer):
    """What a script would submit."""

    script: Annotated[str, "The script."]
    complete: Annotated[bool, "Whether all of the script was planned."]
    ended: Annotated[str | None, "Why the plan ends before the script does."]
    line: Annotated[int | None, "In which line of the script."]
    error: Annotated[str | None, "The script's own exception."]
    submissions: Annotated[list[PlannedSubmission], "What it would submit, in order."]
    sbatch_calls: Annotated[dict[str, int], "Calls of sbatch now and later, of all."]
    core_hours: Annotated[float, "At most so many, of all that ask for a time."]
    gpu_hours: Annotated[float, "The same of GPUs."]
    budgets: Annotated[list[BudgetLeft], "What the accounts have left, where Slurm limits it."]
    text: Annotated[str, "The submissions for a person."]

    @property
    def exit_code(self) -> int:
        """1 where the script itself failed."""
        return TASK_FAILED if self.error else DONE

    def lines(self, screen: Screen) -> Iterator[str]:
        """Each submission, their sum, and where the plan ends."""
        yield from self.text.splitlines()
        now, later = self.sbatch_calls["now"], self.sbatch_calls["later"]
        total = f"{_count(len(self.submissions), 'submission')}, {_count(now, 'call')} of sbatch"
        yield total + (f" now and {later} later" if later else "")
        if self.core_hours or self.gpu_hours:
            gpu = f" and {self.gpu_hours:.2f} GPU-hours" if self.gpu_hours else ""
            yield f"at most {self.core_hours:.2f} core-hours{gpu}"
        for one in self.budgets:
            wanted = self.core_hours if one.resource == "cpu" else self.gpu_hours
            short = "" if wanted <= one.left else f": {wanted - one.left:.2f} too few"
            left = f"{one.left:.2f} of {one.limit:.2f} {one.resource}-hours"
            yield f"{one.name} has {left} left{short}"
        if self.ended:
            place = f" ({Path(self.script).name}, line {self.line})" if self.line else ""
            yield f"planned up to here: {self.ended}{place}"
        if self.error:
            yield f"the script failed: {self.error}"


def _script_plan(
    script: str, recorder: Recorder, ended: str | None, line: int | None, error: str | None
) -> ScriptPlan:
    planned = recorder.planned
    return ScriptPlan(
        script=script,
        complete=ended is None and error is None,
        ended=ended,
        line=line,
        error=error,
        submissions=[_submission(one) for one in planned],
        sbatch_calls={
            "now": sum(one.now for one in planned),
            "later": sum(one.later for one in planned),
        },
        core_hours=sum(one.cost.core_hours or 0 for one in planned),
        gpu_hours=sum(one.cost.gpu_hours or 0 for one in planned),
        budgets=[BudgetLeft(b.name, b.resource, b.limit, b.used, b.left) for b in _left(recorder)],
        text="\n".join(one.text for one in planned),
    )


def _submission(one: Planned) -> PlannedSubmission:
    plan, cut, pack = one.plan, one.plan.cut, one.plan.submission.pack
    return PlannedSubmission(
        number=one.number,
        task=plan.name,
        kind=one.kind,
        items=len(plan.arguments.blobs),
        arrays=[part.size for part in cut.parts] if cut else [],
        at_once=min(cut.at_once, len(cut.parts)) if cut else 1,
        why=cut.why if cut else "one call",
        pack=None if pack is None else dict(pack._asdict(), jobs=pack.jobs),
        max_concurrent=plan.submission.throttle,
        dependency=plan.submission.dependency,
        options=plan.options,
        function={"by": plan.by, "why": plan.function.why},
        sbatch_calls={"now": one.now, "later": one.later},
        core_hours=one.cost.core_hours,
        gpu_hours=one.cost.gpu_hours,
    )


def _left(recorder: Recorder) -> list[Budget]:
    """What the accounts of the plan have left; a plan is no worse without it."""
    accounts = {str(one.plan.options.get("account") or "") for one in recorder.planned}
    found: dict[tuple[str, str], Budget] = {}
    for backend in recorder.backends.values():
        for account in sorted(accounts):
            with contextlib.suppress(SlurmError):
                for one in budgets(backend.budget(account)):
                    found[(one.name, one.resource)] = one
    return list(found.values())


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
    return _script_plan(script, recorder, ended, line, error)


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
    timeout: Annotated[
        float, Parameter(help="Seconds after which the plan ends.", validator=within(0.1, 10**6))
    ] = 60,
    form: Form = FORM,
) -> ScriptPlan:
    """Run the script without submitting anything, until it needs a result.

    What the script prints goes to standard error. Exit code 1: the script itself failed.
    """
    if not script.is_file():
        raise OptionError(f"script={str(script)!r} is no file", hint="slurm plan path/of/script.py")
    return plan_script(str(script), arguments, timeout)
