"""What `Cluster()` inside a job takes over from the cluster that the job was submitted with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.model.again import Retry
from slurm.model.options import normalize
from slurm.model.units import GpuRequest, Seconds

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: Where the run's environment file keeps it.
SECTION = "cluster"


@dataclass(frozen=True)
class Inherited:
    """Base directory, defaults and packaging of the submitter; empty outside of a job.

    With `trust_group` the base is the directory of the group, in which the submitter has a folder.
    """

    base: str | None = None
    packaging: Mapping[str, Any] | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)
    trust_group: bool = False


def describe(cluster: Cluster) -> dict[str, Any]:
    """The cluster as it is written into a run's environment file."""
    return {
        # Where the job runs, ssh is no part of the way.
        "scheduler": "local" if cluster.backend.kind == "ssh" else cluster.backend.kind,
        "packaging": cluster.packaging.plain(),
        "trust_group": cluster.trust_group,
        "defaults": {name: _plain(value) for name, value in cluster.defaults.items()},
    }


def scheduler_of_this_job() -> str | None:
    """`embedded` or `local` inside a job that this package submitted, else None."""
    if "SLURM_SDK_RUN" not in os.environ:
        return None
    return "embedded" if os.environ.get("SLURM_CLUSTER_NAME") == "embedded" else "local"


def inherited(backend_type: str) -> Inherited:
    """What a cluster of this type takes over in this process.

    Nothing outside of a job, and nothing where another scheduler than the job's own is asked for.
    """
    own = scheduler_of_this_job()
    if own is None or backend_type not in ("local", own):
        return Inherited()
    base = os.environ.get("SLURM_SDK_BASE")
    try:
        with open(os.path.join(os.environ["SLURM_SDK_RUN"], rundir.ENVIRONMENT)) as f:
            found = json.load(f).get(SECTION) or {}
    except (OSError, ValueError):
        found = {}
    defaults = normalize(found.get("defaults", {}), where="the defaults of this job's cluster")
    trust_group = base is not None and found.get("trust_group") is True
    if base is not None and trust_group:
        base = os.path.dirname(base)
    return Inherited(base, found.get("packaging"), defaults, trust_group)


def _plain(value: object) -> object:
    """A checked option as JSON can hold it and `normalize` takes it again."""
    if isinstance(value, Retry):
        return value.plain()
    if callable(value):
        return None  # a function that makes cache keys: it is the client's own
    if isinstance(value, Seconds):
        return f"{int(value)}s"
    if isinstance(value, tuple) and value and isinstance(value[0], GpuRequest):
        return ",".join(map(str, value))
    return list(value) if isinstance(value, tuple) else value
