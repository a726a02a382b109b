"""The debug backend: a call runs in this process when its result is first asked for."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from slurm import rundir
from slurm.array import ArrayJob
from slurm.cache import keys_file, keys_here, look_up, target_of
from slurm.callbacks.base import flush
from slurm.callbacks.following import tell_child, tell_completed, tell_submitted
from slurm.context import JobContext
from slurm.job import Job
from slurm.journal import current_journal
from slurm.model.ids import make_run_name
from slurm.model.states import JobState
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.function import context_parameter
from slurm.runner.cache import point
from slurm.runner.callbacks import Hooks
from slurm.runner.run import settle
from slurm.runner.values import dumps, loads
from slurm.waiters import checked_timeout
from slurm.workflow import Workflow

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.submission import Submitter
    from slurm.task import Task

T = TypeVar("T")

log = logging.getLogger("slurm")

_ids = itertools.count(1)


class DebugJob(Job[T]):
    """A job that runs in the thread that first wants to know about it, so that pdb works."""

    _running = False
    _lock_name = "debug.turn"

    def __init__(
        self,
        cluster: Cluster,
        task: Task[..., T],
        options: dict[str, object],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        function = task.unwrapped
        self._context = context_parameter(function)
        # What could not be sent to a job is refused here too: debugging must not hide it.
        shipped = ship_arguments(function, [Call(tuple(args), kwargs)], self._context)
        self.function = self._function = function
        # A value that others will find is computed from what a job would be given.
        copied = shipped.upstream or options.get("cache")
        self._call = _with_results(args, kwargs) if copied else (list(args), dict(kwargs))
        self._environment = dict(options.get("env") or {})  # type: ignore[call-overload]
        self._task = task
        #: Makes the key of the call as it would be now.
        self.keyed: Callable[[], str | None] = lambda: None
        job_id = str(next(_ids))
        super().__init__(
            cluster,
            run=make_run_name(task.name, time.localtime(), os.urandom(3).hex()),
            job_id=job_id,
            name=task.name,
            options=options,
            submitted=time.time(),
        )
        tell_submitted(self, task.is_workflow)
        journal = current_journal()
        if journal is not None:
            journal.keep(self.run, [self], self.name)
            tell_child(cluster, journal, [self])

    # Everything that asks about a future reads `_state`: result, done, wait, as_completed, await.
    @property
    def _state(self) -> str:
        if not self._running:
            self._running = True
            self._execute()
        return self._told

    @_state.setter
    def _state(self, value: str) -> None:
        self._told = value

    def _execute(self) -> None:
        args, kwargs = self._call
        if isinstance(self._task, Workflow):
            self._function = functools.partial(self._task.run_here, self.cluster, run=self.run)
            args, kwargs = [args, kwargs], {}
        elif self._context is not None and self._context[0] not in kwargs:
            name, position = self._context
            context = JobContext(self._variables(), os.path.join(self.path))
            if position is not None and len(args) >= position:
                args.insert(position, context)
            else:
                kwargs[name] = context
        # What the program did to its modules and to the arguments meanwhile, the function sees.
        stored = self.cache_key is not None and self.keyed() == self.cache_key
        before = dict(os.environ)
        os.environ.update(self._environment)
        try:
            self._decoded = (settle(self._hooked()(*args, **kwargs)), None)
        except Exception as error:  # noqa: BLE001 - the function's exception is its outcome
            self._decoded = (None, error)
        finally:
            os.environ.clear()
            os.environ.update(before)
        if stored and self._decoded[1] is None:
            _store(self, self._decoded[0])
        super(Job, self).set_result(None)  # type: ignore[arg-type]
        tell_completed(self)

    def _hooked(self) -> Callable[..., Any]:
        """The function with the hooks of callbacks around it, which elsewhere run in the job."""
        callbacks = self.cluster.callbacks
        if not callbacks:
            return self._function
        flush()  # these hooks are called in this thread: of the submission it was heard before
        context = JobContext(self._variables(), self.path)
        facts = {"target": target_of(self._task.unwrapped), "is_workflow": self._task.is_workflow}
        numbers = {"index": self.index, "rank": 0, "attempt": 0}
        return Hooks(self._function, callbacks, context, self.path, {**facts, **numbers})

    def _variables(self) -> dict[str, str]:
        return {
            "SLURM_JOB_ID": self.id,
            "SLURM_JOB_NAME": self.name,
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "SLURM_CPUS_PER_TASK": str(self.options.get("cpus_per_task") or 1),
        }

    def result(self, timeout: float | None = None) -> T:
        """The value; the function's exception comes with its own traceback."""
        checked_timeout(timeout)
        self.done()
        assert self._decoded is not None
        value, error = self._decoded
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def watch(self) -> None:
        """Nothing has to be watched."""

    def _look(self) -> None:
        pass

    def cancel(self, *, children: bool = True) -> bool:
        """Give the job up if it has not run yet."""
        return False

    @property
    def path(self) -> str:
        """Where `output_dir` and `checkpoint_dir` lie."""
        return os.path.join(os.path.expanduser(self.cluster._base), self.run)

    @property
    def settled(self) -> bool:
        """Whether it has run, without running it."""
        return self._decoded is not None

    @property
    def succeeded(self) -> bool:
        """Whether it has run and has a value."""
        return self._decoded is not None and self._decoded[1] is None

    @property
    def known_state(self) -> JobState:
        """The same as `state`."""
        return self.state

    @property
    def state(self) -> JobState:
        """PENDING before it has run."""
        if self._decoded is None:
            return JobState.PENDING
        return JobState.FAILED if self._decoded[1] is not None else JobState.COMPLETED

    @property
    def script(self) -> str:
        """There is none: the call runs in this process."""
        return ""

    def stdout(self) -> str:
        """Empty: output goes to the terminal."""
        return ""

    def stderr(self) -> str:
        """Empty: output goes to the terminal."""
        return ""

    def __repr__(self) -> str:
        return f"<DebugJob {self.id} {self.name} {self.state.value}>"


def debug_map(
    submitter: Submitter[..., T], calls: Sequence[Call], common: Mapping[str, Any]
) -> ArrayJob[T]:
    """A map whose calls run in this process, each when it is first asked about."""
    jobs = debug_jobs(submitter, calls, common)
    return ArrayJob(submitter.cluster, jobs[0].run if jobs else "", submitter.task.name, jobs)


def debug_jobs(
    submitter: Submitter[..., T], calls: Sequence[Call], common: Mapping[str, Any]
) -> list[Job[T]]:
    """The jobs of calls; a value that is in the cache is there at once."""
    cluster, task = submitter.cluster, submitter.task
    keys = keys_here(submitter, calls, common)
    jobs: dict[int, Job[T]] = dict(look_up(cluster, keys))
    for number, call in enumerate(calls):
        if number not in jobs:
            kwargs = {**common, **call.kwargs}
            job = DebugJob(cluster, task, submitter.options, call.args, kwargs)
            job.cache_key = keys[number]
            job.keyed = functools.partial(_key_now, submitter, call, common)
            jobs[number] = job
    return [jobs[number] for number in range(len(calls))]


def _key_now(submitter: Submitter[..., Any], call: Call, common: Mapping[str, Any]) -> str | None:
    return keys_here(submitter, [call], common)[0]


def _store(job: DebugJob[Any], value: Any) -> None:
    """Keep a value under the job's key as a job of a cluster would, in a run of its own."""
    base = job.cluster.base
    run = os.path.join(base, job.run)
    metadata = {"task": job.name, "target": target_of(job.function), "submitted": job.submitted}
    for name in (rundir.RESULTS, rundir.VALUES):
        rundir.make_private_folder(os.path.join(run, name))
    rundir.write_atomically(os.path.join(run, rundir.METADATA), json.dumps(metadata).encode())
    rundir.write_atomically(os.path.join(run, rundir.CACHE_KEYS), keys_file([job.cache_key]))
    who = rundir.Identity(job.id, 0, 0, 0)
    header = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
    try:
        place = rundir.append_record(run, who, rundir.VALUE, header, dumps(value))
        point(base, str(job.cache_key), run, place)
    except Exception as error:  # noqa: BLE001 - pickling calls the user's own code
        log.warning("the value of %s is not cached: %s: %s", job.name, type(error).__name__, error)


def _with_results(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with each Job among them replaced by its result, as on a cluster."""
    import io

    import cloudpickle

    found: dict[int, Job[Any] | ArrayJob[Any]] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, (Job, ArrayJob)):
                found[id(obj)] = obj
                return id(obj)
            return None

    def value(pid: Any) -> Any:
        job = found[pid]
        return job.results() if isinstance(job, ArrayJob) else job.result()

    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump((list(args), dict(kwargs)))
    return loads(buffer.getvalue(), find=value)  # type: ignore[no-any-return]
