"""Calls the hooks of callbacks that run inside the job, around the function."""

import os
import sys
import time
from typing import Any, Dict

from slurm import rundir


class Hooks:
    """A function with the hooks of its callbacks around it."""

    def __init__(
        self, function: Any, run: str, who: rundir.Identity, header: Dict[str, Any]
    ) -> None:
        from slurm.callbacks.travel import load_callbacks
        from slurm.context import JobContext

        self._function = function
        self._workflow = bool(header.get("workflow"))
        #: Which call of the map this is; a warm worker sets it for each item.
        self.index = who.index
        self._callbacks = load_callbacks(run)
        env = os.environ
        own = JobContext.from_environment()
        self._of_workflow = {
            "name": env.get("SLURM_JOB_NAME", ""),
            "run_dir": run,
            "job_id": own.job_id,
            "attempt": who.attempt,
        }
        self._facts = dict(
            self._of_workflow,
            target=header.get("target", ""),
            rank=who.rank,
            hostname=os.uname().nodename,
            python=sys.version.split()[0],
            is_workflow=self._workflow,
            job_context=own,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function between its hooks."""
        from slurm.callbacks import contexts
        from slurm.runner.run import settle

        began = time.time()
        facts = dict(self._facts, index=self.index)
        self._tell(contexts.RunBeginContext(time=began, **facts))
        if self._workflow:
            self._tell(contexts.WorkflowBeginContext(time=began, **self._of_workflow))
        error = None
        try:
            return settle(self._function(*args, **kwargs))
        except BaseException as trouble:
            error = trouble
            raise
        finally:
            now = time.time()
            how: Dict[str, Any] = {"duration": now - began, "exception": error}
            if self._workflow:
                self._tell(contexts.WorkflowEndContext(time=now, **self._of_workflow, **how))
            text = "" if error is None else _traceback(error)
            self._tell(contexts.RunEndContext(time=now, traceback=text, **facts, **how))
            if self._workflow:
                from slurm.callbacks.base import flush

                flush()

    def _tell(self, context: Any) -> None:
        from slurm.callbacks.base import call, listens

        for callback in self._callbacks:
            if listens(callback, context.hook):
                call(callback, context.hook, context)


def hooked(function: Any, run: str, who: rundir.Identity, header: Dict[str, Any]) -> Any:
    """The function as the runner calls it: itself, where no callback came with the run."""
    if not os.path.exists(os.path.join(run, rundir.CALLBACKS)):
        return function
    return Hooks(function, run, who, header)


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-64_000:]
