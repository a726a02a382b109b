"""What works on a cluster and what does not: a first look, and what a bug report needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slurm import errors

if TYPE_CHECKING:
    from slurm.cluster import Cluster


def diagnose(cluster: Cluster) -> dict[str, Any]:
    """The answers to all questions; those that failed are under `errors`."""
    facts: dict[str, Any] = {
        "backend_type": cluster.backend_type,
        "python": sys.version.split()[0],
        "errors": [],
    }
    for name, ask in _QUESTIONS.items():
        try:
            facts[name] = ask(cluster)
        except errors.SlurmError as error:
            facts["errors"].append(str(error))
    return facts


def look_around(path: str) -> dict[str, Any]:
    """What a node sees; runs there as a job of its own."""
    import shutil

    try:
        with open("/proc/self/cgroup") as file:
            groups = file.read()
    except OSError:
        groups = ""
    return {
        "node": os.uname().nodename,
        "python": sys.version.split()[0],
        "sees": os.path.isdir(path),
        "sbatch": shutil.which("sbatch") is not None,
        "memory": "slurm" in groups and "job_" in groups,
    }


def _writable(cluster: Cluster) -> bool:
    facts = cluster.backend.hello()
    if "problem" in facts:
        return facts["problem"] is None
    return os.access(_existing(cluster.base), os.W_OK)


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


_QUESTIONS: dict[str, Callable[[Cluster], Any]] = {
    "scheduler": lambda c: c.backend.hello()["scheduler"],
    "job_base_dir": lambda c: c.base,
    "job_base_dir_writable": _writable,
    "nodes": lambda c: len(c.backend.nodes()),
    "partitions": lambda c: [row["name"] for row in c.backend.partitions()],
    "queued_jobs": lambda c: len(c.backend.queue()),
    "open_jobs": lambda c: c._watcher.open_jobs,
    "scheduler_polls": lambda c: c._watcher.polls,
}
