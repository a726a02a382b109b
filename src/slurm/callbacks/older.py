"""The fields that contexts had in slurm-sdk 0.4, each read from what the context has now."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Read = Callable[[Any], Any]


def _run_dir(ctx: Any) -> str:
    return f"{ctx.cluster.base}/{ctx.run}"


def _log(stream: str) -> Read:
    def read(ctx: Any) -> str:
        path: str = ctx.job.path
        return os.path.join(path, ctx.job.log_name(stream))

    return read


def _error(part: Callable[[BaseException], str]) -> Read:
    def read(ctx: Any) -> str | None:
        error = ctx.exception if hasattr(ctx, "exception") else ctx.error
        return None if error is None else part(error)

    return read


def _type_name(error: BaseException) -> str:
    return type(error).__name__


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


_TIMESTAMP: dict[str, Read] = {"timestamp": lambda ctx: ctx.time}
_PACKAGING: dict[str, Read] = {
    **_TIMESTAMP,
    "packaging_config": lambda ctx: {"type": ctx.packaging},
}
_SUBMIT: dict[str, Read] = {
    **_TIMESTAMP,
    "sbatch_options": lambda ctx: dict(ctx.options),
    "pre_submission_id": lambda ctx: os.path.basename(ctx.run),
    "target_job_dir": _run_dir,
    "backend_type": lambda ctx: ctx.cluster.backend_type,
}
_RUN: dict[str, Read] = {
    "module": lambda ctx: ctx.target.partition(":")[0],
    "function": lambda ctx: ctx.target.partition(":")[2],
    "job_dir": lambda ctx: ctx.run_dir,
    "python_version": lambda ctx: ctx.python,
    "start_time": lambda ctx: ctx.time,
}
_ERROR: dict[str, Read] = {
    "error_type": _error(_type_name),
    "error_message": _error(str),
}
_WORKFLOW: dict[str, Read] = {
    **_TIMESTAMP,
    "workflow_job_id": lambda ctx: ctx.job_id,
    "workflow_job_dir": lambda ctx: Path(ctx.run_dir),
    "workflow_name": lambda ctx: ctx.name,
}

#: By the name of the context: what each old field reads.
FIELDS: dict[str, dict[str, Read]] = {
    "PackagingBeginContext": _PACKAGING,
    "PackagingEndContext": {**_PACKAGING, "packaging_result": lambda ctx: ctx.environment},
    "SubmitBeginContext": _SUBMIT,
    "SubmitEndContext": _SUBMIT,
    "StatusChangeContext": _TIMESTAMP,
    "CompletedContext": {
        "job_dir": lambda ctx: ctx.job.path,
        "job_state": lambda ctx: ctx.state.value,
        "status": lambda ctx: ctx.job.get_status(),
        "stdout_path": _log("out"),
        "stderr_path": _log("err"),
        "start_time": lambda ctx: ctx.started,
        "end_time": lambda ctx: ctx.ended,
        "emitted_by": lambda ctx: ctx.where,
        **_ERROR,
        "traceback": _error(_traceback),
    },
    "RunBeginContext": {
        **_RUN,
        "python_executable": lambda ctx: sys.executable,
        "working_directory": lambda ctx: os.getcwd(),
        "environment_snapshot": lambda ctx: dict(os.environ),
    },
    "RunEndContext": {
        **_RUN,
        **_ERROR,
        "start_time": lambda ctx: ctx.time - ctx.duration,
        "end_time": lambda ctx: ctx.time,
    },
    "WorkflowBeginContext": _WORKFLOW,
    "WorkflowEndContext": _WORKFLOW,
    "ChildSubmittedContext": {
        **_TIMESTAMP,
        "parent_workflow_id": lambda ctx: ctx.workflow_job_id,
        "parent_workflow_dir": lambda ctx: Path(ctx.cluster.base) / ctx.workflow_run,
        "child_job_id": lambda ctx: ctx.job_id,
        "child_job_dir": lambda ctx: Path(_run_dir(ctx)),
        "child_task_name": lambda ctx: ctx.name,
        "child_is_workflow": lambda ctx: any(job.is_workflow for job in ctx.jobs),
    },
}


def field_of(ctx: Any, name: str) -> Any:
    """What slurm-sdk 0.4 called `name`; AttributeError for any other name."""
    kind = type(ctx).__name__
    read = FIELDS.get(kind, {}).get(name)
    if read is None:
        raise AttributeError(f"{kind} has no field {name!r}")
    return read(ctx)
