"""Job, Executor and InfoWatcher: what executors of others are built on."""

from slurm.submitit.core import utils
from slurm.submitit.core.asynchronous import AsyncJobProxy
from slurm.submitit.core.executors import EquivalenceDict, Executor, PicklingExecutor
from slurm.submitit.core.jobs import DelayedJob, Job, R
from slurm.submitit.core.watching import InfoWatcher

__all__ = [
    "AsyncJobProxy",
    "DelayedJob",
    "EquivalenceDict",
    "Executor",
    "InfoWatcher",
    "Job",
    "PicklingExecutor",
    "R",
    "utils",
]
