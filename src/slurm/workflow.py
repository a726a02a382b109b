"""@workflow: a function that runs as a job and submits the jobs of others from there."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from slurm import errors, rundir
from slurm.context import JobContext
from slurm.journal import Journal, current_journal, set_current
from slurm.task import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from slurm.cluster import Cluster
    from slurm.dependencies import Dependency
    from slurm.job import Job
    from slurm.model.options import TaskOptions
    from slurm.packaging.choose import PackagingGiven

P = ParamSpec("P")
T = TypeVar("T")


class Workflow(Task[P, T]):
    """A task that submits other tasks; calling it inside `with Cluster(...)` submits it as a job.

    The tasks and maps that its function calls become jobs of the same cluster, submitted from
    the job. Jobs that it returns, at any depth, need not be waited for: the workflow ends, and
    its own result is made of their values. It is requeued after preemption or the loss of its
    node, and then finds the children that it has submitted before.
    """

    is_workflow = True

    def __init__(
        self,
        function: Callable[P, T],
        options: dict[str, object] | None = None,
        packaging: PackagingGiven | None = None,
        conditions: tuple[Dependency, ...] = (),
        **more: Any,
    ) -> None:
        given = {"requeue": True, **(options or {})}
        super().__init__(function, given, packaging, conditions, **more)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the workflow's function here; what it calls still becomes jobs of the cluster.

        Jobs that it returns are waited for, so that this gives what `result()` would give.
        """
        from slurm.cluster import active_cluster

        cluster = active_cluster(self.name)
        return self.run_here(cluster, args, kwargs)

    def run_here(
        self, cluster: Cluster, args: tuple[Any, ...], kwargs: dict[str, Any], run: str = ""
    ) -> T:
        """Run the function in this process, with its children's runs below a run of its own."""
        from slurm.model.ids import make_run_name
        from slurm.returned import resolve
        from slurm.runner.run import settle

        name = run or cluster._place(
            make_run_name(self.name, time.localtime(), os.urandom(3).hex())
        )
        base = os.path.abspath(os.path.expanduser(cluster.directory))
        args, kwargs = self._with_context(base, name, list(args), kwargs)
        cluster._send_batch()  # what a workflow around this one has called belongs to that one
        before = set_current(Journal(base, name, on_disk=False))
        try:
            with cluster:
                return resolve(settle(self._function(*args, **kwargs)))  # type: ignore[no-any-return]
        finally:
            set_current(before)

    def _with_context(
        self, base: str, run: str, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        from slurm.packaging.function import context_parameter

        found = context_parameter(self._function)
        if found is None or found[0] in kwargs:
            return tuple(args), kwargs
        name, position = found
        variables = {**os.environ, "SLURM_SDK_NAME": run}
        context = WorkflowContext(variables, os.path.join(base, run))
        if position is not None and len(args) >= position:
            args.insert(position, context)
            return tuple(args), kwargs
        return tuple(args), {**kwargs, name: context}


class WorkflowContext(JobContext):
    """The workflow as seen from inside; a parameter annotated with this class receives it.

    ```python
    @workflow(time="1d")
    def pipeline(ctx: WorkflowContext) -> float:
        model = train(out=str(ctx.shared_dir / "model"))
        ...
    ```
    """

    @property
    def run_dir(self) -> Path:
        """The workflow's run directory; its children's lie below."""
        return Path(self._run)

    @property
    def workflow_job_dir(self) -> Path:
        """`run_dir` as slurm-sdk 0.4 calls it."""
        return self.run_dir

    @property
    def workflow_job_id(self) -> str:
        """`job_id` as slurm-sdk 0.4 calls it."""
        return self.job_id

    @property
    def tasks_dir(self) -> Path:
        """The directory that holds the runs of all children."""
        return self.run_dir / rundir.TASKS

    @property
    def shared_dir(self) -> Path:
        """A directory for the workflow and all its children, made on first use."""
        own = "" if self.array_index is None else str(self.array_index)
        folder = os.path.join(self._run, rundir.SHARED_FOLDER, own).rstrip(os.sep)
        rundir.make_private_folder(self._run)
        rundir.make_run_folder(folder)
        return Path(folder)

    def task_dir(self, name: str) -> Path:
        """The directory that holds the runs of the children with this name."""
        from slurm.model.ids import plain_name

        return Path(self._run) / rundir.TASKS / plain_name(name)

    def jobs(self, name: str | None = None) -> list[Job[Any]]:
        """The children so far, in the order of their calls; those of one task by its name."""
        from slurm.cluster import active_cluster
        from slurm.recall import items_of, recall_run

        cluster = active_cluster("WorkflowContext.jobs")
        cluster._send_batch()
        journal = current_journal()
        if journal is None:
            return []
        entries = journal.entries(name)
        if name is not None and not entries:
            names = {entry.task for entry in journal.entries()}
            close = errors.nearest(name, names)
            raise errors.UsageError(
                f"this workflow has submitted no task named {name!r}",
                hint=f"did you mean {close!r}?" if close else "call the task first",
            )
        found: list[tuple[int, Job[Any]]] = []
        for entry in entries:
            jobs = recall_run(cluster, journal, entry) or []
            found += [(journal.number(entry, n), job) for n, job in enumerate(items_of(jobs))]
        return [job for _, job in sorted(found, key=lambda one: one[0])]

    def results(self, name: str) -> list[Any]:
        """The values of all children with this name, in the order of submission; waits."""
        return [job.result() for job in self.jobs(name)]

    def result(self, name: str) -> Any:
        """The value of the newest child with this name; waits for it."""
        return self.jobs(name)[-1].result()

    @property
    def child_ids(self) -> list[str]:
        """The job ids of the children that were submitted so far."""
        return [job.id for job in self.jobs()]

    @property
    def parent_id(self) -> str | None:
        """The job id of the workflow that submitted this one, None for the outermost."""
        above, mark, _ = self._env.get("SLURM_SDK_NAME", "").rpartition(f"/{rundir.TASKS}/")
        if not mark:
            return None
        base = self._env.get("SLURM_SDK_BASE", "")
        try:
            return Path(base, above, rundir.id_name(0)).read_text().strip() or None
        except OSError:
            return None

    def __repr__(self) -> str:
        return f"<WorkflowContext job {self.job_id}: {self._run}>"


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, T]], /) -> Workflow[P, T]: ...
@overload
def workflow(function: Callable[P, T], /) -> Workflow[P, T]: ...
@overload
def workflow(
    function: Callable[P, T],
    /,
    *,
    packaging: PackagingGiven | None = None,
    **options: Unpack[TaskOptions],
) -> Workflow[P, T]: ...
@overload
def workflow(
    *, packaging: PackagingGiven | None = None, **options: Unpack[TaskOptions]
) -> Callable[[Callable[P, T]], Workflow[P, T]]: ...
def workflow(
    function: Any = None, /, *, packaging: PackagingGiven | None = None, **options: Any
) -> Any:
    """Make a workflow of a function: `@workflow`, `@workflow(time="1d")` or `workflow(f)`.

    It takes what `@task` takes; `requeue=True` is its default.
    """
    if function is None:
        return functools.partial(workflow, packaging=packaging, **options)
    if isinstance(function, Workflow):
        return function.with_options(packaging=packaging, **options)
    if isinstance(function, Task) or not callable(function):
        raise errors.UsageError(
            f"workflow() takes a function, not {function!r}",
            hint="write @workflow above a function, or workflow(function, time='1d')",
        )
    if packaging is not None:
        from slurm.packaging.choose import check_packaging

        check_packaging(packaging)
    return Workflow(function, options, packaging)
