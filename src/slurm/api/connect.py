"""Which backend a `backend_type` means, and the one whose agent runs in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from slurm import errors, rundir
from slurm.api import store
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.api.backend import Backend, as_error

if TYPE_CHECKING:
    from slurm.api.openssh import SshSettings
    from slurm.api.origin import Origin


class RestSettings(NamedTuple):
    """Where slurmrestd answers, and the file with the token for it; without one `$SLURM_JWT`."""

    url: str
    token_file: str | None


class SlurmSettings(NamedTuple):
    """The slurm.conf of one of several clusters of this machine."""

    conf: str


class LocalBackend(Backend):
    """The agent in this process: this machine's Slurm, slurmrestd, or the embedded scheduler."""

    def __init__(
        self,
        scheduler: Any,
        base: str,
        how: RestSettings | SlurmSettings | None = None,
        trust_group: bool = False,
    ) -> None:
        try:
            self.agent = Agent(scheduler, base, _others_here, trust_group)
        except AgentError as error:
            raise as_error(error) from None
        rest = isinstance(how, RestSettings)
        self.kind = "embedded" if scheduler.kind == "embedded" else "rest" if rest else "local"
        conf = os.environ.get("SLURM_CONF", "") if self.kind == "local" else ""
        trusted = "" if self.agent.group is None else f":{self.agent.group}"
        self.target = f"{self.kind}:{how[0] if how else conf}:{self.agent.base}{trusted}"

    def call(self, verb: str, *args: Any) -> Any:
        """Call the agent's method."""
        if verb in store.VERBS:
            return store.VERBS[verb](self.agent, *args)
        return getattr(self.agent, verb)(*args)

    def open_value(self, run: str, name: str) -> Any:
        """A large value where it lies, after a look at who can have written it."""
        self._call("read_value", run, name, 0, 1)
        folder = self.agent.readable(run)
        path = os.path.join(folder, rundir.VALUES, name)
        return rundir.Stretch(path, 0, os.path.getsize(path), self.agent.trusted(folder))


def _others_here(made: Origin) -> list[Any]:
    """The scheduler of this machine that may be the one that made a run."""
    import shutil
    import socket

    if made.kind == "embedded" and made.controller == socket.gethostname():
        from slurm.api.embedded import EmbeddedScheduler

        return [EmbeddedScheduler()]
    if made.kind == "slurm" and shutil.which("squeue"):
        from slurm.api.slurm_scheduler import SlurmScheduler

        return [SlurmScheduler()]
    return []


def connect(
    backend_type: str,
    base: str,
    how: SshSettings | RestSettings | SlurmSettings | None = None,
    looking: bool = False,
    trust_group: bool = False,
) -> Backend:
    """The backend for a `backend_type`; `how` says how the other side of it is reached.

    `looking`: it is for one that only looks, whose agent watches nothing for others.
    `trust_group`: the base is a directory of a group, and its members are trusted.
    """
    if isinstance(how, RestSettings):
        from slurm.api.rest_scheduler import RestScheduler

        return LocalBackend(RestScheduler(*how), base, how, trust_group)
    if isinstance(how, SlurmSettings):
        from slurm.api.slurm_scheduler import SlurmScheduler

        return LocalBackend(SlurmScheduler(how.conf), base, how, trust_group)
    if how is not None:
        from slurm.api.ssh import ssh_backend

        return ssh_backend(how, base, looking, trust_group)
    if backend_type == "local":
        backend_type = _scheduler_here()
    if backend_type == "embedded":
        from slurm.api.embedded import EmbeddedScheduler

        return LocalBackend(EmbeddedScheduler(), base, None, trust_group)
    from slurm.api.slurm_scheduler import SlurmScheduler

    return LocalBackend(SlurmScheduler(), base, None, trust_group)


def _scheduler_here() -> str:
    """What `local` means: in a job the scheduler it runs under, else this machine's."""
    if "SLURM_SDK_RUN" in os.environ and "SLURM_JOB_ID" in os.environ:
        return "embedded" if os.environ.get("SLURM_CLUSTER_NAME") == "embedded" else "local"
    return "embedded" if _without_slurm() else "local"


def _without_slurm() -> bool:
    """True for a machine that is no part of a Slurm cluster; a half one is refused."""
    import shutil

    if shutil.which("sbatch"):
        return False
    signs = [f"${name}" for name in ("SLURM_CONF", "SLURM_JOB_ID") if os.environ.get(name)]
    signs += [path for path in ("/etc/slurm", "/etc/slurm-llnl") if os.path.exists(path)]
    if signs:
        raise errors.NoScheduler(
            f"sbatch is not on PATH, but this machine looks like part of a Slurm cluster "
            f"({', '.join(signs)})",
            hint="put Slurm's commands on PATH (module load slurm?), or say that you want the "
            'embedded scheduler: Cluster(backend_type="embedded")',
        )
    return True
