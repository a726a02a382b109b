"""`slurm run FILE.py::task --arg value`, or `slurm run FILE.py`: from the shell to the cluster."""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from slurm.cli.attach import Seen, follow
from slurm.cli.frame import COMMON, Answer, Common
from slurm.cli.opened import Opened
from slurm.cli.plan import ScriptPlan, plan_script
from slurm.cli.rerun import Mem, Set, Submitted, Time, options_of
from slurm.cli.result import returned
from slurm.cli.screen import Screen
from slurm.errors import OptionError, UsageError, nearest
from slurm.importing import Importing
from slurm.packaging.function import context_parameter
from slurm.packaging.progress import shown

if TYPE_CHECKING:
    from slurm.task import Task


@dataclass(frozen=True)
class Ran(Answer):
    """What `slurm run` did: with --json one object, once the task is over."""

    run: Annotated[str | None, "The run; null for a dry run and for a script."]
    job_id: Annotated[str | None, "Its job."]
    state: Annotated[str, "Its state; SUBMITTED with --detach, PLANNED with --dry-run."]
    value: Annotated[Any, "What it returned, where JSON has such a thing."]
    text: Annotated[str, "The value as Python writes it, the plan, or how to go on."]

    def lines(self, screen: Screen) -> list[str]:
        """The text."""
        return self.text.splitlines()


def run(
    target: Annotated[str, Parameter(help="FILE.py::task, or FILE.py for a whole script.")],
    *words: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="Arguments of the task, or of the script."),
    ],
    dry_run: Annotated[bool, Parameter(negative="", help="Show what would be submitted.")] = False,
    detach: Annotated[bool, Parameter(negative="", help="Submit, and do not wait.")] = False,
    mem: Mem = None,
    time: Time = None,
    set: Set = None,
    verbose: Annotated[
        bool,
        Parameter(name=["--verbose", "-v"], negative="", help="Show what packaging's tools print."),
    ] = False,
    common: Common = COMMON,
) -> Iterator[Ran | Seen | Submitted | ScriptPlan]:
    """Run a task of a file with arguments from its signature, or a whole script.

    The arguments of a task are options: `--lr 0.1`, or plain words in their order. Those that have
    the name of an option of this command go behind `--`. Ctrl-C leaves the job alone.
    """
    file, _, name = target.partition("::")
    path = Path(file)
    if not path.is_file():
        hint = "slurm run train.py::train --lr 0.1"
        raise OptionError(f"target={target!r}: {file} is no file", hint=hint)
    given = options_of(set, mem=mem, time=time)
    if name:
        found = load_task(path, name)
        with shown(verbose):
            yield from _run_task(found, list(words), given, dry_run, detach, common)
        return
    if given:
        raise UsageError(
            f"{', '.join(given)}: a script says itself what it asks for",
            hint=f"name a task: slurm run {file}::TASK",
        )
    with shown(verbose):
        yield from _run_script(path, list(words), dry_run, detach, common)


# ---- a task -------------------------------------------------------------------------------------


def load_task(path: Path, name: str) -> Task[..., Any]:
    """The task of this name in a file; a plain function becomes one."""
    from slurm.task import Task, task

    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with Importing(path.name):
        module = importlib.import_module(path.stem)
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise UsageError(
            f"{path} cannot be imported: the module {path.stem} is {module.__file__}",
            hint="give the file another name",
        )
    found = getattr(module, name, None)
    if found is None or not callable(found):
        known = [key for key, value in vars(module).items() if isinstance(value, Task)]
        close = nearest(name, known)
        raise UsageError(
            f"{path} has no task {name!r}; it has {', '.join(known) or 'none'}",
            hint=f"did you mean {path}::{close}?" if close else "write @task above a function",
        )
    return found if isinstance(found, Task) else task(found)


def bind(function: Callable[..., Any], words: list[str]) -> inspect.BoundArguments:
    """The arguments in the words, by the function's signature and its types."""
    signature = inspect.signature(function, eval_str=True)
    context = context_parameter(function)
    kept = [p for p in signature.parameters.values() if context is None or p.name != context[0]]

    def stand_in(*args: Any, **kwargs: Any) -> None:
        """Stand in the function's place."""

    stand_in.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    stand_in.__annotations__ = {p.name: p.annotation for p in kept if p.annotation is not p.empty}
    app = App(name=function.__name__, help_flags=[], version_flags=[], result_action="return_value")
    app.default(stand_in)
    try:
        _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        takes = ", ".join(str(parameter) for parameter in kept) or "no arguments"
        text = str(error).replace("\n", " ").strip().rstrip(".")
        raise UsageError(f"{function.__name__}: {text}", hint=f"it takes {takes}") from None
    return bound


def _run_task(
    task: Task[..., Any],
    words: list[str],
    options: dict[str, Any],
    dry_run: bool,
    detach: bool,
    common: Common,
) -> Iterator[Ran | Seen | Submitted]:
    bound = bind(task.unwrapped, words)
    cluster = common.connect()
    if dry_run:
        plan = cluster.explain(task, **options)(*bound.args, **bound.kwargs)
        yield Ran(None, None, "PLANNED", None, f"{plan}\n\n{plan.script}")
        return
    job = cluster.submit(task, **options)(*bound.args, **bound.kwargs)
    if detach:
        yield Submitted(job.run, job.id, 1, None, options)
        return
    opened = Opened(cluster, None, [job])
    if common.json:
        job.wait()
    else:
        yield from _watched(opened)
    value = returned(opened)
    yield Ran(job.run, job.id, job.state.value, value.value, value.repr)


def _watched(opened: Opened) -> Iterator[Seen]:
    """What happens to the job; who interrupts is told how to go on."""
    try:
        yield from follow(opened, lines=1000)
    except KeyboardInterrupt:
        print(f"\nthe job goes on: slurm attach {opened.run}", file=sys.stderr)
        raise


# ---- a script -----------------------------------------------------------------------------------


def _run_script(
    path: Path, words: list[str], dry_run: bool, detach: bool, common: Common
) -> Iterator[Ran | ScriptPlan]:
    """Run a script as Python would; the cluster that was named is active in it."""
    if common.cluster is not None:
        os.environ["SLURM_ENV"] = common.cluster
    if dry_run:
        yield plan_script(str(path), words)
        return
    if detach:
        yield _in_background(path, words)
        return
    sys.argv = [str(path), *words]
    sys.path.insert(0, str(path.resolve().parent))
    with common.connect():
        runpy.run_path(str(path), run_name="__main__")


def _in_background(path: Path, words: list[str]) -> Ran:
    import subprocess

    log = Path(f"{path.stem}.out")
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(path), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    text = f"{path} runs as process {process.pid} of this machine; it prints to {log}"
    return Ran(None, None, "SUBMITTED", None, text)
