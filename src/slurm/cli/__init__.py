"""The `slurm` command: one file per verb group, and the only place that prints.

Exit codes are stable: 0 done, 1 the task failed, 2 wrong usage, 3 not reachable, 4 refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurm.errors import (
    ConnectError,
    JobError,
    ResultError,
    SchedulerUnreachable,
    SlurmError,
    UsageError,
)

if TYPE_CHECKING:
    from cyclopts import App

DONE, TASK_FAILED, USAGE, UNREACHABLE, REFUSED = range(5)

# The first class that fits decides; what none of them covers was refused.
_EXIT_CODES: tuple[tuple[type[SlurmError], int], ...] = (
    (UsageError, USAGE),
    (JobError, TASK_FAILED),
    (ResultError, TASK_FAILED),
    (SchedulerUnreachable, UNREACHABLE),
    (ConnectError, UNREACHABLE),
)

_ABOUT = "Python functions as Slurm jobs, and a real Slurm cluster in one command."
# A verb group is imported only when it is called, and cyclopts with rich only then, too:
# `slurm --help` is made from this table and answers at once.
_GROUPS = (
    ("cluster", "bring a real Slurm cluster up on this machine, look at it, take it down"),
    ("graph", "draw the jobs of a workflow, what waits for what, with states and times"),
    ("logs", "show what a job printed, or follow it while it runs"),
    ("login", "open a connection to a login node that asks for a password or a second factor"),
    ("plan", "show what a script would submit, and why, before anything is submitted"),
    ("submitit-shim", "write a package named submitit that leads to slurm.submitit"),
)


def exit_code(error: SlurmError) -> int:
    """The exit code that tells a script what kind of error this is."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), REFUSED)


def overview() -> str:
    """What `slurm --help` says."""
    rows = "\n".join(f"  {name:<15}{text}" for name, text in _GROUPS)
    return (
        f"Usage: slurm COMMAND\n\n{_ABOUT}\n\nCommands:\n{rows}\n\n"
        "Options:\n  --help      show this; `slurm COMMAND --help` shows more\n"
        "  --version   show the version\n\n"
        "Exit codes: 0 done, 1 the task failed, 2 wrong usage, 3 not reachable, 4 refused."
    )


def build_app() -> App:
    """The command line as cyclopts sees it."""
    from cyclopts import App

    app = App(name="slurm", help=_ABOUT, version=_version, help_format="plaintext")
    for name, help_text in _GROUPS:
        module = name.rpartition("-")[2]
        app.command(f"slurm.cli.{module}:app", name=name, help=help_text)
    return app


def _version() -> str:
    from importlib.metadata import version

    return version("slurm-sdk")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `slurm` command and exit with one of the stable codes."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in ([], ["--help"], ["-h"]):
        print(overview())
        sys.exit(DONE)
    from cyclopts import CycloptsError

    try:
        code = build_app()(words, exit_on_error=False, result_action="return_value")
    except CycloptsError:
        # Its words are printed already.
        sys.exit(USAGE)
    except SlurmError as error:
        print(error, file=sys.stderr)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; python would complain at exit.
        sys.stderr.close()
        sys.exit(DONE)
    sys.exit(code if isinstance(code, int) else DONE)
