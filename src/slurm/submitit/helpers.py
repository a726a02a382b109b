"""Helpers for programs that submit: checkpoints, sequences, progress, snapshots, environments."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slurm.submitit.core.utils import (
    CommandFunction,
    DelayedSubmission,
    environment_variables,
)

if TYPE_CHECKING:
    from slurm.submitit.core.jobs import Job
    from slurm.submitit.distributed import TorchDistributedEnvironment

__all__ = [
    "Checkpointable",
    "CommandFunction",
    "DelayedSubmission",
    "FunctionSequence",
    "RsyncSnapshot",
    "TorchDistributedEnvironment",
    "as_completed",
    "clean_env",
    "environment_variables",
    "monitor_jobs",
    "run_cmd",
]

R = TypeVar("R")

#: What tells a process that it runs in a job, and would mislead one that it submits.
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "SUBMITIT_")
#: What a job needs to find its cluster again, and is no word about the job itself.
_OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SDK_DOOR")
#: The user's settings; the embedded scheduler's say where it is.
_SETTINGS = ("SLURM_SDK_EMBEDDED_", "SLURM_SDK_SSH_DIR", "SLURM_SDK_PROGRESS", "SLURM_SDK_CHECK_")
#: By this one `srun` in a job of the embedded scheduler finds that job.
_EMBEDDED_JOB = "SLURM_SDK_EMBEDDED_RUN"
_DISTRIBUTED = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
)


def __getattr__(name: str) -> Any:
    if name == "TorchDistributedEnvironment":
        from slurm.submitit.distributed import TorchDistributedEnvironment

        return TorchDistributedEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Checkpointable:
    """A callable that goes on after a requeue as it is, with the arguments that it had."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Checkpointable:
        """Refuse a class that cannot be called."""
        made = super().__new__(cls)
        if not callable(made):
            raise AssertionError(f"{cls.__name__} needs a __call__ method")
        return made

    def checkpoint(self, *args: Any, **kwargs: Any) -> DelayedSubmission:
        """What runs after the requeue; called with the arguments of the call."""
        return DelayedSubmission(self, *args, **kwargs)  # type: ignore[arg-type]


class FunctionSequence(Checkpointable):
    """Several calls in one job, one after the other; those that were made survive a requeue."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self.delayed_functions: list[DelayedSubmission] = []

    def add(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Add a call."""
        self.delayed_functions.append(DelayedSubmission(func, *args, **kwargs))

    def __len__(self) -> int:
        return len(self.delayed_functions)

    def __iter__(self) -> Iterator[DelayedSubmission]:
        return iter(self.delayed_functions)

    def __call__(self) -> list[Any]:
        """Make the calls that were not made yet; the values of all."""
        if self.verbose:
            done = sum(call.done() for call in self)
            print(f"Starting from {done}/{len(self)}", flush=True)  # noqa: T201 - as asked for
        return [call.result() for call in self]


def as_completed(
    jobs: Sequence[Job[R]], timeout: float | None = None, poll_frequency: float = 10
) -> Iterator[Job[R]]:
    """Jobs in the order of their ends; `TimeoutError` when some are not over after `timeout`.

    `poll_frequency` is the longest pause between two looks, in seconds.
    """
    left = list(jobs)
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.02
    while left:
        over: list[Job[R]] = []
        waiting: list[Job[R]] = []
        for job in left:
            (over if job.done() else waiting).append(job)
        yield from over
        left = waiting
        if deadline is not None and left and time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} of {len(jobs)} jobs are not over after {timeout} s")
        if left and not over:
            rest = float("inf") if deadline is None else deadline - time.monotonic()
            time.sleep(max(0.0, min(pause, poll_frequency, rest)))
            pause *= 1.5


def monitor_jobs(
    jobs: Sequence[Job[R]],
    poll_frequency: float = 30,
    test_mode: bool = False,
    custom_logging: Callable[[int, float, Sequence[Job[R]]], None] | None = None,
) -> None:
    """Print how many jobs are over until all are; `custom_logging` is called instead of printing.

    It gets the number of monitored jobs, the time since the start in minutes, and the jobs.
    """
    if poll_frequency < 30 and not test_mode:
        raise AssertionError(f"poll_frequency={poll_frequency} must be at least 30 seconds")
    began = time.monotonic()
    while True:
        over = [job for job in jobs if job.done()]
        minutes = (time.monotonic() - began) / 60
        if custom_logging is not None:
            custom_logging(len(jobs), minutes, jobs)
        else:
            _print_progress(jobs, over, minutes)
        if len(over) == len(jobs):
            return
        time.sleep(poll_frequency)


def _print_progress(jobs: Sequence[Any], over: Sequence[Any], minutes: float) -> None:
    states = [str(job.state).upper() for job in jobs]
    running, failed = states.count("RUNNING"), sum("FAIL" in state for state in states)
    print(  # noqa: T201 - what this function is for
        f"[{minutes:.0f} min] {len(over)} of {len(jobs)} jobs are over, {running} running, "
        f"{failed} failed",
        flush=True,
    )


@contextlib.contextmanager
def clean_env(extra_names: Sequence[str] = ()) -> Iterator[None]:
    """Hide the variables of this job for a block, so that it can submit to the same cluster."""
    hidden = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name in extra_names or _is_of_this_job(name)
    }
    try:
        yield
    finally:
        os.environ.update(hidden)


def _is_of_this_job(name: str) -> bool:
    if name in (*_DISTRIBUTED, _EMBEDDED_JOB):
        return True
    leads_to_the_cluster = name in _OF_THE_CLUSTER or name.startswith(_SETTINGS)
    return name.startswith(_OF_A_JOB) and not leads_to_the_cluster


class RsyncSnapshot:
    """A copy of the git repository; the block runs, and submits, in the copy.

    Tracked files are copied as they are now; `exclude` and `include` are patterns of rsync.
    """

    def __init__(
        self,
        snapshot_dir: Path,
        root_dir: Path | None = None,
        with_submodules: bool = False,
        exclude: Sequence[str] = (),
        include: Sequence[str] = (),
    ) -> None:
        self.available(throw=True)
        self.snapshot_dir = Path(snapshot_dir)
        top = run_cmd(["git", "rev-parse", "--show-toplevel"], cwd=root_dir)
        self.root_dir = Path(root_dir) if root_dir is not None else Path(top)
        self.with_submodules = with_submodules
        self.exclude = exclude
        self.include = include
        self.original_dir = Path.cwd()

    @staticmethod
    def available(throw: bool = False) -> bool:
        """Whether rsync and git are here."""
        import shutil

        missing = [name for name in ("rsync", "git") if shutil.which(name) is None]
        if missing and throw:
            raise RuntimeError(f"RsyncSnapshot needs {' and '.join(missing)}")
        return not missing

    def __enter__(self) -> None:
        self.original_dir = Path.cwd()
        self.snapshot_dir.mkdir(parents=True, exist_ok=True)
        listing = ["git", "ls-files", "-z", "--cached"]
        listing += ["--recurse-submodules"] if self.with_submodules else []
        names = subprocess.check_output(listing, cwd=self.root_dir).split(b"\0")
        there = [name for name in names if name and (self.root_dir / os.fsdecode(name)).exists()]
        patterns = [f"--include={one}" for one in self.include]
        patterns += [f"--exclude={one}" for one in self.exclude]
        command = ["rsync", "-a", "--from0", "--files-from=-", *patterns]
        command += [f"{self.root_dir}/", f"{self.snapshot_dir}/"]
        subprocess.run(command, input=b"\0".join(there), check=True)
        os.chdir(self.snapshot_dir)

    def __exit__(self, *_: object) -> None:
        os.chdir(self.original_dir)


def run_cmd(command: Sequence[str], **kwargs: Any) -> str:
    """What a program prints, without blanks around."""
    printed: bytes = subprocess.check_output(list(command), **kwargs)
    return printed.decode("utf-8", "replace").strip()
