"""Submission: one call of a task becomes a plan, and the plan a job."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from slurm import errors, rundir
from slurm.api.slurm_commands import honoured_variables
from slurm.job import Job
from slurm.model.ids import make_run_name
from slurm.model.options import merge, normalize
from slurm.packaging import check_packaging, prepare
from slurm.packaging.arguments import ShippedArguments, ship_arguments
from slurm.packaging.function import ShippedFunction, context_parameter, ship_function
from slurm.packaging.sdk import sdk_files, sdk_hash
from slurm.rendering import Environment, Submission, render_job_script
from slurm.task import Task

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.model.options import TaskOptions

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What a call would submit; `str()` of it is for people."""

    name: str
    script: str
    environment: Environment
    by: str
    why: str
    options: dict[str, object]
    upstream: tuple[Any, ...]
    function: ShippedFunction
    arguments: ShippedArguments
    submission: Submission

    def __str__(self) -> str:
        lines = [
            f"{self.name}: one job, one call of sbatch",
            f"  function   by {self.by}: {self.why}",
            f"  python     {self.environment.python}",
            f"  packaging  {self.environment.kind}: {self.environment.why}",
            f"  run        {self.submission.run}",
        ]
        acting = honoured_variables(os.environ, options_set(self.script))
        lines += [f"  honoured   {name}={value}" for name, value in sorted(acting.items())]
        return "\n".join(lines) + "\n\n" + self.script


class Submitter(Generic[P, T]):
    """Submits calls of one task with fixed options; options and arguments cannot collide."""

    def __init__(
        self,
        cluster: Cluster,
        task: Task[P, T] | Callable[P, T],
        after: Job[Any] | Sequence[Job[Any]],
        packaging: str | None,
        options: TaskOptions,
    ) -> None:
        self._cluster = cluster
        self._task: Task[P, T] = task if isinstance(task, Task) else Task(task)
        self._after = (after,) if isinstance(after, Job) else tuple(after)
        own = normalize(options, where=f"cluster.submit({self._task.name})")
        self._options = merge(cluster.defaults, self._task.options, own)
        self._packaging = packaging or self._task.packaging or cluster.packaging
        check_packaging(self._packaging)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """Submit one call."""
        if self._cluster.backend_type == "debug":
            from slurm.debug import DebugJob

            return DebugJob(self._cluster, self._task, self._options, args, kwargs)
        return self._submit(self.plan(*args, **kwargs))

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """Everything about a call that can be decided before it is submitted."""
        cluster, function = self._cluster, self._task.unwrapped
        environment = prepare(self._packaging, function, self._options)
        shipped = ship_function(function, environment.path)
        arguments = ship_arguments(function, args, kwargs, context_parameter(function))
        upstream = (*self._after, *arguments.upstream)
        name = str(self._options.get("job_name") or self._task.name)
        run = make_run_name(name, time.localtime(), secrets.token_hex(3))
        base = cluster.base
        submission = Submission(
            run=f"{base}/{run}",
            base=base,
            name=name,
            sdk=f"{base}/{rundir.BASE_SDK}/{sdk_hash()}",
            workdir=_workdir(self._options),
            environment=environment,
            options=_absolute_logs(self._options),
            dependency=dependency_of(cluster, upstream),
        )
        return Plan(
            name=name,
            script=render_job_script(submission),
            environment=environment,
            by=shipped.by,
            why=shipped.why,
            options=dict(submission.options),
            upstream=upstream,
            function=shipped,
            arguments=arguments,
            submission=submission,
        )

    def _submit(self, plan: Plan) -> Job[T]:
        cluster, submission = self._cluster, plan.submission
        submitted = time.time()
        files = {
            rundir.SCRIPT: plan.script.encode(),
            rundir.FUNCTION: plan.function.data,
            rundir.ARGUMENTS: rundir.encode_arguments([plan.arguments.data]),
            rundir.METADATA: _json(_metadata(plan, submitted)),
            rundir.ENVIRONMENT: _json(asdict(plan.environment)),
        }
        self._put_sdk()
        cluster.watcher.start()
        job_id = cluster.backend.submit_job(
            submission.relative,
            files,
            env=_secret_values(plan.options),
            cwd=submission.workdir,
            options_set=options_set(plan.script),
        )
        job: Job[T] = Job(
            cluster,
            run=submission.relative,
            job_id=job_id,
            name=plan.name,
            options=plan.options,
            submitted=submitted,
            ranks=2 if submission.ranks else 1,
            dependency=submission.dependency is not None,
        )
        job.watch()
        return job

    def _put_sdk(self) -> None:
        if not self._cluster.sdk_is_there:
            self._cluster.backend.put_sdk(sdk_hash(), sdk_files())
            self._cluster.sdk_is_there = True


def dependency_of(cluster: Cluster, upstream: Sequence[Job[Any]]) -> str | None:
    """The dependency on other jobs; those that already succeeded are left out."""
    ids: dict[str, None] = {}
    for job in upstream:
        if job.cluster.backend.target != cluster.backend.target:
            raise errors.UsageError(
                f"{job!r} is a job of another cluster, so nothing here can wait for it",
                hint="pass its result: job.result()",
            )
        if not job.done():
            ids[job.key.bare] = None
        elif job.state.value != "COMPLETED":
            raise errors.UpstreamFailed(
                f"{job!r} did not succeed, so a job that depends on it can never run",
                hint="job.exception() says why",
                job_id=job.id,
            )
    return "afterok:" + ":".join(ids) if ids else None


def _workdir(options: dict[str, object]) -> str:
    """The function's working directory: as asked for, else the client's own."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = os.path.expanduser("~")
    given = options.get("workdir")
    return os.path.normpath(os.path.join(here, os.path.expanduser(str(given)))) if given else here


def _absolute_logs(options: dict[str, object]) -> dict[str, object]:
    """Log paths relative to the client's directory, as sbatch would take them."""
    changed = dict(options)
    for name in ("output", "error"):
        if name in changed:
            changed[name] = os.path.abspath(os.path.expanduser(str(changed[name])))
    if "output" in changed and "error" not in changed:
        changed["error"] = changed["output"]
    return changed


def _secret_values(options: dict[str, object]) -> dict[str, str]:
    names = options.get("secrets") or ()
    assert isinstance(names, Sequence)
    missing = [str(name) for name in names if name not in os.environ]
    if missing:
        raise errors.OptionError(
            f"secrets names {', '.join(missing)}, which this process's environment has not",
            hint=f"export {missing[0]}=... before you start Python",
        )
    return {str(name): os.environ[str(name)] for name in names}


def options_set(script: str) -> list[str]:
    """The sbatch options that the script sets, for which SBATCH_* variables must not speak."""
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH --")]
    return [line[len("#SBATCH --") :].partition("=")[0] for line in lines]


def _metadata(plan: Plan, submitted: float) -> dict[str, Any]:
    from slurm import __version__

    return {
        "format": 1,
        "task": plan.name,
        "target": plan.function.target,
        "by": plan.by,
        "options": {k: v for k, v in plan.options.items() if k != "env"},
        "ranks": 2 if plan.submission.ranks else 1,
        "dependency": plan.submission.dependency,
        "submitted": submitted,
        "python": sys.version.split()[0],
        "slurm_sdk": __version__,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, default=str).encode()
