"""Target: where the calls of a cluster go, for all that submits, watches and waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from slurm import locks
from slurm.active import say_once
from slurm.api.backend import Backend
from slurm.api.connect import LocalBackend, RestSettings, SlurmSettings, connect
from slurm.api.embedded.yielding import yielding
from slurm.api.looking import OnlyLooks
from slurm.batch import Batch, open_batch
from slurm.journal import Journal, journal_for
from slurm.model.parts import Cut, cut_map
from slurm.threads import refuse_at_the_end
from slurm.watcher import Watcher, watcher_for

if TYPE_CHECKING:
    from slurm.callbacks.lines import Callbacks
    from slurm.packaging import Packaging
    from slurm.reach import Reach

#: Arrays up to this size fit every scheduler, so its limits need not be asked for.
SMALL_ARRAY = 200


class Target:
    """The part of `Cluster` that its tasks, jobs and workflows use; what people use is there."""

    #: Whether calls run as steps of an allocation that this cluster stands for.
    _steps = False

    def __init__(
        self,
        backend_type: str,
        base: str,
        how: Reach | None,
        *,
        packaging: Packaging,
        callbacks: Callbacks,
        defaults: dict[str, object],
        trust_group: bool = False,
    ) -> None:
        self.backend_type = backend_type
        self.packaging = packaging
        #: What hears of this cluster's runs.
        self.callbacks = callbacks
        self.defaults = defaults
        self._sdk_is_there = False
        #: Whether the base is a directory of a group whose members are trusted.
        self.trust_group = trust_group
        self._base = base
        self._how = how
        self._backend: Backend | None = None
        self._connecting = locks.lock("cluster.connecting")
        self._limits: dict[str, Any] | None = None
        self._looking: bool | None = None

    def _only_look(self, inside: bool = False) -> None:
        """Have no verb that submits, changes or unpickles: to be said before the first use.

        `inside`: no log outside of its run is read.
        """
        self._backend, self._looking = None, inside

    @property
    def backend(self) -> Backend:
        """What carries the verbs; connected on first use."""
        refuse_at_the_end("the cluster was asked")
        found = self._backend
        if found is not None:
            return found
        with self._connecting:
            if self._backend is None:
                looking = self._looking is not None
                found = connect(self.backend_type, self._base, self._how, looking, self.trust_group)
                kind = found.kind
                if self._looking is not None:
                    # What else a Backend has is not there: to ask for it is an AttributeError.
                    found = cast("Backend", OnlyLooks(found, self._looking))
                self._backend = found  # whole: others read it without the lock
                # A job of the embedded scheduler was sent there by a client that said so.
                inside = "SLURM_JOB_ID" in os.environ
                if self.backend_type == "local" and kind == "embedded" and not inside:
                    say_once("no sbatch on this machine: jobs run on the embedded scheduler")
            return self._backend

    @property
    def base(self) -> str:
        """The directory of all runs, as the cluster sees it."""
        backend = self.backend
        if isinstance(backend, LocalBackend):
            return backend.agent.base
        return str(backend.hello()["base"])

    @property
    def _trusted_group(self) -> int | None:
        """The number of the group whose members' runs are read; None where there is none."""
        return self.backend.hello().get("group") if self.trust_group else None

    @property
    def directory(self) -> str:
        """The same as it was given, without asking the cluster."""
        return self._base

    @property
    def _journal(self) -> Journal | None:
        """The journal of the workflow that runs in this process, None outside of one."""
        return journal_for(self)

    @property
    def _watcher(self) -> Watcher:
        """What learns how jobs end; clusters with the same target share it."""
        return watcher_for(self.backend)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """While somebody waits for results: files are read more often, and progress is shown."""
        with self._watcher.attention(), self.callbacks.waiting(), yielding():
            yield

    @property
    def host(self) -> str:
        """The login node, "" where the cluster is this machine's."""
        how = self._how
        return "" if how is None or isinstance(how, (RestSettings, SlurmSettings)) else how.name

    # ---- how runs are collected, placed and cut -------------------------------------------------

    @property
    def _collecting(self) -> Batch | None:
        """What calls are collected in now: of an open `batch()`, or of the workflow that runs."""
        own = open_batch(self)
        journal = self._journal if own is None else None
        return own if journal is None else journal.batch

    def _send_batch(self) -> None:
        """Submit what was collected so far."""
        batch = self._collecting
        if batch is not None:
            batch.send()

    def _place(self, run: str) -> str:
        """Where a new run lies, relative to the base: what a workflow submits, below its own."""
        return run if self._journal is None else self._journal.place(run)

    def _cut(self, count: int, throttled: bool, ask: bool = False) -> Cut:
        """How a map of so many items is cut into arrays, by the limits of the scheduler."""
        if count <= SMALL_ARRAY and not ask and self._limits is None:
            return cut_map(count)
        if self._limits is None:
            self._limits = self.backend.limits()
        limits = self._limits
        return cut_map(
            count,
            max_array_size=_number(limits, "MaxArraySize", "max_array_size"),
            max_submitted=_number(limits, "MaxSubmitJobs", "MaxJobCount", "max_job_count"),
            one_by_one=throttled,
        )


def _number(limits: dict[str, Any], *names: str) -> int | None:
    found = [int(str(limits[n])) for n in names if str(limits.get(n, "")).isdigit()]
    return min(found, default=None)
