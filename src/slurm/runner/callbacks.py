"""Calls the hooks of callbacks that run inside the job, around the function."""

from __future__ import annotations

import os
import sys
import time

from slurm import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class Hooks:
    """A function with the hooks of its callbacks around it."""

    def __init__(
        self, function: Any, callbacks: Any, context: Any, run: str, facts: Dict[str, Any]
    ) -> None:
        self._function = function
        self._callbacks = callbacks
        self._facts = dict(
            facts,
            run_dir=run,
            job_id=context.job_id,
            name=context.job_name,
            hostname=os.uname().nodename,
            python=sys.version.split()[0],
            job_context=context,
        )
        self._workflow = self._facts["is_workflow"]
        names = ("name", "run_dir", "job_id", "attempt")
        self._of_workflow = {name: self._facts[name] for name in names}
        #: Which call of the map this is; a warm worker sets it for each item.
        self.index = self._facts.pop("index")

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
        except BaseException as trouble:  # told to callbacks, and raised again
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


def with_hooks(function: Any, run: str, who: rundir.Identity, header: Dict[str, Any]) -> Hooks:
    """The function with the hooks of the callbacks that came with the run around it."""
    from slurm.callbacks.travel import load_callbacks
    from slurm.context import JobContext

    facts = {
        "target": header.get("target", ""),
        "is_workflow": bool(header.get("workflow")),
        "index": who.index,
        "rank": who.rank,
        "attempt": who.attempt,
    }
    return Hooks(function, load_callbacks(run), JobContext.from_environment(), run, facts)


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-64_000:]
