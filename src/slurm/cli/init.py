"""`slurm init`: write a Slurmfile, after three questions and a look at the cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from slurm.cli.frame import FORM, Answer, Form
from slurm.cli.screen import Screen
from slurm.config import FILE_NAME
from slurm.errors import UsageError

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: This machine: its Slurm, or the embedded scheduler in any case.
HERE, EMBEDDED = "here", "embedded"


@dataclass(frozen=True)
class Written(Answer):
    """The Slurmfile that was written."""

    path: Annotated[str, "Where it is."]
    scheduler: Annotated[str, "What was found: slurm or embedded."]
    partitions: Annotated[list[str], "The partitions that were found."]
    text: Annotated[str, "What stands in the file."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """The file, and what to do next."""
        yield f"{self.path} written:"
        yield from (f"  {line}" for line in self.text.splitlines())
        yield ""
        yield "next: slurm doctor"


def init(
    *,
    hostname: Annotated[
        str | None, Parameter(help="A login node; `here`; `embedded`: without Slurm.")
    ] = None,
    job_base_dir: Annotated[str | None, Parameter(help="The directory of all runs.")] = None,
    partition: Annotated[str | None, Parameter(help="The partition for tasks.")] = None,
    time: Annotated[str | None, Parameter(help="The time limit for tasks.")] = None,
    account: Annotated[str | None, Parameter(help="The account for tasks.")] = None,
    profile: Annotated[str, Parameter(help="The name of the profile.")] = "default",
    force: Annotated[bool, Parameter(negative="", help="Write over a file that is there.")] = False,
    form: Form = FORM,
) -> Written:
    """Write a Slurmfile.toml here. What is not said as an option is asked for.

    Where nobody can be asked, the answers are: this machine, ~/slurm_jobs, the default partition.
    """
    path = Path(FILE_NAME)
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", hint="slurm init --force writes over it")
    ask = _asker(form)
    host = hostname or ask(
        "login node of the cluster (here: this machine; embedded: without Slurm)", HERE
    )
    cluster = _connect(host)
    facts = cluster.backend.hello()
    found = {row["name"]: row for row in cluster.backend.partitions()}
    default = next((name for name, row in found.items() if row["default"]), next(iter(found), ""))
    base = job_base_dir or ask("directory of all runs, visible on all nodes", "~/slurm_jobs")
    chosen = partition or ask(f"partition ({', '.join(found)})", default)
    if found and chosen and chosen not in found:
        from slurm.errors import nearest

        close = nearest(chosen, found)
        raise UsageError(
            f"there is no partition {chosen!r}; there are {', '.join(found)}",
            hint=f"did you mean {close}?" if close else "choose one of these",
        )
    embedded = facts["scheduler"] == "embedded"
    options = {"partition": None if embedded else chosen, "account": account, "time": time or "1h"}
    text = slurmfile(profile, host, base, options)
    path.write_text(text)
    return Written(str(path), str(facts["scheduler"]), list(found), text)


def slurmfile(profile: str, host: str, base: str, options: dict[str, Any]) -> str:
    """The text of a Slurmfile with one profile."""
    kinds = {HERE: "local", EMBEDDED: "embedded"}
    where = (
        f"backend_type = {_quoted(kinds[host])}" if host in kinds else f"hostname = {_quoted(host)}"
    )
    lines = [f"[{profile}]", where, f"job_base_dir = {_quoted(base)}", "", f"[{profile}.options]"]
    lines += [f"{name} = {_quoted(value)}" for name, value in options.items() if value]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A JSON string is a basic string of TOML, too.
    return json.dumps(text)


def _connect(host: str) -> Cluster:
    from slurm.cluster import Cluster

    if host == EMBEDDED:
        return Cluster("embedded")
    return Cluster() if host == HERE else Cluster(hostname=host)


def _asker(form: Form) -> Callable[[str, str], str]:
    """Asks the person at the terminal; takes the proposal where there is none."""

    def ask(question: str, proposal: str) -> str:
        if form.json or not sys.stdin.isatty():
            return proposal
        print(f"{question} [{proposal}]: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip() or proposal

    return ask
