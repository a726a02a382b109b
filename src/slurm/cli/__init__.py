"""The `slurm` command: one file per verb group, and the only place that prints.

Exit codes are stable: 0 done, 1 the task failed, 2 wrong usage, 3 not reachable, 4 refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from slurm.errors import (
    ConnectError,
    JobError,
    RemoteTraceback,
    ResultError,
    RunNotFound,
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
    (RunNotFound, USAGE),
    (JobError, TASK_FAILED),
    (ResultError, TASK_FAILED),
    (SchedulerUnreachable, UNREACHABLE),
    (ConnectError, UNREACHABLE),
)

_ABOUT = "Python functions as Slurm jobs, and a real Slurm cluster in one command."


class Verb(NamedTuple):
    """One verb: its name, where its function or app is, and what `slurm --help` says of it."""

    name: str
    place: str
    about: str


# A verb is imported only when it is called, and cyclopts with rich only then, too:
# `slurm --help` is made from this table and answers at once.
SECTIONS: dict[str, tuple[Verb, ...]] = {
    "Run": (
        Verb("run", "run:run", "run a task of a file, or a script, on a cluster"),
        Verb("plan", "plan:plan", "show what a script would submit, and why; submits nothing"),
        Verb("rerun", "rerun:rerun", "run a run, or what failed of it, again, with other options"),
        Verb("cancel", "cancel:cancel", "cancel runs"),
    ),
    "Look": (
        Verb("ls", "ls:ls", "list the runs, newest first"),
        Verb("show", "show:show", "show a run: its jobs, times, options and last words"),
        Verb("logs", "logs:logs", "show what a job printed, or follow it while it runs"),
        Verb("attach", "attach:attach", "follow a run until it is over: states and log"),
        Verb("wait", "wait:wait", "wait until runs are over"),
        Verb("result", "result:result", "print what a run returned"),
        Verb("graph", "graph:graph", "draw a workflow's jobs, what waits for what, with times"),
        Verb("why", "why:why", "say why a job waits, or why it failed, and what helps"),
        Verb("eff", "eff:eff", "say how well a run used what it asked for, and what to ask for"),
    ),
    "Go inside": (
        Verb("shell", "shell:shell", "open a shell, or run a command, inside a running job"),
        Verb("forward", "forward:forward", "bring a port of a running job to this machine"),
        Verb("debug", "debug:debug", "start the debugger where a job's function raised"),
    ),
    "Clusters": (
        Verb("top", "top:top", "jobs, arrays, nodes and logs on the whole screen"),
        Verb("queue", "views:queue", "the jobs in the queue"),
        Verb("nodes", "views:nodes", "the nodes and how full they are"),
        Verb("partitions", "views:partitions", "the partitions and how full they are"),
        Verb("gc", "gc:gc", "remove old runs, and what was packaged for them"),
        Verb("cluster", "cluster:app", "bring a real Slurm up on this machine, take it down"),
        Verb("dashboard", "dashboard:dashboard", "the cluster, jobs and your runs in a browser"),
        Verb("monitor", "monitor:app", "metrics for Prometheus, alert rules, Grafana dashboards"),
        Verb("bridge", "bridge:app", "let Slurm place the pods of a Kubernetes cluster"),
        Verb("env", "env:app", "prepare, list and remove the environments that jobs run in"),
    ),
    "Set up": (
        Verb("init", "init:init", "write a Slurmfile, after three questions and a look around"),
        Verb("doctor", "doctor:doctor", "check that everything works, and say what does not"),
        Verb("login", "login:login", "open a connection to a host that asks for a password"),
        Verb("submitit-shim", "shim:shim", "write a package named submitit that leads to ours"),
        Verb("migrate", "migrate:migrate", "show the edits that a slurm-sdk 0.4 program needs"),
        Verb("mcp", "mcp:mcp", "serve the verbs that look as tools for assistants (MCP)"),
        Verb("completion", "completion:completion", "print the completion of bash, zsh or fish"),
    ),
}
#: Verbs that only programs call.
HIDDEN = (Verb("complete-words", "completion:complete", ""),)


def verbs() -> list[Verb]:
    """Every verb that a person can type."""
    return [verb for section in SECTIONS.values() for verb in section]


def exit_code(error: SlurmError) -> int:
    """The exit code that tells a script what kind of error this is."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), REFUSED)


def overview() -> str:
    """What `slurm --help` says."""
    rows = "\n\n".join(
        f"{title}:\n" + "\n".join(f"  {verb.name:<15}{verb.about}" for verb in section)
        for title, section in SECTIONS.items()
    )
    return (
        f"Usage: slurm COMMAND\n\n{_ABOUT}\n\n{rows}\n\n"
        "Options:\n"
        "  --help      show this; `slurm COMMAND --help` shows more\n"
        "  --version   show the version\n"
        "  --json      of every command: print JSON for a program\n"
        "  --cluster   of most commands: a profile of the Slurmfile\n"
        "  --debug     of every command: show tracebacks of errors\n\n"
        "Exit codes: 0 done, 1 the task failed, 2 wrong usage, 3 not reachable, 4 refused."
    )


def build_app() -> App:
    """The command line as cyclopts sees it."""
    from cyclopts import App

    app = App(name="slurm", help=_ABOUT, version=_version, help_format="markdown")
    for verb in (*verbs(), *HIDDEN):
        place = f"slurm.cli.{verb.place}"
        app.command(place, name=verb.name, show=verb not in HIDDEN)
    return app


def _version() -> str:
    from importlib.metadata import version

    return version("slurm-sdk")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `slurm` command and exit with one of the stable codes."""
    words = _verb_first(list(sys.argv[1:] if arguments is None else arguments))
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows what it can; no letter may end the program.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; python would complain at exit.
        sys.stderr.close()
        code = DONE
    sys.exit(code)


def _run(words: list[str]) -> int:
    if words in ([], ["--help"], ["-h"]):
        print(overview())
        return DONE
    from cyclopts import CycloptsError

    from slurm.cli.frame import present

    own = words[: words.index("--")] if "--" in words else words
    as_json, debug = "--json" in own, "--debug" in own
    try:
        found = build_app()(
            words, exit_on_error=False, print_error=False, result_action="return_value"
        )
        return present(found, as_json)
    except CycloptsError as error:
        text = str(error).replace("\n", " ").partition(" Available commands:")[0].strip(" .")
        hint = f"slurm {own[0]} --help" if own[0] in {v.name for v in verbs()} else "slurm --help"
        return _report(UsageError(text, hint=hint), as_json, debug)
    except SlurmError as error:
        return _report(error, as_json, debug)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the user's own, out of a job; any other is raised again
        if debug or not isinstance(error.__cause__, RemoteTraceback):
            raise
        # What the job says is what counts.
        failed = JobError(f"{type(error).__name__}: {error}", evidence=_tail(error.__cause__.text))
        return _report(failed, as_json, debug)


def _tail(text: str) -> list[str]:
    """The last frame of a traceback."""
    lines = text.rstrip().splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("  File ")), default=0)
    return lines[last:]


def _report(error: SlurmError, as_json: bool, debug: bool) -> int:
    """Say what went wrong: its short form, or JSON, or with --debug the traceback."""
    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    elif as_json:
        import json

        from slurm.cli.frame import error_as_dict

        print(json.dumps(error_as_dict(error), indent=2))
    else:
        print(error, file=sys.stderr)
    return exit_code(error)


def _verb_first(words: list[str]) -> list[str]:
    """`slurm --json --cluster lab ls` as `slurm ls --json --cluster lab`."""
    front: list[str] = []
    rest = list(words)
    while rest and rest[0].partition("=")[0] in ("--json", "--debug", "--cluster"):
        front.append(rest.pop(0))
        if front[-1] == "--cluster" and rest:
            front.append(rest.pop(0))
    return [*rest[:1], *front, *rest[1:]]
