"""Submission: one call of a task becomes a plan, and the plan a job."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from slurm import errors, rundir
from slurm.api.slurm_commands import honoured_variables
from slurm.array import ArrayJob
from slurm.cache import keys_file, submit_cached
from slurm.callbacks.following import follow, preparing, submitting, tell_child
from slurm.callbacks.travel import callbacks_file
from slurm.dependencies import Dependency, may_return, returning
from slurm.dependencies import render as render_dependency
from slurm.followups import render_guard_script, render_next_script
from slurm.inheritance import SECTION, describe
from slurm.job import Job
from slurm.journal import metadata_of
from slurm.model.ids import make_run_name
from slurm.model.options import merge, normalize
from slurm.model.packs import check_one_process, item_retry, plan_packs
from slurm.model.parts import Cut, Part
from slurm.packaging import (
    PackagingGiven,
    Prepared,
    Request,
    check_packaging,
    choose,
    prepare,
    sending,
)
from slurm.packaging.arguments import Call, ShippedArguments, call_of, ship_arguments
from slurm.packaging.function import ShippedFunction, context_parameter, ship_function
from slurm.packaging.remote import remote_of
from slurm.packaging.sdk import sdk_files, sdk_hash
from slurm.packed_run import PackedRun, PackJob, make_packs
from slurm.recall import once
from slurm.rendering import Environment, Submission, render_job_script
from slurm.retry import Again, policy_of, with_requeue
from slurm.task import Task

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.model.options import TaskOptions

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Plan:
    """What a call or a map would submit; `str()` of it is for people."""

    name: str
    submission: Submission
    function: ShippedFunction
    arguments: ShippedArguments
    cut: Cut | None
    upstream: tuple[Dependency, ...]
    #: What packaging decided.
    prepared: Prepared
    #: Under which keys the values of the calls are cached.
    keys: tuple[str | None, ...] = ()

    @property
    def environment(self) -> Environment:
        """How Python starts on the node."""
        return self.submission.environment

    @property
    def options(self) -> dict[str, object]:
        """The merged options."""
        return dict(self.submission.options)

    @property
    def by(self) -> str:
        """How the function travels: by reference or by value."""
        return self.function.by

    @property
    def script(self) -> str:
        """The sbatch script, of a long map that of its first part."""
        return self.scripts[0]

    @functools.cached_property
    def scripts(self) -> tuple[str, ...]:
        """The sbatch script of each part."""
        if self.cut is None:
            return (render_job_script(self.submission),)
        return tuple(render_job_script(self._of_part(part)) for part in self.cut.parts)

    def _of_part(self, part: Part) -> Submission:
        whole = self.submission
        dependency = whole.dependency
        if part.number and whole.throttle and self.cut is not None:
            # The throttle is one per array: it holds over all when one follows the other.
            after = f"afterany:{rundir.PREVIOUS}"
            dependency = f"{dependency},{after}" if dependency else after
        return replace(whole, array=part, dependency=dependency)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self._shape()}",
            f"  function   by {self.by}: {self.function.why}",
            f"  python     {self.environment.python}",
            f"  packaging  {self.environment.kind}: {self.environment.why}",
            f"  run        {self.submission.run}",
        ]
        if self.submission.dependency:
            lines.append(f"  waits for  {self.submission.dependency}")
        if policy_of(self.submission) is not None:
            retry = self.options["retry"]
            lines.append(f"  retry      {retry}; a small job guards each one that is submitted")
        acting = honoured_variables(os.environ, options_set(self.script))
        lines += [f"  honoured   {name}={value}" for name, value in sorted(acting.items())]
        return "\n".join(lines) + "\n\n" + self.script

    def _shape(self) -> str:
        if self.cut is None:
            return "one job, one call of sbatch"
        parts, pack = self.cut.parts, self.submission.pack
        items = sum(part.size for part in parts)
        packed = f"{pack}: " if pack is not None else ""
        if len(parts) == 1:
            return f"{packed}one array of {items}, one call of sbatch"
        now = min(self.cut.at_once, len(parts))
        what = "items" if pack is None else "jobs"
        return (
            f"{packed}{items} {what} in {len(parts)} arrays of at most {parts[0].size} "
            f"({self.cut.why}), "
            f"{now} at once, {len(parts)} calls of sbatch"
        )


class Code(NamedTuple):
    """The function of calls as it travels, and how Python starts for it."""

    prepared: Prepared
    function: ShippedFunction


class Submitter(Generic[P, T]):
    """Submits calls of one task with fixed options; options and arguments cannot collide."""

    def __init__(
        self,
        cluster: Cluster,
        task: Task[P, T] | Callable[P, T],
        after: Job[Any] | ArrayJob[Any] | Sequence[Job[Any] | ArrayJob[Any]],
        packaging: PackagingGiven | None,
        options: TaskOptions,
    ) -> None:
        self.cluster = cluster
        self.task: Task[P, T] = task if isinstance(task, Task) else Task(task)
        waited = (after,) if isinstance(after, (Job, ArrayJob)) else tuple(after)
        own = (Dependency("afterok", waited),) if waited else ()
        self.after: tuple[Dependency, ...] = (*self.task.conditions, *own)
        given = normalize(options, where=f"cluster.submit({self.task.name})")
        self.options = with_requeue(merge(cluster.defaults, self.task.options, given))
        #: Whether plans are only looked at.
        self.dry = False
        self.packaging = choose(
            None if packaging is None else check_packaging(packaging, "cluster.submit"),
            self.task.packaging,
            cluster.packaging,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """Submit one call."""
        if self.cluster.backend_type == "debug":
            from slurm.debug import debug_jobs

            return debug_jobs(self, [Call(args, kwargs)], {})[0]
        batch = self.cluster.collecting
        if batch is not None:
            return batch.add(self, Call(args, kwargs))
        if self.options.get("cache"):
            return self.send_cached([Call(args, kwargs)], None, {}, array=False)[0]
        return self.send(self.plan(*args, **kwargs))[0]

    def send_calls(
        self, calls: Sequence[Call], jobs: Sequence[Job[T]], same: bool, code: Code
    ) -> None:
        """Submit calls that were kept for later; `same`: all wait for the same jobs.

        Where they do not, the array begins when all they wait for are over, and each of its
        elements looks for itself whether its own have succeeded.
        """
        array = len(calls) > 1
        throttle = self.options.get("array_throttle") if array else None
        loose = array and not same
        names = [job.call_name for job in jobs if job.call_name is not None]
        if self.options.get("cache"):
            found = self.send_cached(calls, throttle, {}, array, loose, names, code, watch=False)
        else:
            shipped = self.ship(calls, {}, array, code)
            found = self.send(self.plan_shipped(shipped, throttle, array, loose), False, names)
        journal = self.cluster.journal
        for job, sent in zip(jobs, found, strict=True):
            job.take_place(sent)
            if journal is not None:
                journal.keep_one(job)
        follow(self.cluster, jobs)
        for job in jobs:
            job.watch()

    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrent: int | None = None,
        common: Mapping[str, Any] | None = None,
        unpack: bool = True,
        pack: int | str | None = None,
    ) -> ArrayJob[T]:
        """Submit one call per item, as an array; with `pack` many items share one job."""
        if self.cluster.backend_type == "debug":
            from slurm.debug import debug_map

            return debug_map(self, [call_of(item, unpack) for item in items], common or {})
        if self.options.get("cache"):
            from slurm.cachedmap import cached_map

            called = [call_of(item, unpack) for item in items]
            return cached_map(self, called, self._throttle(max_concurrent), common or {}, pack)
        calls = (call_of(item, unpack) for item in items)
        limit = self._throttle(max_concurrent)
        shipped = self.ship(calls, common or {}, array=True)

        def submit(names: Sequence[str]) -> list[Job[T]]:
            plan = self.plan_shipped(shipped, limit, array=True, pack=pack)
            return self.send(plan, names=names)

        code, arguments = shipped
        jobs = once(self.cluster, code.function.target, arguments, submit)
        return make_array(self.cluster, jobs[0].run, jobs[0].name, jobs)

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """Everything about a call that can be decided before it is submitted."""
        shipped = self.ship([Call(args, kwargs)], {}, array=False)
        return self.plan_shipped(shipped, None, array=False)

    def plan_map(
        self,
        items: Iterable[Any],
        *,
        max_concurrent: int | None = None,
        common: Mapping[str, Any] | None = None,
        unpack: bool = True,
        pack: int | str | None = None,
    ) -> Plan:
        """The same for a map."""
        calls = (call_of(item, unpack) for item in items)
        limit = self._throttle(max_concurrent)
        return self.plan_shipped(
            self.ship(calls, common or {}, array=True), limit, array=True, pack=pack
        )

    def _throttle(self, max_concurrent: int | None) -> object:
        throttle = max_concurrent or self.options.get("array_throttle")
        limit = normalize({"array_throttle": throttle}, where=f"{self.task.name}.map")
        return limit["array_throttle"]

    def send_cached(
        self,
        calls: Sequence[Call],
        throttle: object,
        common: Mapping[str, Any],
        array: bool,
        loose: bool = False,
        names: Sequence[str] = (),
        code: Code | None = None,
        watch: bool = True,
    ) -> list[Job[T]]:
        """Submit those of the calls whose values are not there yet; the jobs of all."""

        def plan(missing: Sequence[Call]) -> Plan:
            return self.plan_shipped(
                self.ship(missing, common, array, code), throttle, array, loose
            )

        return submit_cached(self, calls, common, plan, names, watch)

    def prepare(self) -> Prepared:
        """How the task's code gets to the node."""
        asked = (self.cluster, self.packaging, self.task.unwrapped, self.options)
        with preparing(self.cluster, self.task.name, self.packaging.kind) as made:
            prepared = prepare(Request(*asked, dry=self.dry))
            made.environment = prepared.environment
        return prepared

    def ship_function(self, prepared: Prepared | None = None) -> Code:
        """The function as it is now, in the form in which it travels."""
        prepared = prepared or self.prepare()
        path, is_workflow = prepared.environment.path, self.task.is_workflow
        with sending(self.cluster, prepared):
            shipped = ship_function(self.task.unwrapped, path, is_workflow, prepared.by_value)
        return Code(prepared, shipped)

    def ship(
        self,
        calls: Iterable[Call],
        common: Mapping[str, Any],
        array: bool,
        code: Code | None = None,
    ) -> tuple[Code, ShippedArguments]:
        """The function and the arguments of calls, in the form in which they travel."""
        code = code or self.ship_function()
        function = self.task.unwrapped
        context = context_parameter(function)
        waited = [job for condition in self.after for job in returning(condition)]
        if waited:
            # Such a dependency only says that they are over: the runner looks for the values.
            calls = [replace(call, requires=(*call.requires, *waited)) for call in calls]
        with sending(self.cluster, code.prepared):
            return code, ship_arguments(function, calls, context, common, label=array)

    def plan_shipped(
        self,
        shipped: tuple[Code, ShippedArguments],
        throttle: object,
        array: bool,
        loose: bool = False,
        pack: int | str | None = None,
    ) -> Plan:
        """What would be submitted for calls that are ready to travel.

        `loose`: they wait for different jobs, and each element looks after its own.
        """
        cluster, (code, arguments) = self.cluster, shipped
        count = len(arguments.blobs)
        if array and not count:
            raise errors.UsageError(
                f"{self.task.name}.map was given no items", hint="map over at least one"
            )
        packing, count, throttle = plan_packs(pack, count, self.options, throttle)
        conditions = self.after
        if arguments.upstream:
            kind = "afterany" if loose else "afterok"
            conditions = () if loose else conditions
            conditions = (*conditions, Dependency(kind, arguments.upstream))
        name = str(self.options.get("job_name") or self.task.name)
        run = cluster.place(make_run_name(name, time.localtime(), os.urandom(3).hex()))
        submission = Submission(
            run=f"{cluster.base}/{run}",
            base=cluster.base,
            name=name,
            sdk=f"{cluster.base}/{rundir.BASE_SDK}/{sdk_hash()}",
            workdir=_workdir(cluster, run, self.options),
            environment=code.prepared.environment,
            options=_absolute_logs(cluster, self.options),
            dependency=render_dependency(cluster, conditions, count if array else None),
            throttle=throttle if isinstance(throttle, int) else None,
            pack=packing,
            step=cluster.steps,
            workflow=self.task.is_workflow,
        )
        check_one_process(packing, submission.ranks)
        cut = cluster.cut(count, bool(throttle)) if array else None
        return Plan(name, submission, code.function, arguments, cut, conditions, code.prepared)

    def send(self, plan: Plan, watch: bool = True, names: Sequence[str] = ()) -> list[Job[T]]:
        """Submit a plan; one job for each of its calls. `names` are theirs in a workflow."""
        arguments = rundir.encode_arguments(list(plan.arguments.blobs))
        return send(self.cluster, plan, arguments, watch, names)


class Planner(Generic[P]):
    """Makes plans instead of jobs: what `cluster.explain` returns."""

    def __init__(self, submitter: Submitter[P, Any]) -> None:
        self._submitter = submitter
        submitter.dry = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """The plan of one call."""
        return self._submitter.plan(*args, **kwargs)

    def map(self, items: Iterable[Any], **options: Any) -> Plan:
        """The plan of a map; takes what `task.map` takes."""
        return self._submitter.plan_map(items, **options)


def send(
    cluster: Cluster,
    plan: Plan,
    arguments: bytes,
    watch: bool = True,
    names: Sequence[str] = (),
) -> list[Job[Any]]:
    """Submit a plan in one round trip; one job for each of its calls."""
    journal = cluster.journal
    if journal is not None:
        journal.note(names, plan.name, plan.submission.relative)
    with submitting(cluster, plan) as told:
        jobs = _submit(cluster, plan, arguments)
        told += jobs
    if journal is not None:
        journal.keep(plan.submission.relative, jobs)
        tell_child(cluster, journal, jobs)
    for job in jobs:
        job.options = plan.options
    if watch:
        follow(cluster, jobs)
        for job in jobs:
            job.watch()
    return jobs


def _submit(cluster: Cluster, plan: Plan, arguments: bytes) -> list[Job[Any]]:
    journal = cluster.journal
    submission, submitted = plan.submission, time.time()
    metadata = {**_metadata(plan, submitted), **metadata_of(journal)}
    files = {
        **{rundir.script_name(n): text.encode() for n, text in enumerate(plan.scripts)},
        rundir.FUNCTION: plan.function.data,
        rundir.ARGUMENTS: arguments,
        rundir.METADATA: _json(metadata),
        rundir.ENVIRONMENT: _json({**asdict(plan.environment), SECTION: describe(cluster)}),
    }
    for part in plan.cut.parts if plan.cut else ():
        files[rundir.begun_name(part.number)] = rundir.none_begun(part.size)
    policy = policy_of(submission)
    if policy is not None:
        files[rundir.RETRY] = _json(policy)
        files[rundir.GUARD] = render_guard_script(submission).encode()
    with sending(cluster, plan.prepared):
        files.update(callbacks_file(cluster, plan.function.workflow))
    if plan.keys:
        files[rundir.CACHE_KEYS] = keys_file(plan.keys)
    if plan.arguments.shared:
        files[rundir.SHARED] = rundir.encode_arguments(list(plan.arguments.shared))
    waits = rundir.has_token(plan.script)
    if len(plan.scripts) > 1 or waits:
        files[rundir.NEXT] = render_next_script(submission).encode()
    if not cluster.sdk_is_there:
        cluster.backend.put_sdk(sdk_hash(), sdk_files())
        cluster.sdk_is_there = True
    cluster.watcher.start()
    details: dict[str, Any] = {
        "parts": len(plan.scripts),
        "at_once": plan.cut.at_once if plan.cut else 1,
        "env": _secret_values(plan.options),
        "cwd": submission.workdir,
        "options_set": options_set(plan.script),
    }
    submit = functools.partial(cluster.backend.submit_job, submission.relative, files)
    try:
        ids = _delivering(cluster, plan, lambda: submit(**details))
    except errors.SubmitLimit:
        # Even the first part was too much: its refusal teaches the limit.
        smaller = _smaller(cluster, plan)
        if smaller is None:
            raise
        return _submit(cluster, smaller, arguments)
    return make_jobs(cluster, submission.relative, metadata, dict(enumerate(ids)))


def _delivering(cluster: Cluster, plan: Plan, submit: Callable[[], R]) -> R:
    """Submit; where the cluster lacks what the environment is made of, bring it and ask again."""
    try:
        return submit()
    except errors.NotDelivered:
        if plan.prepared.deliver is None:
            raise
    plan.prepared.deliver(cluster)
    return submit()


def _smaller(cluster: Cluster, plan: Plan) -> Plan | None:
    """The same map in smaller parts, by the limits that were not asked for before."""
    if plan.cut is None:
        return None
    count = sum(part.size for part in plan.cut.parts)
    cut = cluster.cut(count, plan.submission.throttle is not None, ask=True)
    return None if cut == plan.cut else replace(plan, cut=cut)


def make_jobs(
    cluster: Cluster, run: str, metadata: dict[str, Any], ids: Mapping[int, str]
) -> list[Job[Any]]:
    """The jobs of a run, out of its metadata and the ids of its parts."""
    parts = [Part(*part) for part in metadata.get("parts") or ()]
    places: list[tuple[Part | None, int]] = [
        (part, i) for part in parts for i in range(part.offset, part.offset + part.size)
    ]
    kind: type[Job[Any]] = PackJob if metadata.get("pack") else Job
    jobs = [
        kind(
            cluster,
            run=run,
            job_id=ids.get(part.number if part is not None else 0),
            name=str(metadata.get("task", run)),
            options=dict(metadata.get("options", {})),
            submitted=float(metadata.get("submitted", 0.0)),
            ranks=int(metadata.get("ranks", 1)),
            index=index,
            part=part,
            dependency=bool(metadata.get("dependency")),
            workflow=bool(metadata.get("workflow")),
        )
        for part, index in (places or [(None, 0)])
    ]
    for job in jobs:
        job.container = metadata.get("container")
    if metadata.get("returns"):
        for job in jobs:
            number = job.part.number if job.part is not None else 0
            job.again = Again(metadata.get("retry"), str(number))
    return make_packs(cluster, run, metadata, jobs) if metadata.get("pack") else jobs


def make_array(cluster: Cluster, run: str, name: str, jobs: Sequence[Job[Any]]) -> ArrayJob[Any]:
    """The handle of a map: of a packed one that of its items, not of the jobs that they share."""
    packed: PackedRun | None = jobs[0].packed
    return packed.array() if packed is not None else ArrayJob(cluster, run, name, jobs)


def _workdir(cluster: Cluster, run: str, options: dict[str, object]) -> str:
    """The function's working directory: as asked for, else the client's; over ssh the run."""
    remote = remote_of(cluster)
    if remote is not None:
        given = options.get("workdir")
        return remote.path_there(str(given)) if given else f"{cluster.base}/{run}"
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = os.path.expanduser("~")
    given = options.get("workdir")
    return os.path.normpath(os.path.join(here, os.path.expanduser(str(given)))) if given else here


def _absolute_logs(cluster: Cluster, options: dict[str, object]) -> dict[str, object]:
    """Log paths relative to the client's directory, as sbatch would take them; over ssh to home."""
    changed = dict(options)
    remote = remote_of(cluster) if "output" in changed or "error" in changed else None
    for name in ("output", "error"):
        if name in changed:
            text = str(changed[name])
            here = os.path.abspath(os.path.expanduser(text))
            changed[name] = here if remote is None else remote.path_there(text)
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
        "options": plan.options,
        "workdir": plan.submission.workdir,
        "ranks": 2 if plan.submission.ranks else 1,
        "parts": [list(part) for part in plan.cut.parts] if plan.cut else None,
        "pack": list(plan.submission.pack) if plan.submission.pack else None,
        "item_retry": item_retry(plan.submission.pack, plan.options),
        "dependency": plan.submission.dependency,
        "workflow": plan.function.workflow,
        "container": plan.environment.details.get("image"),
        "upstream": sorted({job.run for one in plan.upstream for job in one.jobs}),
        "retry": policy_of(plan.submission),
        "returns": policy_of(plan.submission) is not None or any(map(may_return, plan.upstream)),
        "submitted": submitted,
        "python": sys.version.split()[0],
        "slurm_sdk": __version__,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, default=str).encode()
