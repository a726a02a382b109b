"""JsonEventsCallback: one line of JSON per event, in the shape that experiment trackers take."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from slurm.callbacks.base import BaseCallback

if TYPE_CHECKING:
    from slurm.callbacks import contexts


class JsonEventsCallback(BaseCallback):
    """Appends events to a file: `submitted`, `status`, `progress`, `completed`.

    Each line has `event`, `time`, `run`, `name`, `job_id`, and flat `params` (texts), `metrics`
    (numbers) and `tags` (texts): `mlflow.log_metrics(line["metrics"])` and
    `wandb.log(line["metrics"])` take them as they are.
    """

    travels = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))

    def _write(self, event: str, ctx: Any, **parts: dict[str, Any]) -> None:
        line = {
            "event": event,
            "time": ctx.time,
            "run": ctx.run,
            "name": ctx.name,
            "job_id": ctx.job_id,
        }
        for key, part in parts.items():
            line[key] = {name: value for name, value in part.items() if value is not None}
        data = json.dumps(line, default=str).encode() + b"\n"
        # One write to an append-only descriptor: two programs may share the file.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """Write `submitted`, with the options as parameters."""
        if ctx.error is None:
            params = {name: str(value) for name, value in ctx.options.items() if value is not None}
            metrics = {"count": ctx.count, "submit_seconds": ctx.duration}
            self._write("submitted", ctx, params=params, metrics=metrics)

    def on_status_change(self, ctx: contexts.StatusChangeContext) -> None:
        """Write `status`."""
        tags = {"state": ctx.state.value, "node": ctx.node, "reason": ctx.reason or None}
        self._write("status", ctx, tags=tags)

    def on_array_progress(self, ctx: contexts.ArrayProgressContext) -> None:
        """Write `progress` of a map."""
        names = ("total", "done", "succeeded", "failed", "running")
        self._write("progress", ctx, metrics={name: getattr(ctx, name) for name in names})

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """Write `completed`, with the times as metrics."""
        metrics = {
            "succeeded": int(ctx.succeeded),
            "queued_seconds": ctx.waited,
            "run_seconds": ctx.duration,
            "exit_code": ctx.exit_code,
        }
        tags = {"state": ctx.state.value, "node": ctx.node, "cached": str(ctx.cached)}
        self._write("completed", ctx, metrics=metrics, tags=tags)
