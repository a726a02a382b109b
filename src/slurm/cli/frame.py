"""What every verb shares: its common options, what it answers, and how the answer is printed.

A verb is a function. It takes `common: Common` (or `Form` where it needs no cluster) and returns an
`Answer`, or an iterator of them; the fields of the answer are its JSON, and its `lines` the text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from slurm.cli.screen import Screen, screen_of
from slurm.errors import SlurmError
from slurm.model.printable import escaped

if TYPE_CHECKING:
    from slurm.api.looking import Looking
    from slurm.cluster import Cluster

#: A run, as a person names it.
Run = Annotated[
    str,
    Parameter(help="A run: `last`, its name or the begin of it, its directory, or a job id."),
]


def within(least: float, most: float) -> Callable[[Any, Any], None]:
    """Refuse a number of an option that is outside of this; None was not given."""

    def check(_: object, value: Any) -> None:
        if value is not None and not least <= value <= most:
            raise ValueError(f"write a number from {least} to {most}.")

    return check


#: Of lines, runs, elements and ranks: none, or any number that makes sense; and seconds.
COUNT, ONE_OR_MORE, SECONDS = within(0, 2**31 - 1), within(1, 2**31 - 1), within(0, 10**9)
PORT, PORT_OR_ANY = within(1, 65535), within(0, 65535)


class Answer:
    """What a verb found. Subclasses are frozen dataclasses whose fields are the JSON.

    A field's type is `Annotated[type, "what it means"]`: docs/cli.md is made of that.
    """

    #: Whether it is said beside what was asked for: as text it goes to standard error.
    aside = False

    @property
    def exit_code(self) -> int:
        """How the program ends: see `slurm.cli`."""
        return 0

    def lines(self, screen: Screen) -> Iterable[str]:
        """The answer for a person, one line of the terminal at a time."""
        raise NotImplementedError

    def as_json(self, indent: int = 2) -> str:
        """The answer for a program; values that JSON does not know as Python writes them."""
        import msgspec

        data = msgspec.json.encode(self, enc_hook=repr)
        return escaped(msgspec.json.format(data, indent=indent).decode())


@dataclass(frozen=True)
class Said(Answer):
    """An answer that is a sentence."""

    done: Annotated[bool, "Whether it was done."]
    message: Annotated[str, "What was done, or why it was not."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """The sentence."""
        return screen.wrap(self.message)


@Parameter(name="*")
@dataclass(frozen=True)
class Form:
    """The options of every verb."""

    # `slurm.cli.main` looks at these two itself: what it does with an error depends on them.
    json: Annotated[bool, Parameter(negative="", help="Print JSON for a program.")] = False
    debug: Annotated[bool, Parameter(negative="", help="Show tracebacks of errors.")] = False


@Parameter(name="*")
@dataclass(frozen=True)
class Common(Form):
    """The options of every verb that needs a cluster."""

    cluster: Annotated[
        str | None,
        Parameter(help="A profile of the Slurmfile, a cluster that is up, `local` or `embedded`."),
    ] = None
    hostname: Annotated[str | None, Parameter(help="A login node, reached by ssh.")] = None
    job_base_dir: Annotated[str | None, Parameter(help="The directory of all runs.")] = None

    def connect(self, run: str | None = None) -> Cluster:
        """The cluster that is meant, or that a run belongs to whose directory was named.

        It is that of --cluster, else the Slurmfile's default profile, else this machine's.
        """
        from slurm.cluster import Cluster

        return Cluster(**self._arguments(run))

    def backend(self, **more: Any) -> Looking:
        """A look at it without a cluster around, which takes longer to import than to ask."""
        from slurm.reach import open_backend

        return open_backend({**self._arguments(code=False), **more})

    def look(self, run: str | None = None) -> Cluster:
        """The same cluster for a verb that looks: it cannot submit, cancel, write or unpickle.

        Where the base directory was not named but found above a run, nothing outside of the run is
        read either: its metadata may be anybody's.
        """
        from slurm.cluster import Cluster

        found = self._arguments(run, code=False)
        cluster = Cluster(**found, progress=False)
        cluster._only_look(inside=self._found_above(run))
        return cluster

    def _found_above(self, run: str | None) -> bool:
        """Whether it is the directory of a run that says where its base is."""
        from slurm.config import found_profile, has_profile
        from slurm.reach import DEFAULT_BASE

        above = None if run is None or os.sep not in run else _base_above(run)
        if above is None or self.job_base_dir or self.cluster or self.hostname:
            return False
        named = DEFAULT_BASE
        if has_profile(None):
            named = str(found_profile(code=False).get("job_base_dir", named))
        return os.path.realpath(os.path.expanduser(named)) != os.path.realpath(above)

    def _arguments(self, run: str | None = None, code: bool = True) -> dict[str, Any]:
        from slurm.api.origin import is_id
        from slurm.config import found_profile, has_profile, load_stack, stack_names
        from slurm.reach import DEFAULT_BASE

        given = {k: v for k in ("hostname", "job_base_dir") if (v := getattr(self, k)) is not None}
        if self.cluster in ("local", "embedded") and not has_profile(self.cluster):
            return {"backend_type": self.cluster, **given}
        if self.cluster in stack_names() and not has_profile(self.cluster):
            return {**load_stack(str(self.cluster)), **given}
        if self.cluster is not None:
            return {**found_profile(self.cluster, code), **given}
        base = _base_above(run) if run is not None and os.sep in run and not given else None
        if base is not None and _is_shared_by_profile(base):
            base = None
        if base is None and not self.hostname and has_profile(None):
            return {**found_profile(code=code), **given}
        if run is None or self.hostname or is_id(run):
            return given  # an id is that of the default scheduler
        base = base or Path(os.path.expanduser(self.job_base_dir or DEFAULT_BASE))
        return {"backend_type": _scheduler_of(base, run), "job_base_dir": str(base)}

    def attach(self, run: str) -> Any:
        """The Job or ArrayJob of a run, on its cluster."""
        return self.connect(run).attach(run)


#: What a verb's parameter defaults to: nothing was said.
FORM, COMMON = Form(), Common()


def _base_above(run: str) -> Path | None:
    """The base directory that a run's own directory lies in, on this machine."""
    from slurm import rundir

    path = Path(os.path.expanduser(run)).absolute()
    if not path.is_dir():
        return None
    return next((p for p in path.parents if (p / rundir.BASE_IDS).is_dir()), None)


def _is_shared_by_profile(base: Path) -> bool:
    """Whether a base is a member's folder in the group's directory that the profile names."""
    from slurm.config import found_profile, has_profile

    found = found_profile(code=False) if has_profile(None) else {}
    shared = os.path.expanduser(str(found.get("job_base_dir", "")))
    return bool(found.get("trust_group")) and base.resolve().parent == Path(shared).resolve()


def _scheduler_of(base: Path, run: str) -> str:
    """Where a run on this machine was submitted to, as its own environment file says."""
    from slurm import rundir
    from slurm.api.agent_error import AgentError
    from slurm.api.listing import find_named
    from slurm.api.run_files import read_json

    try:
        folder = base / find_named(str(base), run)
        found = read_json(str(folder / rundir.ENVIRONMENT)) or {}
        return str(found["cluster"]["scheduler"])
    except (KeyError, TypeError, AgentError):
        return "local"  # the verb itself says what is wrong with the name


def present(answer: object, as_json: bool) -> int:
    """Print what a verb returned; the exit code that it asks for."""
    if isinstance(answer, int):
        return answer
    if isinstance(answer, Answer):
        if as_json:
            print(answer.as_json())
        else:
            screen = screen_of()
            for line in answer.lines(screen):
                print(screen.shown(line))
        return answer.exit_code
    if isinstance(answer, Iterator):
        code = 0
        for one in answer:
            if as_json:
                print(one.as_json(indent=0), flush=True)
            else:
                out = sys.stderr if one.aside else sys.stdout
                screen = screen_of(out)
                for line in one.lines(screen):
                    print(screen.shown(line), file=out, flush=True)
            code = max(code, one.exit_code)
        return code
    return 0


def error_as_dict(error: SlurmError) -> dict[str, Any]:
    """What --json prints of an error."""
    return {
        "error": {
            "code": error.code,
            "kind": type(error).__name__,
            "message": error.message,
            "evidence": list(error.evidence),
            "hint": error.hint,
        }
    }
