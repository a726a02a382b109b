"""What a callback is told: one frozen dataclass for each hook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.context import JobContext
    from slurm.job import Job
    from slurm.model.states import JobState
    from slurm.rendering import Environment


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all contexts have: which hook it belongs to, where that runs, and when it happened."""

    #: The method that receives it.
    hook: ClassVar[str] = ""
    #: `client`: the process that submits, which for children is the workflow's. `job`: inside it.
    where: ClassVar[str] = "client"
    #: Seconds since the epoch.
    time: float

    def __getattr__(self, name: str) -> Any:
        """The field of slurm-sdk 0.4 with this name, where there was one."""
        if name.startswith("_"):  # what pickle and copy look for
            raise AttributeError(name)
        from slurm.callbacks.older import field_of

        return field_of(self, name)


# ---- in the client ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PackagingBeginContext(Context):
    """The code of a call is about to be made ready for the cluster."""

    hook = "on_packaging_begin"
    name: str
    packaging: str
    cluster: Cluster


@dataclass(frozen=True, kw_only=True)
class PackagingEndContext(PackagingBeginContext):
    """The code is ready; `error` says why not."""

    hook = "on_packaging_end"
    duration: float
    environment: Environment | None = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class SubmitBeginContext(Context):
    """A run is about to be submitted: one call, or all items of a map."""

    hook = "on_submit_begin"
    name: str
    run: str
    options: Mapping[str, object]
    #: How many calls it holds; of a packed map how many items.
    count: int
    is_array: bool
    is_packed: bool
    is_workflow: bool
    cluster: Cluster


@dataclass(frozen=True, kw_only=True)
class SubmitEndContext(SubmitBeginContext):
    """The scheduler has accepted the run, or `error` says why not."""

    hook = "on_submit_end"
    duration: float
    jobs: tuple[Job[Any], ...] = ()
    error: BaseException | None = None

    @property
    def job(self) -> Job[Any] | None:
        """The first job; None where none was accepted."""
        return self.jobs[0] if self.jobs else None

    @property
    def job_id(self) -> str:
        """The scheduler's id: of an array that of the whole; "" where there is none."""
        if not self.jobs:
            return ""
        return self.jobs[0].id.partition("_")[0] if self.is_array else self.jobs[0].id


@dataclass(frozen=True, kw_only=True)
class StatusChangeContext(Context):
    """A job is in another state than before; an array's elements are told of one by one."""

    hook = "on_status_change"
    job: Job[Any]
    job_id: str
    name: str
    run: str
    state: JobState
    previous_state: JobState
    reason: str
    node: str | None

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over."""
        return self.job.settled

    @property
    def status(self) -> dict[str, Any]:
        """The same with Slurm's names as keys."""
        return {
            "JobId": self.job_id,
            "JobName": self.name,
            "JobState": self.state.value,
            "Reason": self.reason,
            "NodeList": self.node or "",
        }


@dataclass(frozen=True, kw_only=True)
class CompletedContext(Context):
    """A job is over, well or badly: each element of an array, each job of a packed map."""

    hook = "on_completed"
    job: Job[Any]
    job_id: str
    name: str
    run: str
    state: JobState
    succeeded: bool
    reason: str
    node: str | None
    exit_code: int | None
    #: Seconds since the epoch; None where nobody saw it.
    submitted: float | None
    started: float | None
    ended: float | None
    #: Whether the value was there already, so that nothing ran.
    cached: bool = False

    @property
    def waited(self) -> float | None:
        """Seconds in the queue."""
        return _between(self.submitted, self.started)

    @property
    def duration(self) -> float | None:
        """Seconds from begin to end."""
        return _between(self.started, self.ended)

    @property
    def error(self) -> BaseException | None:
        """What `job.result()` raises, None where it returns a value; read when it is asked for."""
        return self.job.outcome()[1]

    @property
    def is_child(self) -> bool:
        """Whether a workflow has submitted it."""
        return os.sep + "tasks" + os.sep in self.run


@dataclass(frozen=True, kw_only=True)
class ArrayProgressContext(Context):
    """How far a map is; told after changes, as often as the callback can keep up with."""

    hook = "on_array_progress"
    run: str
    name: str
    job_id: str
    total: int
    done: int
    succeeded: int
    failed: int
    #: Jobs that run now; in a packed map each works on many items.
    running: int

    @property
    def fraction(self) -> float:
        """The part that is over, from 0 to 1."""
        return self.done / self.total if self.total else 1.0


@dataclass(frozen=True, kw_only=True)
class ChildSubmittedContext(Context):
    """A workflow has submitted a run; told in the workflow's own process."""

    hook = "on_child_submitted"
    where = "job"
    workflow_run: str
    workflow_job_id: str
    name: str
    run: str
    job_id: str
    jobs: tuple[Job[Any], ...]
    cluster: Cluster


# ---- in the job ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunBeginContext(Context):
    """The function is about to be called, with its arguments loaded; told in every rank."""

    hook = "on_run_begin"
    where = "job"
    #: `module:function`.
    target: str
    name: str
    run_dir: str
    job_id: str
    #: The position of the call in its map, 0 for a single one.
    index: int
    rank: int
    attempt: int
    hostname: str
    python: str
    is_workflow: bool
    job_context: JobContext = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class RunEndContext(RunBeginContext):
    """The function has returned or raised."""

    hook = "on_run_end"
    duration: float
    exception: BaseException | None = None
    traceback: str = field(default="", repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether the function returned."""
        return self.exception is None

    @property
    def status(self) -> str:
        """`success` or `error`."""
        return "success" if self.succeeded else "error"


@dataclass(frozen=True, kw_only=True)
class WorkflowBeginContext(Context):
    """A workflow's function is about to be called, inside its job."""

    hook = "on_workflow_begin"
    where = "job"
    name: str
    run_dir: str
    job_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class WorkflowEndContext(WorkflowBeginContext):
    """A workflow's function has returned or raised; jobs that it returned may still run."""

    hook = "on_workflow_end"
    duration: float
    exception: BaseException | None = None


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)


#: Every context, in the order in which a run meets them.
ALL: tuple[type[Context], ...] = (
    PackagingBeginContext,
    PackagingEndContext,
    SubmitBeginContext,
    SubmitEndContext,
    StatusChangeContext,
    ArrayProgressContext,
    CompletedContext,
    RunBeginContext,
    RunEndContext,
    WorkflowBeginContext,
    WorkflowEndContext,
    ChildSubmittedContext,
)
