"""Local jobs have an embedded scheduler of their own, Slurm jobs a cluster that preempts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

# A job in `low` has to make way for one in `high`, after it was told; arrays are cut at ten.
PREEMPTING = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "MaxArraySize=11",
    "PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=5 PreemptMode=OFF",
    "PartitionName=low Nodes=ALL State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20",
    "PartitionName=high Nodes=ALL State=UP PriorityTier=9 PreemptMode=OFF",
)


@pytest.fixture(scope="session")
def scheduler_dir() -> Iterator[Path]:
    """A private directory with a short name: the path of a unix socket holds 107 bytes."""
    from slurm.api.embedded import EmbeddedScheduler

    directory = Path(tempfile.mkdtemp(prefix="sdk-", dir="/tmp"))
    yield directory
    EmbeddedScheduler({"SLURM_SDK_EMBEDDED_DIR": str(directory)}).stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_scheduler(
    _clean_environment: None, scheduler_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"DIR": str(scheduler_dir), "IDLE_S": "30", "KILL_WAIT": "2", "CPUS": "8"}
    for name, value in settings.items():
        monkeypatch.setenv(f"SLURM_SDK_EMBEDDED_{name}", value)


@pytest.fixture(scope="session")
def preempting_cluster(
    own_slurm_cluster: Callable[..., AbstractContextManager[RunningCluster]],
) -> Iterator[RunningCluster]:
    """A real Slurm of two nodes whose partition `low` is preempted by `high`."""
    made = own_slurm_cluster(nodes=2, extra_conf=PREEMPTING)
    with made as cluster, pytest.MonkeyPatch.context() as patch:
        for key, value in cluster.env.items():
            patch.setenv(key, value)
        yield cluster
