"""Jobs of the Slurm behind a login node: `AutoExecutor(folder, cluster="ssh://user@host:port")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from slurm.submitit.core.paths import split_folder
from slurm.submitit.core.records import RecordJob
from slurm.submitit.core.runs import BASE, Site
from slurm.submitit.core.utils import DelayedSubmission
from slurm.submitit.slurm.slurm import SlurmExecutor, SlurmJob

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: The class of the jobs of each login node.
_classes: dict[str, type[SshJob]] = {}


class SshJob(RecordJob[Any], SlurmJob[Any]):
    """A job of a Slurm that is reached by ssh; its value and its logs come back that way."""

    #: What the core's `Cluster` is given to reach the login node.
    how: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._paths.given = str(folder)  # not this machine's: nothing is expanded here

    @classmethod
    def _make_cluster(cls, base: str) -> Cluster:
        from slurm.cluster import Cluster

        return Cluster(job_base_dir=base, **cls.how)

    @classmethod
    def site(cls, folder: Path | str) -> Site:
        """Where the runs of a folder are; the folder is one of the cluster."""
        base = str(split_folder(Path(folder))[0] / BASE)
        if base not in cls._sites:
            cls._sites[base] = Site(cls._make_cluster(base))
        return cls._sites[base]

    @property
    def state(self) -> str:
        """The state in Slurm's words."""
        return "UNKNOWN" if self.run_job is None else self.run_job.state.value

    def _interrupt(self, timeout: bool = False) -> None:
        raise NotImplementedError("a job over ssh is interrupted where its Slurm is: scancel -s")

    def __reduce__(self) -> tuple[Any, ...]:
        state = {**self.__getstate__(), "_sub_jobs": []}
        return _attach, (self.how, self._paths._folder, self._job_id, self._tasks, state)


def job_class(how: Mapping[str, Any]) -> type[SshJob]:
    """The class of the jobs of a login node."""
    key = repr(sorted(how.items()))
    if key not in _classes:
        _classes[key] = type("SshJob", (SshJob,), {"how": dict(how), "_sites": {}})
    return _classes[key]


def _attach(
    how: dict[str, Any], folder: Path, job_id: str, tasks: Sequence[int], state: dict[str, Any]
) -> SshJob:
    job = job_class(how)(folder, job_id, tasks)
    job.keep(state["_call"], state["_index"])
    return job


class SshExecutor(SlurmExecutor):
    """Submits calls to the Slurm behind a login node; `folder` is a directory there.

    The login node is reached by your own OpenSSH with what `~/.ssh/config` says of it; the
    arguments after `python` say more.
    """

    _folder_is_here = False

    def __init__(
        self,
        folder: Path | str,
        url: str,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
        identity_file: str | None = None,
        jump_host: str | None = None,
        ssh_options: Mapping[str, object] | Sequence[str] = (),
        remote_python: str | None = None,
    ) -> None:
        super().__init__(folder, max_num_timeout, max_pickle_size_gb, python)
        self.folder = Path(folder)  # its `~` is the one over there
        at = urlsplit(url)
        if not at.hostname:
            raise ValueError(f"cluster={url!r} names no host: write ssh://host")
        given = {
            "hostname": at.hostname,
            "username": at.username,
            "port": at.port,
            "identity_file": identity_file,
            "jump_host": jump_host,
            "ssh_options": ssh_options,
            "remote_python": remote_python,
        }
        how = {name: value for name, value in given.items() if value}
        self.job_class = self.record_job_class = job_class(how)  # type: ignore[misc]

    @classmethod
    def name(cls) -> str:
        """Parameters are those of Slurm: `slurm_partition=`."""
        return "slurm"

    @classmethod
    def affinity(cls) -> int:
        """Only if asked for."""
        return 0

    def _internal_process_submissions(
        self, delayed_submissions: list[DelayedSubmission]
    ) -> list[Any]:
        from slurm.packaging.remote import remote_of, sending_to

        remote = remote_of(self._site().cluster)
        assert remote is not None
        with sending_to(remote, None):  # modules that are not installed there travel along
            return super()._internal_process_submissions(delayed_submissions)

    def _stage(self, submissions: Sequence[DelayedSubmission]) -> list[Path]:
        import tempfile

        there, self.folder = self.folder, Path(tempfile.mkdtemp(prefix="submitit-"))
        try:
            return super()._stage(submissions)
        finally:
            self.folder = there

    def _folder_there(self) -> str:
        base = Path(self._site().cluster.base)
        return str(base.parent / split_folder(self.folder)[1])

    def _options(self, count: int, listens: bool) -> dict[str, Any]:
        options = super()._options(count, listens)
        return {**options, "all_ranks": True} if self._num_tasks() > 1 else options
