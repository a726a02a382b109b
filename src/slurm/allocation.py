"""Allocation: one job held open, in which calls run as steps."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from slurm import errors, locks, rundir
from slurm.api.backend import Backend, JobKey
from slurm.api.connect import LocalBackend
from slurm.api.slurm_commands import JobStatus
from slurm.cluster import Cluster
from slurm.job import Job
from slurm.launch import ranks_per_node
from slurm.model.options import normalize, sbatch_flags
from slurm.model.parts import Cut, cut_map
from slurm.model.units import GpuRequest, parse_duration
from slurm.runner import inbox, pilot
from slurm.target import Target
from slurm.task import Task
from slurm.threads import begin

#: How often an open allocation tells its pilot that somebody is there.
BEAT = 30.0

#: Defaults of a cluster that hold for its steps, too; the others are about getting resources.
_KEPT = ("workdir", "env", "modules", "venv", "conda", "python", "setup", "teardown", "all_ranks")

#: What of a task's options is said to srun as it is.
_TO_SRUN = (
    "mem", "mem_per_cpu", "mem_per_gpu", "gpus", "gpus_per_node", "gpus_per_task", "cpus_per_gpu",
    "gres", "tres_per_task", "ntasks_per_node", "threads_per_core", "distribution", "hint",
    "overcommit",
)  # fmt: skip


class Allocation(Cluster):
    """A job that is held open; tasks called in its `with` block run as its steps, side by side.

    ```python
    with Cluster() as cluster, cluster.allocate(nodes=2, time="1h") as allocation:
        prepare().result()                                    # one rank on one node
        both = allocation.submit(train, nodes=2)(lr=0.1)      # a step of two nodes
    ```

    A step gets what its task's options say (nodes, ntasks, cpus_per_task, mem, gpus ...) out of the
    allocation, and waits while that is in use. `job` is the allocation itself.
    """

    _steps = True

    def __init__(
        self, parent: Cluster, job: Job[Any] | None, raw: str = "", hold: bool = True
    ) -> None:
        # How the parent is reached is its own: this one has the parent's backend.
        Target.__init__(
            self,
            parent.backend_type,
            parent.directory,
            parent._how,
            packaging=parent.packaging,
            callbacks=parent.callbacks,
            defaults={k: v for k, v in parent.defaults.items() if k in _KEPT},
            trust_group=parent.trust_group,
        )
        self.parent = parent
        self.job = job
        self._sdk_is_there = parent._sdk_is_there
        self._closed = threading.Event()
        if job is not None:
            self._backend = StepBackend(parent.backend, job, raw or job.bare)
            if hold:
                begin(self._beat, "slurm-beat")

    @classmethod
    def current(cls) -> Allocation:
        """The allocation of the job that this code runs in: calls become steps of that job."""
        return _current(cls)

    @classmethod
    def of_step(cls, parent: Cluster, run: str, step: str) -> Allocation:
        """The allocation that a step of before belongs to, to look at; it is not kept open."""
        raw, above = step.partition(".")[0], run.rpartition(f"/{rundir.TASKS}/")[0]
        found = parent.attach(above)
        jobs = [found] if isinstance(found, Job) else list(found)
        job = next((job for job in jobs if job.bare == raw), jobs[0])
        return cls(parent, job, raw, hold=False)

    @property
    def base(self) -> str:
        """The directory of all runs, as the cluster sees it."""
        return self.parent.base

    @property
    def _journal(self) -> None:
        """A workflow that begins anew allocates anew, so its steps are not journalled."""

    def _place(self, run: str) -> str:
        """A step's run lies below that of its allocation."""
        if self.job is None:
            return run
        return f"{self.job.run}/{rundir.TASKS}/{run.rsplit('-', 3)[0]}/{run}"

    def _cut(self, count: int, throttled: bool, ask: bool = False) -> Cut:
        """No limit of the scheduler counts inside an allocation."""
        return cut_map(count)

    def submit(self, task: Any, **options: Any) -> Any:
        """What runs a call as a step: `allocation.submit(train, nodes=2, ntasks=4)(lr=0.1)`."""
        if self._closed.is_set():
            raise errors.UsageError(
                f"the allocation {self.job.id if self.job else ''} is closed",
                hint="call the task inside the with block, or allocate again",
            )
        submitter = super().submit(task, **options)
        self._check(submitter.options, submitter.task.name)
        return submitter

    def _check(self, options: Mapping[str, Any], name: str) -> None:
        """Refuse a step that is wider than the allocation, as far as that is known here."""
        if options.get("retry"):
            raise errors.UsageError(
                f"{name} has a retry, and a step cannot be submitted again from the cluster",
                hint=f"call it again where it failed: {name}.with_options(retry=None)",
            )
        wanted, held = options.get("nodes"), self.job.options.get("nodes", 1) if self.job else None
        if str(wanted).isdigit() and str(held).isdigit() and int(str(wanted)) > int(str(held)):
            raise errors.UsageError(
                f"{name} asks for nodes={wanted}, and the allocation has {held}",
                hint=f"cluster.allocate(nodes={wanted}, ...), or {name}.with_options(nodes={held})",
            )

    def allocate(self, **_: Any) -> Allocation:
        """An allocation within an allocation is refused: its steps are what can be nested."""
        raise errors.UsageError(
            "an allocation cannot allocate again", hint="call the task: it runs as a step"
        )

    # ---- its end --------------------------------------------------------------------------------

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self.close()

    def close(self) -> None:
        """Take no more calls; the allocation ends when those that were made are over."""
        if not self._closed.is_set():
            self._closed.set()
            if isinstance(self._backend, StepBackend):
                self._backend.tell([inbox.CLOSE])

    def cancel_all(self) -> bool:
        """End the allocation and all of its steps now; True if the scheduler was asked."""
        self._closed.set()
        return self.job is not None and self.job.cancel()

    def _beat(self) -> None:
        backend = self._backend
        assert isinstance(backend, StepBackend)
        count = 0
        while not self._closed.wait(BEAT if count else 0):
            count += 1
            try:
                backend.tell([inbox.BEAT], f"{os.getpid()} {time.time()}")
            except errors.SlurmError:
                continue

    def __repr__(self) -> str:
        return f"<Allocation {self.job.id if self.job else 'debug'}>"


def allocate(cluster: Cluster, idle: str | int, options: Mapping[str, Any]) -> Allocation:
    """Submit the job that holds an allocation."""
    seconds = parse_duration(idle)
    given = dict(options)
    if given.get("requeue") or given.get("launch"):
        name = "requeue" if given.get("requeue") else "launch"
        raise errors.OptionError(
            f"cluster.allocate does not take {name}={given[name]!r}",
            hint="give it to the tasks that run as steps" if name == "launch" else "leave it out",
        )
    normalize(given, where="cluster.allocate")
    if cluster.backend_type == "debug":
        return Allocation(cluster, None)
    given = {"job_name": "allocation", **given, "launch": "once", "requeue": False}
    # What a cluster's defaults say of its tasks does not hold for the job that is held.
    given.update(dict.fromkeys(("output", "error", "array_throttle", "retry", "cache"), None))
    # The pilot needs nothing packaged; its steps bring what they need.
    submitter = cluster.submit(Task(pilot.serve), packaging="none", **given)
    # Sent at once, also inside of a batch: its steps need the id.
    (job,) = submitter.send(submitter.plan(float(seconds or 10**9), secrets.token_hex(8)))
    return Allocation(cluster, job)


class StepBackend(Backend):
    """The verbs for the steps of one allocation: orders and words go into its inbox."""

    def __init__(self, inner: Backend, job: Job[Any], raw: str) -> None:
        self.inner = inner
        self.kind = inner.kind
        self.job = job
        self.target = f"{inner.target}#{job.id}:{job.run}"
        #: The id that the job itself sees as SLURM_JOB_ID: an element of an array has two.
        self._raw = raw
        #: Whether this process is part of the job.
        self.inside = False
        self._read_to = 0
        self._notes: dict[str, rundir.Event] = {}
        self._lock = locks.lock("allocation.notes")

    def call(self, verb: str, *args: Any) -> Any:
        """All other verbs are the cluster's own."""
        return self.inner.call(verb, *args)

    def tell(self, words: Sequence[str], text: str = "") -> None:
        """Leave words for the pilot."""
        self.tell_pilot(self.job.run, self._raw, words, text)

    def submit_job(
        self,
        run: str,
        files: Mapping[str, Any],
        *,
        parts: int = 1,
        at_once: int = 1,
        env: dict[str, str] | None = None,
        cwd: str = "",
        options_set: Sequence[str] = (),
    ) -> list[str]:
        """Order a step, or with an array in the script one step per element."""
        metadata = json.loads(files[rundir.METADATA])
        unknown = sorted(set(env or ()) - set(self.job.options.get("secrets") or ()))
        if unknown:
            raise errors.UsageError(
                f"the secret {unknown[0]} would have to be written down to reach a running job",
                hint=f"give it when you allocate: cluster.allocate(secrets={unknown!r}, ...)",
            )
        order = make_order(metadata, files[rundir.SCRIPT].decode())
        job = self._raw + self.job.id[len(self.job.bare) :]
        return [self._call("order_step", self.job.run, job, run, files, order)]

    def status(self, jobs: Sequence[JobKey]) -> dict[str, JobStatus]:
        """How steps fare: the pilot's notes, and the scheduler's word on the allocation."""
        held = self._held()
        with self._lock:
            self._read_notes()
            found = {job.bare: self._step_status(job, held) for job in jobs}
        return {job: status for job, status in found.items() if status is not None}

    def _held(self) -> JobStatus | None:
        """How the allocation fares; it may itself be a step of another one."""
        if self.inside:
            nothing = (None,) * 5
            return JobStatus(self.job.bare, "RUNNING", "", "", *nothing, 0, self.job.run, "")
        assert self.job.key is not None
        return self.job.cluster.backend.status([self.job.key]).get(self.job.bare)

    def _read_notes(self) -> None:
        data = self.inner.read(
            self.job.run, f"{rundir.INBOX}/{self._raw}/{rundir.STEPS}", self._read_to
        )
        events, used = rundir.decode_events(data)
        self._read_to += used
        self._notes.update({event.job: event for event in events})

    def _step_status(self, job: JobKey, held: JobStatus | None) -> JobStatus | None:
        note = self._notes.get(job.bare.rpartition(".")[2])
        state, reason, nodes = "PENDING", "", ""
        code: int | None = None
        if note is not None and note.kind == "end":
            state, reason = note.fields.get("state", "FAILED"), note.fields.get("reason", "")
            code = note.number("code")
        elif held is None:
            return None
        elif held.end is not None or held.state not in _ALIVE:
            # The pilot left no note: the step ended as its allocation did, or was never begun.
            state, reason = held.state, held.reason
            state = "CANCELLED" if state == "COMPLETED" else state
        elif held.state == "PENDING":
            reason = held.reason
        else:
            state, reason = ("RUNNING", "") if note is not None else (state, "Resources")
        if note is not None and held is not None:
            nodes = note.fields.get("nodes") or held.nodes
        number = -code if code is not None and code < 0 else None
        return JobStatus(
            job.bare, state, reason, nodes, code, number, None, None,
            None if state in _ALIVE else int(time.time()), 0, job.run, "",
        )  # fmt: skip

    def request(self, verb: str, jobs: Sequence[JobKey], *args: Any) -> list[str]:
        """Cancel or signal steps; a step cannot be held or requeued."""
        if verb not in (inbox.CANCEL, inbox.SIGNAL):
            raise errors.CommandRefused(
                f"a step of an allocation cannot {verb}", hint="cancel it, and call the task again"
            )
        extra = "".join(f"-{arg}" for arg in args)
        unique = f"-{time.time_ns()}" if verb == inbox.SIGNAL else ""
        names = [job.bare.rpartition(".")[2] for job in jobs]
        self.tell([f"{verb}-{name}{extra}{unique}" for name in names])
        return [job.bare for job in jobs]


_ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING")


def make_order(metadata: Mapping[str, Any], script: str) -> dict[str, Any]:
    """What the pilot has to know about a step: its shape, its limits and its logs."""
    options = dict(metadata.get("options") or {})
    for name in ("gpus", "gpus_per_node", "gpus_per_task"):
        if options.get(name):  # JSON has made lists of them
            options[name] = tuple(GpuRequest(*request) for request in options[name])
    nodes, per_node = options.get("nodes"), options.get("ntasks_per_node")
    count = int(str(nodes).partition("-")[0]) if nodes else None
    tasks = int(options.get("ntasks") or (count or 1) * int(per_node or 1))
    cpus = int(options.get("cpus_per_task") or 1)
    if options.get("launch") == "torchrun":
        # One process per node, which starts the ranks there.
        each = ranks_per_node(options)
        count = count or max(1, tasks // each)
        tasks, cpus = count, each * cpus
        options.pop("ntasks_per_node", None)
    elif options.get("launch") == "once":
        tasks = 1
    array = re.search(r"^#SBATCH --array=0-(\d+)(?:%(\d+))?$", script, re.MULTILINE)
    flags = dict(sbatch_flags({k: v for k, v in options.items() if k in _TO_SRUN and v}))
    if not {"mem", "mem-per-cpu", "mem-per-gpu"} & set(flags):
        # All steps share the allocation's memory; else the first would take it whole.
        flags["mem"] = "0"
    return {
        "name": metadata.get("task"),
        "nodes": count,
        "tasks": tasks,
        "cpus": cpus,
        "flags": [f"--{k}" if v is None else f"--{k}={v}" for k, v in flags.items()],
        "time": options.get("time"),
        "count": int(array.group(1)) + 1 if array else None,
        "throttle": int(array.group(2)) if array and array.group(2) else None,
        "dependency": metadata.get("dependency"),
        "output": options.get("output") or rundir.stdout_pattern(bool(array)),
        "error": options.get("error") or rundir.stderr_pattern(bool(array)),
    }


def _current(cls: type[Allocation]) -> Allocation:
    env = os.environ
    missing = [n for n in ("SLURM_JOB_ID", "SLURM_SDK_RUN", "SLURM_SDK_BASE") if not env.get(n)]
    if missing:
        raise errors.UsageError(
            f"Allocation.current() was called outside of a job ({missing[0]} is not set)",
            hint="call it in a task, or hold an allocation: with cluster.allocate(...)",
        )
    from slurm.runner.advance import scheduler

    base, path, raw = env["SLURM_SDK_BASE"], env["SLURM_SDK_RUN"], env["SLURM_JOB_ID"]
    run = os.path.relpath(path, base)
    array, index = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    parent = Cluster.from_backend(LocalBackend(scheduler(), base), job_base_dir=base)
    with open(os.path.join(path, rundir.METADATA)) as f:
        metadata = json.load(f)
    job: Job[Any] = Job(
        parent,
        run=run,
        job_id=f"{array}_{index}" if array else raw,
        name=str(metadata.get("task")),
        options=dict(metadata.get("options") or {}),
        submitted=float(metadata.get("submitted", 0.0)),
    )
    parent.defaults = {k: v for k, v in job.options.items() if k in _KEPT}
    flying = pilot.Pilot(path, base, raw)
    allocation = cls(parent, job, raw)
    assert isinstance(allocation._backend, StepBackend)
    allocation._backend.inside = True
    begin(flying.serve, "slurm-pilot", float("inf"))
    return allocation
