"""Python functions as Slurm jobs.

```python
from slurm import Cluster, task

@task(time="10min", mem="1GiB")
def add(a: int, b: int) -> int:
    return a + b

with Cluster():
    print(add(2, 3).result())
```
"""

from __future__ import annotations

import sys

# Not typing's, nor importlib: every job imports this file, and each takes longer than all of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from slurm.allocation import Allocation
    from slurm.array import ArrayJob, Progress
    from slurm.callbacks import (
        BaseCallback,
        BenchmarkCallback,
        LoggerCallback,
        NotifyCallback,
        ProgressCallback,
        RichLoggerCallback,
    )
    from slurm.cluster import Cluster, CommandResult
    from slurm.context import JobContext
    from slurm.errors import (
        AmbiguousRun,
        AuthenticationFailed,
        BuildFailed,
        CommandRefused,
        ConfigError,
        ConnectError,
        ConnectionLost,
        ContainerFailed,
        EnvironmentFailed,
        FunctionExited,
        HostKeyChanged,
        HostKeyUnknown,
        HostNotFound,
        HostUnreachable,
        ImageUnusable,
        JobCancelled,
        JobError,
        JobFailed,
        JobLost,
        JobOutOfMemory,
        JobPreempted,
        LoginNeeded,
        NoActiveCluster,
        NodeFailed,
        NoScheduler,
        NoSharedFiles,
        NotDelivered,
        OptionError,
        PackagingError,
        ProgramEnding,
        ProtocolError,
        PythonMismatch,
        RemoteError,
        RemotePythonMissing,
        RemoteTraceback,
        RestError,
        RestRefused,
        RestTokenRefused,
        RestUnreachable,
        RestVersionNotServed,
        ResultError,
        ResultLost,
        ResultNotWritten,
        ResultUnreadable,
        RunDirError,
        RunDirNotVisible,
        RunNotFound,
        SchedulerUnreachable,
        SlurmError,
        SubmitError,
        SubmitLimit,
        SubmitRefused,
        SubmittedOnImport,
        TimeLimitReached,
        TransferFailed,
        UnpicklableArgument,
        UnpicklableFunction,
        UnpicklableResult,
        UntrustedRun,
        UpstreamFailed,
        UsageError,
        WorkerDied,
        WrongArguments,
    )
    from slurm.executor import Executor
    from slurm.files import File
    from slurm.job import Job
    from slurm.jobview import JobSnapshot, Timings
    from slurm.model.again import Retry
    from slurm.model.options import TaskOptions
    from slurm.model.states import JobState
    from slurm.packed import PackedArray
    from slurm.retry import Attempt
    from slurm.task import Task, task
    from slurm.workflow import Workflow, WorkflowContext, workflow

__version__ = "1.0.0"

_HOME = {
    "Allocation": "slurm.allocation",
    "ArrayJob": "slurm.array",
    "Attempt": "slurm.retry",
    "Cluster": "slurm.cluster",
    "CommandResult": "slurm.cluster",
    "Executor": "slurm.executor",
    "File": "slurm.files",
    "Job": "slurm.job",
    "JobContext": "slurm.context",
    "JobSnapshot": "slurm.jobview",
    "JobState": "slurm.model.states",
    "PackedArray": "slurm.packed",
    "Progress": "slurm.array",
    "Retry": "slurm.model.again",
    "Task": "slurm.task",
    "TaskOptions": "slurm.model.options",
    "Timings": "slurm.jobview",
    "Workflow": "slurm.workflow",
    "WorkflowContext": "slurm.workflow",
    "task": "slurm.task",
    "workflow": "slurm.workflow",
}
_ERRORS = (
    "AmbiguousRun", "AuthenticationFailed", "BuildFailed", "CommandRefused", "ConfigError",
    "ConnectError", "ConnectionLost", "ContainerFailed", "EnvironmentFailed", "FunctionExited",
    "HostKeyChanged", "HostKeyUnknown", "HostNotFound", "HostUnreachable", "ImageUnusable",
    "NotDelivered",
    "JobCancelled", "JobError", "JobFailed", "JobLost", "JobOutOfMemory", "JobPreempted",
    "LoginNeeded", "NoActiveCluster", "NoScheduler", "NoSharedFiles", "NodeFailed", "OptionError",
    "PackagingError", "ProgramEnding", "ProtocolError", "PythonMismatch", "RemoteError",
    "RemotePythonMissing", "RemoteTraceback",
    "RestError", "RestRefused", "RestTokenRefused", "RestUnreachable", "RestVersionNotServed",
    "ResultError", "ResultLost", "ResultNotWritten", "ResultUnreadable", "RunDirError",
    "RunDirNotVisible", "RunNotFound", "SchedulerUnreachable", "SlurmError", "SubmitError",
    "SubmitLimit", "SubmitRefused", "SubmittedOnImport", "TimeLimitReached", "TransferFailed",
    "UnpicklableArgument", "UnpicklableFunction", "UnpicklableResult", "UntrustedRun",
    "UpstreamFailed", "UsageError", "WorkerDied", "WrongArguments",
)  # fmt: skip
_CALLBACKS = (
    "BaseCallback", "BenchmarkCallback", "LoggerCallback", "NotifyCallback", "ProgressCallback",
    "RichLoggerCallback",
)  # fmt: skip
_HOME.update(dict.fromkeys(_CALLBACKS, "slurm.callbacks"))
_HOME.update(dict.fromkeys(_ERRORS, "slurm.errors"))

__all__ = [
    "Allocation", "AmbiguousRun", "ArrayJob", "Attempt", "AuthenticationFailed", "BaseCallback",
    "BenchmarkCallback", "BuildFailed", "Cluster", "CommandRefused", "CommandResult", "ConfigError",
    "ConnectError", "ConnectionLost", "ContainerFailed", "EnvironmentFailed", "Executor", "File",
    "FunctionExited", "HostKeyChanged", "HostKeyUnknown", "HostNotFound", "HostUnreachable",
    "ImageUnusable", "Job", "JobCancelled", "JobContext", "JobError", "JobFailed", "JobLost",
    "JobOutOfMemory", "JobPreempted", "JobSnapshot", "JobState", "LoggerCallback", "LoginNeeded",
    "NoActiveCluster", "NoScheduler", "NoSharedFiles", "NodeFailed", "NotDelivered",
    "NotifyCallback", "OptionError", "PackagingError", "PackedArray", "ProgramEnding",
    "Progress", "ProgressCallback", "ProtocolError",
    "PythonMismatch", "RemoteError", "RemotePythonMissing", "RemoteTraceback", "RestError",
    "RestRefused", "RestTokenRefused", "RestUnreachable", "RestVersionNotServed", "ResultError",
    "ResultLost", "ResultNotWritten", "ResultUnreadable", "Retry", "RichLoggerCallback",
    "RunDirError", "RunDirNotVisible", "RunNotFound", "SchedulerUnreachable", "SlurmError",
    "SubmitError", "SubmitLimit", "SubmitRefused", "SubmittedOnImport", "Task", "TaskOptions",
    "TimeLimitReached", "Timings", "TransferFailed", "UnpicklableArgument", "UnpicklableFunction",
    "UnpicklableResult",
    "UntrustedRun", "UpstreamFailed", "UsageError", "WorkerDied", "Workflow", "WorkflowContext",
    "WrongArguments", "task", "workflow",
]  # fmt: skip


if not TYPE_CHECKING:
    ModuleType = type(sys)


def _public(name: str) -> property:
    def get(module: ModuleType) -> Any:
        __import__(_HOME[name])
        return getattr(sys.modules[_HOME[name]], name)

    def keep(module: ModuleType, value: Any) -> None:
        """Importing `slurm.task` sets the attribute `task` to the module: the name stays ours."""

    return property(get, keep)


class _Package(ModuleType):
    """Public names are properties of the package's class: loaded on first use, never rebound."""

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *__all__]


for _name in _HOME:
    setattr(_Package, _name, _public(_name))
sys.modules[__name__].__class__ = _Package
