"""How many items of a packed map one job works on, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from slurm.errors import OptionError, UsageError
from slurm.model.again import Retry

#: `pack="auto"` gives each job at least so many items, and makes at most so many jobs, unless each
#: of them had more than `AUTO_MOST` items then.
AUTO_ITEMS, AUTO_JOBS, AUTO_MOST = 100, 32, 5000


class Pack(NamedTuple):
    """A packed map: each job works on up to `size` items with `workers` processes."""

    size: int
    items: int
    workers: int
    cpus: int
    why: str

    @property
    def threads(self) -> int:
        """The threads of each worker: all CPUs of a job are used, and none twice."""
        return max(1, self.cpus // self.workers)

    @property
    def jobs(self) -> int:
        """How many elements the array has."""
        return -(-self.items // self.size)

    def __str__(self) -> str:
        warm = "one warm worker" if self.workers == 1 else f"{self.workers} warm workers"
        each = f"{self.jobs} jobs of {self.size}" if self.jobs > 1 else "one job"
        return f"{self.items} items in {each} ({self.why}), each with {warm}"

    def items_of(self, job: int) -> range:
        """The items of one element."""
        return range(job * self.size, min(self.items, (job + 1) * self.size))


def make_pack(
    pack: object, items: int, *, cpus: int = 1, max_concurrent: int | None = None
) -> Pack:
    """The pack that was asked for: a number of items per job, or `"auto"`.

    A job has one worker per CPU; `max_concurrent` counts items, so it can make them fewer.
    """
    workers = min(cpus, max_concurrent) if max_concurrent else cpus
    if pack == "auto":
        return _auto(items, workers, cpus, max_concurrent)
    if isinstance(pack, bool) or not isinstance(pack, int) or pack < 1:
        raise OptionError(
            f"pack={pack!r} is no number of items per job",
            hint='write pack="auto", or how many items one job takes, such as pack=1000',
        )
    return Pack(min(pack, items), items, workers, cpus, f"pack={pack}")


def plan_packs(
    pack: object, items: int, options: Mapping[str, object], max_concurrent: object
) -> tuple[Pack | None, int, object]:
    """The pack of a map, how many elements its array has, and how many of them run at once."""
    if pack is None:
        return None, items, max_concurrent
    most = max_concurrent if isinstance(max_concurrent, int) else None
    cpus = int(str(options.get("cpus_per_task") or 1))
    found = make_pack(pack, items, cpus=cpus, max_concurrent=most)
    return found, found.jobs, max(1, most // found.workers) if most else None


def item_retry(pack: Pack | None, options: Mapping[str, object]) -> dict[str, Any] | None:
    """What a worker has to know to try an item that raised again; None: it does not."""
    retry = options.get("retry")
    if pack is None or not isinstance(retry, Retry):
        return None
    return {name: retry.plain()[name] for name in ("times", "on", "backoff")}


def check_map(name: str, workflow: bool, common: object, pack: object) -> None:
    """Refuse what no items could make right."""
    if pack is not None and workflow:
        raise UsageError(
            f"{name}.map: pack={pack!r} is for tasks: {name} is a workflow, and a workflow submits "
            "jobs from a job of its own",
            hint=f"leave pack out: {name}.map(items)",
        )
    names = common if isinstance(common, Mapping) else [None]
    if common is not None and not all(isinstance(one, str) for one in names):
        raise UsageError(
            f"{name}.map: common={common!r} is not a dictionary of keyword arguments",
            hint='name them: common={"name": value}',
        )


def check_one_process(pack: Pack | None, ranks: bool) -> None:
    """Refuse a packed map of jobs with several ranks: its workers are the processes."""
    if pack is not None and ranks:
        raise UsageError(
            "a packed map runs one process per CPU by itself, so its jobs cannot have several "
            "tasks or nodes",
            hint="leave out ntasks and nodes; cpus_per_task is the number of workers in a job",
        )


def _auto(items: int, workers: int, cpus: int, max_concurrent: int | None) -> Pack:
    jobs = max(1, min(AUTO_JOBS, items // AUTO_ITEMS), items // AUTO_MOST)
    why = f"auto: at least {AUTO_ITEMS} items a job, at most {AUTO_JOBS} jobs"
    if jobs > AUTO_JOBS:
        why = f"auto: about {AUTO_MOST} items a job"
    if max_concurrent and max(1, max_concurrent // workers) < jobs:
        jobs = max(1, max_concurrent // workers)
        why = f"auto: max_concurrent={max_concurrent} lets {jobs} such jobs run at once"
    return Pack(-(-items // jobs), items, workers, cpus, why)
