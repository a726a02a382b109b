"""What jobs cost at most: core-hours and GPU-hours, and what an account has left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """The hours of a submission if each job takes all its time; None where no time was given."""

    core_hours: float | None
    gpu_hours: float | None


def cost_of(options: Mapping[str, Any], jobs: int) -> Cost:
    """What so many jobs with these options cost at most."""
    seconds = options.get("time")
    if not isinstance(seconds, int):
        return Cost(None, None)
    hours = seconds / 3600 * jobs
    return Cost(hours * _cpus(options), hours * _gpus(options))


def _number(options: Mapping[str, Any], name: str, default: int = 1) -> int:
    value = options.get(name)
    return value if isinstance(value, int) else default


def _tasks(options: Mapping[str, Any]) -> int:
    nodes = _number(options, "nodes")
    per_node = _number(options, "ntasks_per_node", 0)
    return max(_number(options, "ntasks"), nodes * per_node, nodes)


def _cpus(options: Mapping[str, Any]) -> int:
    return _tasks(options) * _number(options, "cpus_per_task")


def _gpus(options: Mapping[str, Any]) -> int:
    """The GPUs of one job, however they were asked for."""

    def count(name: str) -> int:
        return sum(one.count for one in options.get(name) or ())

    nodes = _number(options, "nodes")
    return (
        count("gpus") or count("gpus_per_node") * nodes or count("gpus_per_task") * _tasks(options)
    )


@dataclass(frozen=True)
class Budget:
    """What an account may use in all, and what it has used of it, in hours of one resource."""

    name: str
    resource: str
    limit: float
    used: float

    @property
    def left(self) -> float:
        """Hours that are left."""
        return max(0.0, self.limit - self.used)


def budgets(records: Sequence[Mapping[str, Any]]) -> list[Budget]:
    """The budgets among limits, as the agent's verb `budget` gives them."""
    found = []
    for record in records:
        for key, (limit, used) in record["limits"].items():
            name, _, resource = key.partition("/")
            if name == "GrpTRESMins" and (resource == "cpu" or resource.startswith("gres/gpu")):
                whose = f"user {record['user']}" if record["user"] else f"account {record['name']}"
                owner = f"QOS {record['name']}" if record["kind"] == "qos" else whose
                found.append(Budget(owner, resource, float(limit) / 60, float(used or 0) / 60))
    return found
