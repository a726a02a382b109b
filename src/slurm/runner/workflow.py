"""Runs a workflow inside its job: its cluster is open, what it submits is noted in its journal."""

import os
from typing import Any, Dict, Tuple

from slurm import rundir


class _Value:
    """What the workflow returned, with the jobs in it as references."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __slurm_record__(self) -> Tuple[Dict[str, Any], bytes]:
        from slurm.returned import pack

        return pack(self._value)


def orchestrate(function: Any, run: str, index: int) -> Any:
    """The workflow's function as the runner calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from slurm.cluster import Cluster
        from slurm.journal import Journal, set_current

        _forget_seed()
        with Cluster() as cluster:
            name = os.path.relpath(run, cluster.base)
            set_current(Journal(cluster.base, name, index))
            try:
                value = function(*args, **kwargs)
                if hasattr(value, "__await__") and hasattr(value, "cr_frame"):
                    import asyncio

                    value = asyncio.run(value)
            finally:
                cluster.send_batch()
        return _Value(value)

    return call


def context() -> Any:
    """The context of a workflow's function."""
    from slurm.workflow import WorkflowContext

    return WorkflowContext.from_environment()


def _forget_seed() -> None:
    """Sets of text are pickled in the order of their hashes. The script fixes the seed, so that
    the next attempt knows the same arguments again; children are to choose their own."""
    if os.environ.pop("SLURM_SDK_SEED", None):
        os.environ.pop("PYTHONHASHSEED", None)


def wait_for(waits: Dict[str, str], error: Any) -> None:
    """Wait until the jobs that a workflow returned are over; raises `error` if one has no value.

    A job that takes a workflow's value begins when the workflow has ended, and what the workflow
    returned may still run then.
    """
    from slurm.cluster import Cluster
    from slurm.model.ids import expand_array_spec
    from slurm.returned import jobs_of_run

    cluster = Cluster()
    for run, spec in waits.items():
        wanted = set(expand_array_spec(spec))
        jobs = [job for job in jobs_of_run(cluster, run) if job.index in wanted]
        for job in jobs:
            if not job.wait():
                raise error(f"{run} has no value for call {job.index}: it did not succeed")


def parent_run() -> str:
    """The run of the workflow around this job, relative to the base; "" where there is none."""
    name = os.environ.get("SLURM_SDK_NAME", "")
    above, mark, _ = name.rpartition(f"/{rundir.TASKS}/")
    return above if mark else ""
