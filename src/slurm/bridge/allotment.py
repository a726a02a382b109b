"""Whether a job still holds what its pods need: its owner may change it in Slurm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from slurm.api.rest_client import number_of
from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.sizes import read_gres, same
from slurm.bridge.translation import needs_of


@dataclass(frozen=True)
class Allotment:
    """What a job has on each of its nodes; `memory` None is all of it."""

    cpus: int
    memory: int | None
    gres: str = ""


def read_allotment(row: Mapping[str, Any]) -> Allotment:
    """The part of a job's row that says so."""
    total, nodes = number_of(row.get("cpus")) or 0, number_of(row.get("node_count")) or 0
    cpus = total // nodes if nodes else 0
    memory = number_of(row.get("memory_per_node"))
    if memory is None:
        memory = cpus * (number_of(row.get("memory_per_cpu")) or 0)
    elif not memory:
        memory = None  # zero is all that the node has
    return Allotment(cpus, memory, str(row.get("tres_per_node") or "").replace("gres:", "gres/"))


def too_small(pod: Pod, has: Allotment, gres: Mapping[str, str]) -> str | None:
    """What a job has less of than the pod requests, or None."""
    needs = needs_of(pod, gres)
    if needs.cpus and has.cpus < needs.cpus:
        return f"it has {has.cpus} of the {needs.cpus} CPUs that the pod requests"
    if needs.memory and has.memory is not None and has.memory < needs.memory:
        return f"it has {has.memory} of the {needs.memory} MiB that the pod requests"
    for name, count in needs.gres:
        there = _count(has.gres, name)
        if there < count:
            return f"it has {there} of the {count} {name} that the pod requests"
    return None


def _count(text: str, name: str) -> int:
    try:
        return sum(one.count for one in read_gres(text) if same(one.name, name)) if text else 0
    except ValueError:
        return 0


def outside(pod: Pod, chosen: Collection[str], nodes: Mapping[str, Node]) -> bool:
    """Whether the pod is on a node that its job gave back; `chosen` are the job's nodes."""
    mine = [name for name, node in nodes.items() if node.metadata.name == pod.spec.nodeName]
    return bool(chosen and mine) and not set(mine) & set(chosen)
