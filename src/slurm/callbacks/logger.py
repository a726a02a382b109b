"""LoggerCallback: what becomes of runs, as lines of Python's own logging."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slurm.callbacks.base import BaseCallback

if TYPE_CHECKING:
    from slurm.callbacks import contexts


class LoggerCallback(BaseCallback):
    """Logs submissions, changes of state and ends to a logger, `slurm.runs` when left out.

    Where logging is not set up its lines go to standard error.
    """

    def __init__(
        self, logger: logging.Logger | str = "slurm.runs", *, level: int = logging.INFO
    ) -> None:
        self._name = logger if isinstance(logger, str) else logger.name
        self._level = level

    def _log(self, text: str, *values: object, level: int | None = None) -> None:
        logger = logging.getLogger(self._name)
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
            logger.addHandler(handler)
            logger.setLevel(min(self._level, logging.INFO))
        logger.log(level or self._level, text, *values)

    def on_packaging_end(self, ctx: contexts.PackagingEndContext) -> None:
        """Log what packaging took, where it took long or failed."""
        if ctx.error is not None:
            self._log("%s: packaging failed: %s", ctx.name, ctx.error, level=logging.ERROR)
        elif ctx.duration > 1:
            self._log("%s: packaged (%s) in %.1f s", ctx.name, ctx.packaging, ctx.duration)

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """Log what was accepted, or why not."""
        if ctx.error is not None:
            self._log("%s: not submitted: %s", ctx.name, ctx.error, level=logging.ERROR)
            return
        what = f"array of {ctx.count}" if ctx.is_array else "job"
        self._log("%s: submitted as %s %s, run %s", ctx.name, what, ctx.job_id, ctx.run)

    def on_status_change(self, ctx: contexts.StatusChangeContext) -> None:
        """Log a state that is not the last one."""
        if not ctx.is_terminal:
            on = f" on {ctx.node}" if ctx.node else ""
            why = f" ({ctx.reason})" if ctx.reason and ctx.reason != "None" else ""
            self._log("%s: job %s is %s%s%s", ctx.name, ctx.job_id, ctx.state.value, on, why)

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """Log how a job ended."""
        if ctx.cached:
            self._log("%s: from the cache, job %s", ctx.name, ctx.job_id)
            return
        took = f" after {ctx.duration:.0f} s" if ctx.duration is not None else ""
        level = self._level if ctx.succeeded else logging.WARNING
        self._log("%s: job %s %s%s", ctx.name, ctx.job_id, ctx.state.value, took, level=level)

    def on_child_submitted(self, ctx: contexts.ChildSubmittedContext) -> None:
        """Log a workflow's child, into the log of the workflow."""
        self._log("%s submitted %s: job %s", ctx.workflow_run, ctx.name, ctx.job_id)
