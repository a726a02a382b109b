"""Whether a pod fits beside those that are on a node, for when the bridge binds pods itself."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.quantities import quantity
from slurm.bridge.translation import requests_of


def room_for(pod: Pod, node: Node, there: Iterable[Pod]) -> bool:
    """Counted as the kubelet counts: pods that are still ending hold what they asked for."""
    used: dict[str, Decimal] = {}
    for other in there:
        if not other.over and other.metadata.uid != pod.metadata.uid:
            for name, value in requests_of(other).items():
                used[name] = used.get(name, Decimal(0)) + value
    have = {name: quantity(value) for name, value in node.status.allocatable.items()}
    zero = Decimal(0)
    return all(
        used.get(name, zero) + wanted <= have.get(name, zero)
        for name, wanted in requests_of(pod).items()
        if wanted
    )
