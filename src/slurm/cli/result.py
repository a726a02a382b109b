"""`slurm result RUN`: what a run returned."""

from __future__ import annotations

import json
import pprint
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from slurm.cli import DONE, TASK_FAILED
from slurm.cli.frame import COMMON, COUNT, SECONDS, Answer, Common, Run
from slurm.cli.opened import Opened, open_run
from slurm.cli.screen import Screen
from slurm.errors import JobError


@dataclass(frozen=True)
class Returned(Answer):
    """What a run returned."""

    run: Annotated[str, "The run."]
    job_id: Annotated[str, "Its job; of an array the first one's."]
    value: Annotated[Any, "The value where JSON has such a thing, else null; of an array a list."]
    repr: Annotated[str, "The value as Python writes it."]
    type: Annotated[str, "The name of its type."]
    errors: Annotated[dict[str, str], "Of an array: the calls that failed, and why."]
    written: Annotated[str | None, "The file that it was pickled into."]

    @property
    def exit_code(self) -> int:
        """1 where some of the calls failed."""
        return TASK_FAILED if self.errors else DONE

    def lines(self, screen: Screen) -> Iterable[str]:
        """The value as Python writes it, then what failed."""
        yield from [] if self.written else self.repr.splitlines()
        for index, error in self.errors.items():
            yield f"{index}: {error}"


def result(
    run: Run,
    *,
    task: Annotated[
        int | None, Parameter(help="Of an array: only this one.", validator=COUNT)
    ] = None,
    output: Annotated[Path | None, Parameter(help="Pickle the value into this file.")] = None,
    timeout: Annotated[
        float | None,
        Parameter(help="The most seconds to wait; left out: for ever.", validator=SECONDS),
    ] = None,
    common: Common = COMMON,
) -> Returned:
    """Print what a run returned; waits while it runs. Exit code 1: it failed."""
    return returned(open_run(common, run, ask=False).of_task(task), output, timeout)


def returned(opened: Opened, output: Path | None = None, timeout: float | None = None) -> Returned:
    """The values of an opened run, once it is over."""
    if opened.array is None:
        try:
            value = opened.jobs[0].result(timeout)
        except TimeoutError as late:
            raise JobError(str(late), hint=f"slurm wait {opened.run}") from None
        errors: dict[str, str] = {}
    else:
        values = opened.array.results(timeout, return_exceptions=True)
        bad = {i for i, job in enumerate(opened.array) if not job.succeeded}
        errors = {str(i): _line(values[i]) for i in sorted(bad)}
        value = [None if i in bad else one for i, one in enumerate(values)]
    if output is not None:
        import cloudpickle

        output.write_bytes(cloudpickle.dumps(value))
    return Returned(
        opened.run,
        opened.jobs[0].id,
        _as_json(value),
        pprint.pformat(value),
        type(value).__qualname__,
        errors,
        None if output is None else str(output),
    )


def _line(error: object) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _as_json(value: object) -> Any:
    """The value, where JSON can hold it as it is."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None
