"""OpenTelemetryCallback: a span for each job, with its time in the queue and its run below."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slurm.callbacks.base import BaseCallback
from slurm.extras import needs_extra

if TYPE_CHECKING:
    from slurm.callbacks import contexts


class OpenTelemetryCallback(BaseCallback):
    """Makes spans with the tracer provider that your program has set up.

    A run is one span from its submission to its last end; below it each job, and below that
    `queued` and `run`. Needs the extra `otel`, and an exporter of your choice.
    """

    travels = False

    def __init__(self, tracer_provider: Any = None) -> None:
        with needs_extra("otel", "OpenTelemetryCallback"):
            trace: Any = importlib.import_module("opentelemetry.trace")
        self._trace = trace
        self._tracer = trace.get_tracer("slurm", tracer_provider=tracer_provider)
        self._runs: dict[str, tuple[Any, list[int]]] = {}

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """Begin the span of a run; one that was refused ends at once."""
        attributes = {"slurm.run": ctx.run, "slurm.task": ctx.name, "slurm.count": ctx.count}
        start = _nanoseconds(ctx.time - ctx.duration)
        span = self._tracer.start_span(ctx.name, attributes=attributes, start_time=start)
        span.set_attribute("slurm.job_id", ctx.job_id)
        if ctx.jobs:
            self._runs[ctx.run] = (span, [len(ctx.jobs), 0])
        else:
            self._end(span, ctx.time, str(ctx.error))

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """Make the spans of a job, and end that of its run with the last one."""
        span, left = self._runs.get(ctx.run, (None, [0, 0]))
        if span is None or ctx.cached:
            return
        self._job(ctx, self._trace.set_span_in_context(span))
        left[0] -= 1
        left[1] += not ctx.succeeded
        if not left[0]:
            del self._runs[ctx.run]
            self._end(span, ctx.ended or ctx.time, f"{left[1]} failed" if left[1] else "")

    def _job(self, ctx: contexts.CompletedContext, above: Any) -> None:
        submitted, ended = ctx.submitted or ctx.time, ctx.ended or ctx.time
        attributes = {
            "slurm.job_id": ctx.job_id,
            "slurm.state": ctx.state.value,
            "slurm.node": ctx.node or "",
        }
        job = self._span(f"job {ctx.job_id}", above, submitted, attributes)
        inside = self._trace.set_span_in_context(job)
        begun = ctx.started if ctx.started is not None else ended
        self._span("queued", inside, submitted).end(_nanoseconds(begun))
        if ctx.started is not None:
            self._span("run", inside, begun).end(_nanoseconds(ended))
        self._end(job, ended, "" if ctx.succeeded else ctx.state.value)

    def _span(
        self, name: str, above: Any, start: float, attributes: dict[str, Any] | None = None
    ) -> Any:
        return self._tracer.start_span(
            name, context=above, attributes=attributes, start_time=_nanoseconds(start)
        )

    def _end(self, span: Any, at: float, trouble: str) -> None:
        if trouble:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, trouble))
        span.end(_nanoseconds(at))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
