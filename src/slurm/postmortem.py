"""A job that raised, in the local debugger: its frames are made again out of what it kept."""

from __future__ import annotations

import json
import linecache
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir
from slurm.runner.values import loads

if TYPE_CHECKING:
    from slurm.job import Job


class Shown:
    """A value of the job that stayed there; this is how it looked."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@dataclass(frozen=True)
class KeptFrame:
    """One frame as the job kept it."""

    file: str
    line: int
    name: str
    arguments: list[str] = field(default_factory=list)
    locals: dict[str, str] = field(default_factory=dict)
    first: int = 1
    source: str = ""


def kept_frames(job: Job[Any]) -> list[KeptFrame]:
    """The frames that a failed job kept, outermost first; [] where there are none.

    Ask before the error itself: the job's record is dropped when that is made of it.
    """
    record = job.evidence.trouble()
    place = None if record is None else record.header.get("frames")
    if not place:
        return []
    name, offset, size = place
    data = job.cluster.backend.read(job.run, str(name), int(offset), int(size))
    return [KeptFrame(**frame) for frame in json.loads(data)]


def arguments_of(job: Job[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of a call as they were sent; values of other jobs stand as names."""
    if job.notes.untrusted:
        raise errors.UntrustedRun(f"the arguments of {job.run} are not read: {job.notes.untrusted}")
    data = job.cluster.backend.read_own(job.run, rundir.ARGUMENTS)
    blob = rundir.split_arguments(data)[job.index]
    args, kwargs = loads(blob, find=lambda pid: Shown(f"<the value of {pid}>"))[:2]
    return args, kwargs


def make_traceback(
    frames: Sequence[KeptFrame], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> types.TracebackType | None:
    """A traceback that a debugger can walk: real frames, with the values that are known here.

    The outermost frame is the task's function; its arguments are the real ones.
    """
    made: types.TracebackType | None = None
    for number in range(len(frames) - 1, -1, -1):
        kept = frames[number]
        values: dict[str, Any] = {k: Shown(text) for k, text in kept.locals.items()}
        if number == 0:
            values.update(zip(kept.arguments, args, strict=False))
            values.update({k: v for k, v in kwargs.items() if k in kept.arguments})
        frame = _frame(kept, values)
        made = types.TracebackType(made, frame, frame.f_lasti, kept.line)
        _remember_source(kept)
    return made


def _frame(kept: KeptFrame, values: dict[str, Any]) -> types.FrameType:
    """A real frame at a line of a file: code that raises there is run with these values."""
    code = compile("\n" * (kept.line - 1) + "raise StopIteration", kept.file, "exec")
    code = code.replace(co_name=kept.name)
    try:
        exec(code, {"__name__": "slurm.debug", "__file__": kept.file}, values)
    except StopIteration as stop:
        assert stop.__traceback__ is not None and stop.__traceback__.tb_next is not None
        return stop.__traceback__.tb_next.tb_frame
    raise AssertionError("the line raises")


def _remember_source(kept: KeptFrame) -> None:
    """Show the lines as they were in the job, where this machine has others or none."""
    lines = kept.source.splitlines(keepends=True)
    here = linecache.getlines(kept.file)[kept.first - 1 : kept.first - 1 + len(lines)]
    if lines and here != lines:
        padded = ["\n"] * (kept.first - 1) + lines
        linecache.cache[kept.file] = (sum(map(len, padded)), None, padded, kept.file)
