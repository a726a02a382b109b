"""Which executors and job environments there are: ours, and those of installed plug-ins."""

from __future__ import annotations

import functools

from slurm.submitit.core import logger

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint
    from typing import Any

    from slurm.submitit.core.executors import Executor
    from slurm.submitit.core.job_environment import JobEnvironment

#: The group of entry points that plug-ins declare, as for submitit.
GROUP = "submitit"


@functools.lru_cache(maxsize=1)
def _get_plugins() -> tuple[list[type[Executor]], list[JobEnvironment]]:
    """All executors and environments; ours first, and what is faulty is logged and left out."""
    from slurm.submitit.local import debug, local
    from slurm.submitit.slurm import slurm

    executors: list[type[Executor]] = [
        slurm.SlurmExecutor,
        local.LocalExecutor,
        debug.DebugExecutor,
    ]
    environments: list[JobEnvironment] = [
        slurm.SlurmJobEnvironment(),
        local.LocalJobEnvironment(),
        debug.DebugJobEnvironment(),
    ]
    for point in _entry_points():
        try:
            if point.name == "executor":
                executors.append(point.load())
            elif point.name == "job_environment":
                environments.append(point.load()())
            else:
                logger.warning(
                    "entry point %s = %s is neither an executor nor a job_environment",
                    point.name,
                    point.value,
                )
        except Exception as error:  # noqa: BLE001 - a plug-in of others must not break the host
            package = point.value.partition(":")[0]
            logger.exception("plug-in %r cannot be used: %s", package, error)
    return executors, environments


def _entry_points() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


@functools.lru_cache(maxsize=1)
def get_executors() -> Mapping[str, type[Executor]]:
    """The executors by name."""
    return {executor.name(): executor for executor in _get_plugins()[0]}


def get_job_environments() -> Mapping[str, JobEnvironment]:
    """The job environments by name."""
    return {_name_of(env): env for env in _get_plugins()[1]}


def _name_of(env: Any) -> str:
    name = env.name if hasattr(env, "name") else type(env).__name__.lower()
    return str(name() if callable(name) else name)


def get_job_environment() -> JobEnvironment:
    """The environment of the job that this process runs in."""
    found = get_job_environments()
    for env in found.values():
        if env.activated():
            return env
    raise RuntimeError(
        "this process runs in no job, so it cannot be told which environment it has: "
        f"{', '.join(found)}"
    )
