"""The handles of a run: its jobs, out of its metadata and the ids of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slurm.array import ArrayJob
from slurm.job import Job
from slurm.model.parts import Part
from slurm.packed_run import PackedRun, PackJob, make_packs
from slurm.retry import Again

if TYPE_CHECKING:
    from slurm.cluster import Cluster


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
