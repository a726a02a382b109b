"""BaseCallback: the hooks, where each of them runs, and how a callback is called safely."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from slurm.callbacks import contexts

#: Every hook and where it runs.
HOOKS = {
    "on_packaging_begin": "client",
    "on_packaging_end": "client",
    "on_submit_begin": "client",
    "on_submit_end": "client",
    "on_status_change": "client",
    "on_array_progress": "client",
    "on_completed": "client",
    "on_wait_begin": "client",
    "on_wait_end": "client",
    "on_run_begin": "job",
    "on_run_end": "job",
    "on_workflow_begin": "job",
    "on_workflow_end": "job",
    "on_child_submitted": "job",
}
#: slurm-sdk's names: a method with one of them is called as ours.
OLD_HOOKS = {
    "on_begin_package_ctx": "on_packaging_begin",
    "on_end_package_ctx": "on_packaging_end",
    "on_begin_submit_job_ctx": "on_submit_begin",
    "on_end_submit_job_ctx": "on_submit_end",
    "on_job_status_update_ctx": "on_status_change",
    "on_begin_run_job_ctx": "on_run_begin",
    "on_end_run_job_ctx": "on_run_end",
    "on_completed_ctx": "on_completed",
    "on_workflow_begin_ctx": "on_workflow_begin",
    "on_workflow_end_ctx": "on_workflow_end",
    "on_workflow_task_submitted_ctx": "on_child_submitted",
}

log = logging.getLogger("slurm")


class BaseCallback:
    """Override the hooks you want; the others cost nothing.

    Hooks of the client run in order on a thread of the callback's own, so a slow one delays nobody.
    Hooks of the job run inside it, in a copy of the callback that travels with the run. What a hook
    raises is reported once and changes nothing about the job.
    """

    #: Whether a copy goes with workflows, to hear of their children; where it has hooks of the job
    #: it goes with every run.
    travels: ClassVar[bool] = True

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for old, new in OLD_HOOKS.items():
            if old in cls.__dict__ and new not in cls.__dict__:
                setattr(cls, new, cls.__dict__[old])

    # ---- in the client --------------------------------------------------------------------------

    def on_packaging_begin(self, ctx: contexts.PackagingBeginContext) -> None:
        """The code of a call is about to be made ready."""

    def on_packaging_end(self, ctx: contexts.PackagingEndContext) -> None:
        """The code is ready, or cannot be."""

    def on_submit_begin(self, ctx: contexts.SubmitBeginContext) -> None:
        """A run is about to be submitted."""

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """A run was accepted, or refused."""

    def on_status_change(self, ctx: contexts.StatusChangeContext) -> None:
        """A job is in another state than before."""

    def on_array_progress(self, ctx: contexts.ArrayProgressContext) -> None:
        """Some elements of a map have begun or ended."""

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """A job is over."""

    def on_wait_begin(self) -> None:
        """Somebody begins to wait for results; called by who waits, so be quick."""

    def on_wait_end(self) -> None:
        """Nobody waits any more; called by who waited, so be quick."""

    # ---- in the job -----------------------------------------------------------------------------

    def on_run_begin(self, ctx: contexts.RunBeginContext) -> None:
        """The function is about to be called."""

    def on_run_end(self, ctx: contexts.RunEndContext) -> None:
        """The function has returned or raised."""

    def on_workflow_begin(self, ctx: contexts.WorkflowBeginContext) -> None:
        """A workflow's function is about to be called."""

    def on_workflow_end(self, ctx: contexts.WorkflowEndContext) -> None:
        """A workflow's function has returned or raised."""

    def on_child_submitted(self, ctx: contexts.ChildSubmittedContext) -> None:
        """A workflow has submitted a run."""


def listens(callback: BaseCallback, hook: str) -> bool:
    """Whether a callback has a method of its own for this hook."""
    return getattr(type(callback), hook) is not getattr(BaseCallback, hook)


def runs_in_job(callback: BaseCallback) -> bool:
    """Whether a callback has a hook that runs inside the job."""
    return any(listens(callback, hook) for hook, where in HOOKS.items() if where == "job")


_reported: set[tuple[int, str]] = set()


def call(callback: BaseCallback, hook: str, *context: object) -> None:
    """Call a hook; what it raises is reported the first time, and goes no further."""
    try:
        getattr(callback, hook)(*context)
    except BaseException as error:  # whatever it is, it is not the job's
        if isinstance(error, KeyboardInterrupt) and _is_main_thread():
            raise  # somebody's Ctrl-C, which came while the hook ran
        key = (id(callback), hook)
        if key not in _reported:
            _reported.add(key)
            log.warning(
                "%s.%s raised; jobs are not affected, and further errors of it are not reported",
                type(callback).__name__,
                hook,
                exc_info=True,
            )


def _is_main_thread() -> bool:
    import threading  # slow to import, and seldom needed

    return threading.current_thread() is threading.main_thread()


def flush(timeout: float = 10.0) -> bool:
    """Wait until every callback of this process has heard all that happened so far.

    `job.result()` can return before callbacks on their own threads have heard of the end. A
    program that ends waits by itself, for at most ten seconds. False: time was up.
    """
    import sys

    lines = sys.modules.get("slurm.callbacks.lines")
    return True if lines is None else lines.drain_all(time.monotonic() + timeout)
