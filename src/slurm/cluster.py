"""Cluster: the front door. Configuration comes in, jobs go out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar, overload

from slurm import errors
from slurm.active import active_cluster, enter, leave
from slurm.api.backend import Backend
from slurm.array import ArrayJob
from slurm.batch import collected, open_batch
from slurm.cache import target_of
from slurm.callbacks.gathering import gather
from slurm.inheritance import inherited
from slurm.job import Job
from slurm.model.ids import parse_job_id
from slurm.model.options import merge, normalize
from slurm.packaging import PackagingGiven, check_packaging, choose
from slurm.packaging.choose import OUTER
from slurm.reach import DEFAULT_BASE, check_trust, kind_of, reach, refuse_secrets
from slurm.submission import Planner, Submitter
from slurm.target import Target
from slurm.task import Task

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self, Unpack

    from slurm.allocation import Allocation
    from slurm.api.slurm_commands import JobStatus
    from slurm.callbacks import BaseCallback
    from slurm.executor import Executor
    from slurm.files import Progress
    from slurm.model.options import TaskOptions

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["Cluster", "CommandResult", "active_cluster"]

Upstream: TypeAlias = "Job[Any] | ArrayJob[Any] | Sequence[Job[Any] | ArrayJob[Any]]"


class CommandResult(NamedTuple):
    """How a program ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


class Cluster(Target):
    """A place where tasks run: this machine's Slurm, the embedded scheduler, or the debugger.

    ```python
    with Cluster(partition="gpu", time="2h") as cluster:
        job = train(lr=1e-3)
    print(job.result())
    ```

    `backend_type` is `"local"` (this machine's Slurm, else the embedded scheduler), `"embedded"`,
    `"debug"` (calls run in this process), `"ssh"`: the cluster behind the login node `hostname`,
    reached by your own OpenSSH, or `"rest"`: the slurmrestd at `rest_url`, with the token in
    `token_file` and a `job_base_dir` that the nodes see, too. `slurm_conf` names one of several
    Slurm clusters of this machine. `callbacks` hear what becomes of
    runs; `progress=False` shows no live lines where a terminal or a notebook would.
    `trust_group=True`: `job_base_dir` is a directory of a group. Each member has a folder of their
    own in it, and what members wrote there is read, unpickled and run again where you ask for it.
    All other keywords are defaults for the tasks' options.
    """

    def __init__(
        self,
        backend_type: str = "local",
        *,
        job_base_dir: str | os.PathLike[str] | None = None,
        trust_group: bool | None = None,
        packaging: PackagingGiven | None = None,
        callbacks: Sequence[BaseCallback] | None = None,
        progress: bool | None = None,
        hostname: str | None = None,
        username: str | None = None,
        port: int | None = None,
        identity_file: str | os.PathLike[str] | None = None,
        jump_host: str | None = None,
        ssh_options: Mapping[str, object] | Sequence[str] = (),
        connect_timeout: float = 20.0,
        remote_python: str | None = None,
        rest_url: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        slurm_conf: str | os.PathLike[str] | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        kind = kind_of(backend_type, hostname)
        refuse_secrets(options)
        how = reach(
            kind,
            {
                "hostname": hostname,
                "username": username,
                "port": port,
                "identity_file": identity_file,
                "jump_host": jump_host,
                "ssh_options": ssh_options,
                "connect_timeout": connect_timeout,
                "remote_python": remote_python,
                "rest_url": rest_url,
                "token_file": token_file,
                "slurm_conf": slurm_conf,
            },
        )
        above = inherited(kind)
        own = None if packaging is None else check_packaging(packaging, "the cluster")
        outer = above.packaging and check_packaging(above.packaging, OUTER)
        trust = check_trust(trust_group)
        if trust is None:
            trust = above.trust_group and job_base_dir is None
        if trust and kind == "debug":
            raise errors.OptionError(
                'trust_group=True does not go with backend_type="debug": its calls run in this '
                "process, and their directories are this user's alone",
                hint="trust_group=False",
            )
        super().__init__(
            kind,
            _check_base(os.fspath(job_base_dir or above.base or DEFAULT_BASE)),
            how,
            packaging=choose(own, outer or None),
            callbacks=gather(callbacks, progress),
            defaults=merge(
                above.defaults,
                normalize(options, where="Cluster", beside=Cluster.__init__.__kwdefaults__ or ()),
            ),
            trust_group=trust,
        )

    # ---- other ways to make one -----------------------------------------------------------------

    @classmethod
    def from_env(cls, profile: str | None = None, **overrides: Any) -> Self:
        """The cluster of a profile in the nearest `Slurmfile.toml`, or in `$SLURMFILE`."""
        from slurm.config import found_profile, override

        if isinstance(overrides.get("env"), str):
            raise errors.UsageError(
                f"env={overrides['env']!r}: a profile is the first argument; env= sets variables",
                hint=f"write {cls.__name__}.from_env({overrides['env']!r})",
            )
        return cls(**override(found_profile(profile), overrides))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], profile: str | None = None, **overrides: Any
    ) -> Self:
        """The cluster of a profile in this Slurmfile."""
        from pathlib import Path

        from slurm.config import load_profile, override

        return cls(**override(load_profile(Path(path), profile), overrides))

    @classmethod
    def from_stack(cls, name: str, **overrides: Any) -> Self:
        """The cluster that `slurm cluster up` brought up under this name."""
        from slurm.config import load_stack, override

        return cls(**override(load_stack(name), overrides))

    @classmethod
    def from_backend(cls, backend: Backend, **options: Any) -> Self:
        """A cluster over a backend of your own, for tests and other schedulers."""
        cluster = cls(**options)
        cluster._backend = backend
        cluster.backend_type = backend.kind
        return cluster

    # ---- the active cluster ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._journal is not None:
                self._journal.batch.send()
        finally:
            leave(self)

    # ---- submission -----------------------------------------------------------------------------

    @overload
    def submit(
        self,
        task: Task[P, T],
        *,
        after: Upstream = (),
        packaging: PackagingGiven | None = None,
        **options: Unpack[TaskOptions],
    ) -> Submitter[P, T]: ...
    @overload
    def submit(
        self,
        task: Callable[P, T],
        *,
        after: Upstream = (),
        packaging: PackagingGiven | None = None,
        **options: Unpack[TaskOptions],
    ) -> Submitter[P, T]: ...
    def submit(
        self,
        task: Any,
        *,
        after: Upstream = (),
        packaging: PackagingGiven | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """What submits a call with these options: `cluster.submit(train, time="2h")(lr=0.1)`."""
        return Submitter(self, task, after, packaging, options)

    @overload
    def explain(
        self,
        task: Task[P, T],
        *,
        after: Upstream = (),
        packaging: PackagingGiven | None = None,
        **options: Unpack[TaskOptions],
    ) -> Planner[P]: ...
    @overload
    def explain(
        self,
        task: Callable[P, T],
        *,
        after: Upstream = (),
        packaging: PackagingGiven | None = None,
        **options: Unpack[TaskOptions],
    ) -> Planner[P]: ...
    def explain(
        self,
        task: Any,
        *,
        after: Upstream = (),
        packaging: PackagingGiven | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """A dry run: `print(cluster.explain(train)(lr=0.1))` shows what would be submitted."""
        return Planner(Submitter(self, task, after, packaging, options))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect the calls of this block; at its end those of one task and layer go out as one
        array. A job whose result, id or run is asked for inside sends out all that was collected
        so far. Other threads and tasks that run meanwhile are not part of the block."""
        if open_batch(self) is not None:
            yield  # the outer block sends
            return
        self._send_batch()  # what a workflow has collected before
        with collected(self):
            yield

    def allocate(self, *, idle: str | int = "10min", **options: Unpack[TaskOptions]) -> Allocation:
        """Hold an allocation: in `with cluster.allocate(nodes=2, time="1h"):` calls are its steps.

        It ends when the `with` block is over and its steps are, or when no client was there and
        nothing ran for `idle`.
        """
        from slurm.allocation import allocate

        return allocate(self, idle, options)

    def executor(
        self,
        max_workers: int = 4,
        *,
        min_workers: int = 0,
        workers_per_job: int = 1,
        retries: int = 2,
        idle: str | int = "1min",
        **options: Unpack[TaskOptions],
    ) -> Executor:
        """A `concurrent.futures.Executor` over warm workers in jobs of this cluster.

        `options` are those of one worker; a job holds `workers_per_job` of them. Jobs are added
        while calls wait, up to `max_workers`, and end after `idle` without calls, down to
        `min_workers`. A call whose worker dies is tried again `retries` times.
        """
        from slurm.executor import Executor

        numbers = (max_workers, min_workers, workers_per_job, retries)
        return Executor(self, *numbers, idle=idle, options=options)

    # ---- jobs of before -------------------------------------------------------------------------

    def attach(self, run: str | os.PathLike[str]) -> Any:
        """The job or array of a run again, by run name, path or job id, from any process."""
        from slurm.attaching import attach

        if not isinstance(run, (str, os.PathLike)):
            raise errors.UsageError(
                f"attach: {run!r} names no run", hint="give the name of a run, its path or a job id"
            )
        return attach(self, os.fspath(run))

    def cancel(self, jobs: Sequence[Job[Any]], *, children: bool = True) -> int:
        """Ask the scheduler to end jobs, all in one round trip; how many were asked.

        The children of workflows are cancelled too, unless `children=False`.
        """
        from slurm.cancelling import cancel

        return cancel(self, jobs, children)

    def clear_cache(self, task: Task[..., Any] | None = None) -> int:
        """Forget the cached values of a task, or of all; how many there were. No run is deleted."""
        return self.backend.cache_clear(None if task is None else target_of(task.unwrapped))

    def put(
        self, local: str | os.PathLike[str], remote: str, progress: Progress | None = None
    ) -> str:
        """Copy a file to the cluster, verified; returns its path there.

        `~` and relative paths count from your home there. A copy that was cut off goes on where it
        stopped. `progress` is told how many bytes of how many are there.
        """
        from slurm.files import put_file

        return put_file(self.backend, local, remote, progress)

    def get(
        self, remote: str, local: str | os.PathLike[str], progress: Progress | None = None
    ) -> Path:
        """Copy a file from the cluster, verified; returns its path here."""
        from slurm.files import get_file

        return get_file(self.backend, remote, local, progress)

    def get_job(self, job_id: str | int) -> Any:
        """The job with this id again."""
        return self.attach(str(job_id))

    def queue(self) -> list[JobStatus]:
        """Your jobs that have not ended, as the scheduler lists them."""
        return self.backend.queue()

    def accounting(
        self, jobs: Sequence[Job[Any] | str], since: float | None = None
    ) -> list[JobStatus]:
        """What the scheduler's accounting keeps of jobs, one row per attempt; [] where it has none.

        `since` is in seconds since the epoch; the last 30 days when left out.
        """
        ids = [job.bare if isinstance(job, Job) else str(parse_job_id(job)) for job in jobs]
        return self.backend.accounting(ids, time.time() - 30 * 86400 if since is None else since)

    def run(self, command: Sequence[str], timeout: float = 60.0) -> CommandResult:
        """Run a program on the machine of the scheduler: `cluster.run(["sinfo", "-N"]).stdout`.

        The words are given to it as they are; there is no shell between.
        """
        if isinstance(command, str) or not all(isinstance(word, str) for word in command):
            raise errors.UsageError(
                f"command={command!r} is not a list of words",
                hint='write cluster.run(["sinfo", "-N"])',
            )
        if not command:
            raise errors.UsageError("command=[] names no program", hint='write ["sinfo"]')
        return CommandResult(*self.backend.run(command, timeout))

    def diagnose(self) -> dict[str, Any]:
        """What works and what does not, as a dictionary: for a first look, and for bug reports."""
        from slurm.diagnosis import diagnose

        return diagnose(self)

    def __repr__(self) -> str:
        place = self.host and f"{self.host}:"
        return f"<Cluster {self.backend_type} {place}{self._base}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self!r} belongs to this process; make one where it is needed")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from slurm.html import cluster_html

        return cluster_html(self)


def _check_base(path: str) -> str:
    if any(c in path for c in "\n\r\0"):
        raise errors.OptionError(
            f"job_base_dir={path!r} contains a line break or a NUL byte",
            hint="choose a directory whose name is one line of text",
        )
    return path
