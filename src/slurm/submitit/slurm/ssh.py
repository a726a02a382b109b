"""Jobs of the Slurm behind a login node: `AutoExecutor(folder, cluster="ssh://user@host:port")`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from slurm.submitit.core.records import RecordJob
from slurm.submitit.core.runs import BASE, Site
from slurm.submitit.core.utils import DelayedSubmission
from slurm.submitit.slurm.slurm import SlurmExecutor, SlurmJob

if TYPE_CHECKING:
    from slurm.cluster import Cluster


class SshJob(RecordJob[Any], SlurmJob[Any]):
    """A job of a Slurm that is reached by ssh; its value and its logs come back that way."""

    #: The login node, as `ssh://user@host:port`.
    url: ClassVar[str] = ""

    @classmethod
    def _make_cluster(cls, base: str) -> Cluster:
        from slurm.cluster import Cluster

        parts = urlsplit(cls.url)
        return Cluster(
            hostname=parts.hostname, username=parts.username, port=parts.port, job_base_dir=base
        )

    @classmethod
    def site(cls, folder: Path | str) -> Site:
        """Where the runs of a folder are; the folder is one of the cluster."""
        base = f"{folder}/{BASE}"
        if base not in cls._sites:
            cls._sites[base] = Site(cls._make_cluster(base))
        return cls._sites[base]

    @property
    def state(self) -> str:
        """The state in Slurm's words."""
        return "UNKNOWN" if self.run_job is None else self.run_job.state.value


class SshExecutor(SlurmExecutor):
    """Submits calls to the Slurm behind a login node; `folder` is a directory there."""

    job_class: ClassVar[type[SshJob]] = SshJob
    record_job_class: ClassVar[type[SshJob]] = SshJob
    _folder_is_here = False

    def __init__(self, folder: Path | str, **kwargs: Any) -> None:
        super().__init__(folder, **kwargs)
        self.folder = Path(folder)  # its `~` is the one over there

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
        from slurm.packaging import sending

        with sending(self._site().cluster):  # modules that are not installed there travel along
            return super()._internal_process_submissions(delayed_submissions)

    def _stage(self, submissions: Sequence[DelayedSubmission]) -> list[Path]:
        import tempfile

        there, self.folder = self.folder, Path(tempfile.mkdtemp(prefix="submitit-"))
        try:
            return super()._stage(submissions)
        finally:
            self.folder = there

    def _options(self, count: int, listens: bool) -> dict[str, Any]:
        options = super()._options(count, listens)
        return {**options, "all_ranks": True} if self._num_tasks() > 1 else options


@functools.lru_cache(maxsize=None)
def executor_for(url: str) -> type[SshExecutor]:
    """The executor of one login node."""
    if not urlsplit(url).hostname:
        raise ValueError(f"cluster={url!r} names no host: write ssh://host or ssh://user@host:port")
    job = type("SshJob", (SshJob,), {"url": url, "_sites": {}, "__module__": __name__})
    return type("SshExecutor", (SshExecutor,), {"job_class": job, "record_job_class": job})
