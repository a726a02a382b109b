"""`slurm rerun RUN`: the same calls again, all or those that failed, perhaps with other options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.opened import open_run
from slurm.cli.screen import Screen
from slurm.errors import OptionError, UsageError

Mem = Annotated[str | None, Parameter(help="Memory, such as 8G.")]
Time = Annotated[str | None, Parameter(help="Time limit, such as 2h.")]
Set = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="Another option, NAME=VALUE; repeatable."),
]


@dataclass(frozen=True)
class Submitted(Answer):
    """What was submitted."""

    run: Annotated[str, "The new run."]
    job_id: Annotated[str, "Its job; of an array the first one's."]
    jobs: Annotated[int, "How many jobs it has."]
    again: Annotated[str | None, "The run whose calls these are."]
    options: Annotated[dict[str, Any], "What was asked for anew."]
    code: Annotated[str | None, "Of a rerun: submitted (that of the old run) or current."] = None

    def lines(self, screen: Screen) -> list[str]:
        """What it is, and how to go on."""
        some = f", {self.jobs} jobs" if self.jobs > 1 else ""
        lines = [f"submitted {self.run} (job {self.job_id}{some})"]
        if self.code == "submitted":
            now = f"slurm rerun {self.again} --code current"
            lines.append(f"it runs the code that {self.again} was submitted with; today's: {now}")
        elif self.code == "current":
            lines.append("it runs the code as it is now")
        return [*lines, screen.paint(f"follow it: slurm attach {self.run}", "grey")]


def rerun(
    run: Run,
    *,
    failed: Annotated[bool, Parameter(negative="", help="Only the calls that failed.")] = False,
    mem: Mem = None,
    time: Time = None,
    set: Set = None,
    code: Annotated[
        Literal["submitted", "current"],
        Parameter(help="The code that the run was submitted with, or the files as they are now."),
    ] = "submitted",
    common: Common = COMMON,
) -> Submitted:
    """Run the calls of a run again, with the same arguments, as a run of its own.

    They run the code that was submitted; with `--code current` what stands in the files today.
    """
    from slurm.current import current_code
    from slurm.resubmission import resubmit

    opened = open_run(common, run)
    given = options_of(set, mem=mem, time=time)
    jobs = opened.failed if failed else opened.jobs
    if not jobs:
        open_jobs = "some of it runs still" if not opened.over else "all of it succeeded"
        raise UsageError(
            f"nothing of {opened.run} has failed: {open_jobs}", hint="leave --failed out"
        )
    indexes = [job.index for job in jobs]
    new = current_code(opened.cluster, opened.run) if code == "current" else None
    single = opened.array is None
    fresh = resubmit(opened.cluster, opened.run, indexes, given, single=single, code=new)
    first = fresh[0]
    return Submitted(first.run, first.id, len(fresh), opened.run, given, code)


def options_of(words: Sequence[str] | None, **named: Any) -> dict[str, Any]:
    """The options that were given on the command line, as text; the model checks them."""
    found = {name: value for name, value in named.items() if value is not None}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise OptionError(
                f"--set {word!r} is not NAME=VALUE", hint="for example: --set partition=gpu"
            )
        found[name.replace("-", "_")] = _value(value)
    return found


def _value(text: str) -> object:
    """`true`, `false` and whole numbers as such; all else is text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.lstrip("-").isdigit() else text
