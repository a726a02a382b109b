"""Callbacks: code of yours that hears what becomes of runs, in the client and inside the job.

```python
class Beep(BaseCallback):
    def on_completed(self, ctx: CompletedContext) -> None:
        print("\\a", ctx.name, ctx.state)

with Cluster(callbacks=[Beep()]):
    ...
```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.callbacks.base import BaseCallback, flush
    from slurm.callbacks.benchmark import BenchmarkCallback
    from slurm.callbacks.contexts import (
        ArrayProgressContext,
        ChildSubmittedContext,
        CompletedContext,
        PackagingBeginContext,
        PackagingEndContext,
        RunBeginContext,
        RunEndContext,
        StatusChangeContext,
        SubmitBeginContext,
        SubmitEndContext,
        WorkflowBeginContext,
        WorkflowEndContext,
    )
    from slurm.callbacks.jsonevents import JsonEventsCallback
    from slurm.callbacks.logger import LoggerCallback
    from slurm.callbacks.notify import NotifyCallback
    from slurm.callbacks.progress import ProgressCallback, RichLoggerCallback
    from slurm.callbacks.spans import OpenTelemetryCallback

# A job loads only the modules of the callbacks that it runs.
_HOME = {
    **dict.fromkeys(("BaseCallback", "flush"), "base"),
    **dict.fromkeys(
        (
            "ArrayProgressContext",
            "ChildSubmittedContext",
            "CompletedContext",
            "PackagingBeginContext",
            "PackagingEndContext",
            "RunBeginContext",
            "RunEndContext",
            "StatusChangeContext",
            "SubmitBeginContext",
            "SubmitEndContext",
            "WorkflowBeginContext",
            "WorkflowEndContext",
        ),
        "contexts",
    ),
    "BenchmarkCallback": "benchmark",
    "JsonEventsCallback": "jsonevents",
    "LoggerCallback": "logger",
    "NotifyCallback": "notify",
    "OpenTelemetryCallback": "spans",
    **dict.fromkeys(("ProgressCallback", "RichLoggerCallback"), "progress"),
}
#: Names that users of slurm-sdk know.
_OLD = {
    "JobStatusUpdatedContext": "StatusChangeContext",
    "WorkflowCallbackContext": "WorkflowEndContext",
    "WorkflowTaskSubmitContext": "ChildSubmittedContext",
}

__all__ = [
    "ArrayProgressContext", "BaseCallback", "BenchmarkCallback", "ChildSubmittedContext",
    "CompletedContext", "JsonEventsCallback", "LoggerCallback", "NotifyCallback",
    "OpenTelemetryCallback", "PackagingBeginContext", "PackagingEndContext", "ProgressCallback",
    "RichLoggerCallback", "RunBeginContext", "RunEndContext", "StatusChangeContext",
    "SubmitBeginContext",
    "SubmitEndContext", "WorkflowBeginContext", "WorkflowEndContext", "flush",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load the module of a name when it is first used."""
    known = _OLD.get(name, name)
    if known not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[known]}"), known)
