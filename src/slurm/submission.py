"""Submission: the calls of one task, with its options, become a plan and then jobs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from slurm import errors, rundir, sending
from slurm.array import ArrayJob
from slurm.cache import Keyed, keys_of_calls, submit_cached
from slurm.callbacks.following import follow, preparing
from slurm.dependencies import Dependency, pair, promised
from slurm.dependencies import render as render_dependency
from slurm.handles import make_array
from slurm.here import working_directory
from slurm.job import Job
from slurm.model.options import merge, normalize
from slurm.model.packs import check_map, check_one_process, plan_packs
from slurm.packaging import (
    PackagingGiven,
    Prepared,
    Request,
    check_packaging,
    choose,
    pickling,
    prepare,
)
from slurm.packaging.arguments import (
    Call,
    ShippedArguments,
    all_of,
    call_of,
    items_of,
    ship_arguments,
)
from slurm.packaging.function import (
    ShippedFunction,
    refuse_generator,
    ship_function,
)
from slurm.packaging.remote import remote_of
from slurm.packaging.sdk import sdk_hash
from slurm.plan import Plan
from slurm.recall import call_content, once, target_name
from slurm.rendering import Submission
from slurm.retry import with_requeue
from slurm.task import Task
from slurm.threads import refuse_at_the_end

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.model.options import TaskOptions

P = ParamSpec("P")
T = TypeVar("T")


class Code(NamedTuple):
    """The function of calls as it travels, and how Python starts for it."""

    prepared: Prepared
    function: ShippedFunction


#: Reading the items of these runs no code of anybody's that could change a value meanwhile.
_ALL_THERE = frozenset((list, tuple, range, dict, set, frozenset))


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
        refuse_at_the_end("a call was submitted")
        self.cluster = cluster
        self.task: Task[P, T] = task if isinstance(task, Task) else Task(task)
        refuse_generator(self.task.unwrapped, self.task.name)
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
        batch = self.cluster._collecting
        kept = None if batch is None else batch.add(self, Call(args, kwargs))
        if kept is not None:
            return kept
        if self.options.get("cache"):
            return self.send_cached([Call(args, kwargs)], None, {}, array=False)[0]
        return self.send(self.plan(*args, **kwargs))[0]

    def send_calls(
        self,
        calls: Sequence[Call],
        jobs: Sequence[Job[T]],
        same: bool,
        code: Code,
        keyed: Keyed | None = None,
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
            found = self.send_cached(
                calls, throttle, {}, array, loose, names, code, watch=False, keyed=keyed
            )
        else:
            shipped = self.ship(calls, {}, array, code)
            found = self.send(self.plan_shipped(shipped, throttle, array, loose), False, names)
        journal = self.cluster._journal
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
        check_map(self.task.name, self.task.is_workflow, common, pack)
        calls = self._calls(items, unpack)
        if not isinstance(calls, list):
            more = iter(calls)
            first = next(more, None)
            calls = [] if first is None else itertools.chain((first,), more)
        if isinstance(calls, list) and not calls:
            return self._none(pack)
        limit = self._throttle(max_concurrent)
        if self.cluster.backend_type == "debug":
            from slurm.debug import debug_map

            return debug_map(self, all_of(calls), common or {})
        if self.options.get("cache"):
            from slurm.cachedmap import cached_map

            return cached_map(self, all_of(calls), limit, common or {}, pack)
        named = self.cluster._journal is not None
        kept = all_of(calls) if named else []
        shipped = self.ship(kept or calls, common or {}, array=True)

        def submit(names: Sequence[str]) -> list[Job[T]]:
            plan = self.plan_shipped(shipped, limit, array=True, pack=pack)
            return self.send(plan, names=names)

        code, arguments = shipped
        jobs = once(
            self.cluster,
            target_name(self.task.unwrapped, code.function.target) if named else "",
            lambda: call_content(kept, common or {}, (*arguments.blobs, *arguments.shared)),
            submit,
        )
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
        check_map(self.task.name, self.task.is_workflow, common, pack)
        calls = self._calls(items, unpack)
        limit = self._throttle(max_concurrent)
        return self.plan_shipped(
            self.ship(calls, common or {}, array=True), limit, array=True, pack=pack
        )

    def _calls(self, items: Iterable[Any], unpack: bool) -> Iterable[Call]:
        calls = (call_of(item, unpack) for item in items_of(items, f"{self.task.name}.map"))
        if any(condition.kind == "aftercorr" for condition in self.after):
            return list(pair(self.after, all_of(calls)))
        # Calls that are all there are pickled without a copy: see ship_arguments.
        return list(calls) if type(items) in _ALL_THERE else calls

    def _none(self, pack: int | str | None) -> ArrayJob[T]:
        """The array of a map over no items: nothing is submitted, and it is done."""
        if pack is None:
            return ArrayJob(self.cluster, "", self.task.name, ())
        from slurm.cachedmap import FoundItems
        from slurm.packed import PackedArray

        return PackedArray(FoundItems(self.cluster, self.task.name, ()), ())

    def _throttle(self, max_concurrent: int | None) -> object:
        if max_concurrent is None:
            return self.options.get("array_throttle")
        given = {"max_concurrent": max_concurrent}
        return normalize(given, where=f"{self.task.name}.map")["array_throttle"]

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
        keyed: Keyed | None = None,
    ) -> list[Job[T]]:
        """Submit those of the calls whose values are not there yet; the jobs of all.

        `keyed`: their keys, where they were made before.
        """
        # The keys are those of the code that goes out.
        code = code or self.ship_function()

        def plan(missing: Sequence[int]) -> Plan:
            chosen = [calls[position] for position in missing]
            return self.plan_shipped(self.ship(chosen, common, array, code), throttle, array, loose)

        keys, premises = keyed or keys_of_calls(self, calls, common, code.prepared)
        return submit_cached(self, keys, premises, plan, names, watch)

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
        with pickling(self.cluster, prepared):
            function, captured = self.task.unwrapped, prepared.environment.captured
            shipped = ship_function(function, path, is_workflow, prepared.by_value, captured)
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
        function, context = self.task.unwrapped, code.function.context
        # Such a dependency only says that they are over: the runner looks for the values.
        values, failures = promised(self.after)
        if values:
            bound = (replace(call, requires=(*call.requires, *values)) for call in calls)
            calls = list(bound) if isinstance(calls, list) else bound
        with pickling(self.cluster, code.prepared):
            return code, ship_arguments(
                function, calls, context, common, label=array, conditions=failures
            )

    def plan_shipped(
        self,
        shipped: tuple[Code, ShippedArguments],
        throttle: object,
        array: bool,
        loose: bool = False,
        pack: int | str | None = None,
    ) -> Plan:
        """What would be submitted for calls that are ready to travel.

        `loose`: what they come after differs, and each element looks after its own.
        """
        cluster, (code, arguments) = self.cluster, shipped
        count = len(arguments.blobs)
        if array and not count:
            raise errors.UsageError(
                f"{self.task.name}.map was given no items: nothing would be submitted",
                hint="plan it with at least one item",
            )
        packing, count, throttle = plan_packs(pack, count, self.options, throttle)
        # What not all calls need: each of them looks whether its own is there.
        some = set(map(id, arguments.of_some))
        of_all = tuple(job for job in arguments.upstream if id(job) not in some)
        needs = (Dependency("afterok", of_all), Dependency("afterany", arguments.of_some))
        conditions = (*(() if loose else self.after), *(one for one in needs if one.jobs))
        cut = cluster._cut(count, bool(throttle)) if array else None
        whole = cut is not None and len(cut.parts) == 1
        name = str(self.options.get("job_name") or self.task.name)
        run = cluster._place(sending.new_run_name(name))
        submission = Submission(
            run=f"{cluster.base}/{run}",
            base=cluster.base,
            name=name,
            sdk=f"{cluster.base}/{rundir.BASE_SDK}/{sdk_hash()}",
            workdir=_workdir(cluster, run, self.options),
            environment=code.prepared.environment,
            options=_absolute_logs(cluster, self.options),
            dependency=render_dependency(
                cluster, conditions, array, count if whole and packing is None else None
            ),
            throttle=throttle if isinstance(throttle, int) else None,
            pack=packing,
            step=cluster._steps,
            workflow=self.task.is_workflow,
            group=cluster._trusted_group,
        )
        check_one_process(packing, submission.ranks)
        return Plan(name, submission, code.function, arguments, cut, conditions, code.prepared)

    def send(self, plan: Plan, watch: bool = True, names: Sequence[str] = ()) -> list[Job[T]]:
        """Submit a plan; one job for each of its calls. `names` are theirs in a workflow."""
        arguments = rundir.encode_arguments(list(plan.arguments.blobs))
        return sending.send(self.cluster, plan, arguments, watch, names)


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


def _workdir(cluster: Cluster, run: str, options: dict[str, object]) -> str:
    """The function's working directory: as asked for, else the client's; over ssh the run."""
    remote = remote_of(cluster)
    if remote is not None:
        given = options.get("workdir")
        return remote.path_there(str(given)) if given else f"{cluster.base}/{run}"
    here = working_directory()
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
