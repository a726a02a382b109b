"""`slurm debug RUN`: a job that raised, in the local debugger, at the line where it did."""

from __future__ import annotations

import pdb
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from slurm import Job
from slurm.cli.ended import Ended
from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.pick import one_job
from slurm.cli.screen import Screen
from slurm.errors import JobError, SlurmError, UntrustedRun, UsageError
from slurm.postmortem import KeptFrame, arguments_of, kept_frames, make_traceback


@dataclass(frozen=True)
class FrameShown:
    """One frame of the traceback."""

    file: Annotated[str, "The file, as the job saw it."]
    line: Annotated[int, "The line."]
    name: Annotated[str, "The function."]
    locals: Annotated[dict[str, str], "How its variables looked."]


@dataclass(frozen=True)
class PostMortem(Answer):
    """What a failed job left for a debugger; with --json no debugger is started."""

    job_id: Annotated[str, "The job."]
    error: Annotated[str, "What was raised."]
    frames: Annotated[list[FrameShown], "The frames, outermost first."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """The frames, as a traceback shows them."""
        for frame in self.frames:
            yield f'  File "{frame.file}", line {frame.line}, in {frame.name}'
        yield self.error


def debug(run: Run, *, common: Common = COMMON) -> PostMortem | Ended:
    """Start the debugger where a job's function raised, with its frames and its arguments.

    The arguments of the task's function are the real ones; other variables show how they looked
    in the job. `w` shows the frames, `u` and `d` go up and down, `p NAME` prints, `q` ends.
    """
    job = one_job(common.attach(run), run, "debug", failed=True)
    _refuse_unless_failed(job, run)
    frames = kept_frames(job)
    error = job.outcome()[1] or JobError(f"job {job.id} has failed")
    if not frames:
        raise UsageError(
            f"job {job.id} ({job.name}) kept no frames: it did not end by an exception of its "
            "function, or is an item of a packed map",
            hint=f'slurm why {job.id} says how it ended; Cluster("debug") runs calls here, in pdb',
            evidence=str(error).splitlines()[-3:],
        )
    if common.json:
        shown = [FrameShown(f.file, f.line, f.name, f.locals) for f in frames]
        return PostMortem(job.id, f"{type(error).__name__}: {error}", shown)
    _walk(job, error, frames)
    return Ended()


def _refuse_unless_failed(job: Job[Any], run: str) -> None:
    state = job.state  # looks, so that more may be settled afterwards
    if job.notes.untrusted and state.phase == "finished":
        raise UntrustedRun(
            f"job {job.id} ({job.name}) is {state.value}; what it left for a debugger is not "
            f"read: {job.notes.untrusted}",
            hint=f"slurm why {run} shows what its logs say, where they may be read",
        )
    if job.settled and not job.succeeded:
        return
    if state.phase == "finished" and not job.settled:
        raise UsageError(
            f"job {job.id} ({job.name}) is {state.value} for the scheduler, and its directory does "
            "not say how it ended",
            hint=f"try again in a minute; slurm why {run} says what is known",
        )
    raise UsageError(
        f"job {job.id} ({job.name}) is {state.value}: it has not failed",
        hint=None if job.settled else f"slurm shell {run} goes into a job that runs",
    )


def _walk(job: Job[Any], error: BaseException, frames: list[KeptFrame]) -> None:
    try:
        args, kwargs = arguments_of(job)
    except Exception as trouble:  # noqa: BLE001 - unpickling calls code of any class
        args, kwargs = (), {}
        print(f"the arguments cannot be loaded here: {trouble}", file=sys.stderr)
    text = str(error) if isinstance(error, SlurmError) else f"{type(error).__name__}: {error}"
    print(f"{job.name}, job {job.id}, on {job.node or 'its node'}:\n{text}\n")
    pdb.post_mortem(make_traceback(frames, args, kwargs))
