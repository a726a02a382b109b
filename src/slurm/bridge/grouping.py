"""Which pods start together: single pods, and gangs of a PodGroup or a LeaderWorkerSet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm.bridge.kube_types import Pod, PodGroup
from slurm.bridge.names import (
    JOB_INDEX,
    LWS_GROUP,
    LWS_SIZE,
    LWS_WORKER_INDEX,
    POD_GROUP_LABEL,
)
from slurm.bridge.parameters import fields
from slurm.model.hostlist import host_order


@dataclass(frozen=True)
class Gang:
    """The pods that one key stands for; `least` of them must be there before any may start.

    `least` is None while the object that says it is not there. More than `most` never start.
    """

    key: str
    pods: tuple[Pod, ...]
    least: int | None = 1
    most: int | None = None


def gang_key(pod: Pod, groups: Mapping[str, int | None]) -> str:
    """The key of a pod's gang. Namespaces are part of it: two groups of one name never meet.

    A Job's and a JobSet's pods start one by one, as Kubernetes would start them.
    """
    meta = pod.metadata
    name = pod.spec.schedulingGroup.podGroupName if pod.spec.schedulingGroup else ""
    if name:
        key = f"podgroup/{meta.namespace}/{name}"
        # A group without a gang policy is no gang.
        return f"pod/{meta.uid}" if groups.get(key, 1) == 0 else key
    if label := meta.labels.get(POD_GROUP_LABEL):
        return f"coscheduling/{meta.namespace}/{label}"
    if (group := meta.labels.get(LWS_GROUP)) and meta.annotations.get(LWS_SIZE, "").isdigit():
        return f"lws/{meta.namespace}/{group}"
    return f"pod/{meta.uid}"


def gang_of(key: str, pods: Iterable[Pod], groups: Mapping[str, int | None]) -> Gang:
    """The gang of this key, its pods in the order in which they get their nodes."""
    members = tuple(sorted(pods, key=_order))
    least, (fewest, most) = _least(key, members, groups), _bounds(members)
    return Gang(key, members, None if least is None else max(least, fewest), most)


def _bounds(members: tuple[Pod, ...]) -> tuple[int, int | None]:
    """A pod has a node of its own, so its workload's bounds on nodes are bounds on pods."""
    wishes = fields(members[0].metadata.annotations) if members else {}
    fewest, most = wishes.get("minimum_nodes"), wishes.get("maximum_nodes")
    return fewest if isinstance(fewest, int) else 1, most if isinstance(most, int) else None


def _least(key: str, members: tuple[Pod, ...], groups: Mapping[str, int | None]) -> int | None:
    kind = key.partition("/")[0]
    if kind == "pod" or not members:
        return 1
    if kind == "lws":
        return int(members[0].metadata.annotations[LWS_SIZE])
    return groups.get(key)


def least_members(group: PodGroup) -> int:
    """How many pods of a PodGroup must start together; 0 where it is no gang. Both kinds."""
    policy = group.spec.get("schedulingPolicy")
    if isinstance(policy, dict):
        gang = policy.get("gang")
        return int(gang.get("minCount") or 1) if isinstance(gang, dict) else 0
    return int(group.spec.get("minMember") or 1)


def _order(pod: Pod) -> tuple[object, ...]:
    """By the index that its workload gave it, then by name: the same after every restart."""
    meta = pod.metadata
    index = meta.labels.get(LWS_WORKER_INDEX) or meta.labels.get(JOB_INDEX) or ""
    number = int(index) if index.isdigit() else 1 << 31
    return (number, host_order(meta.name), meta.uid)
