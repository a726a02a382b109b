"""Which pods start together: single pods, and gangs of a PodGroup or a LeaderWorkerSet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm.bridge.kube_types import Pod, PodGroup
from slurm.bridge.names import (
    ACCOUNT,
    JOB_INDEX,
    LWS_GROUP,
    LWS_SIZE,
    LWS_WORKER_INDEX,
    POD_GROUP_LABEL,
    USER,
)
from slurm.bridge.parameters import fields
from slurm.bridge.quantities import whole
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

    So is who the pod is to Slurm: nobody gets another's identity by a label that names their group.
    A Job's and a JobSet's pods start one by one, as Kubernetes would start them.
    """
    group = _group_key(pod)
    if group is None or (group.startswith("podgroup/") and groups.get(group, 1) == 0):
        # A group without a gang policy is no gang.
        return f"pod/{pod.metadata.uid}"
    given = pod.metadata.annotations
    return f"{group}:{given.get(USER, '')}:{given.get(ACCOUNT, '')}"


def group_of(key: str) -> str:
    """The group of a gang, without the Slurm users of its pods."""
    return key.partition(":")[0]


def _group_key(pod: Pod) -> str | None:
    meta = pod.metadata
    name = pod.spec.schedulingGroup.podGroupName if pod.spec.schedulingGroup else ""
    if name:
        return f"podgroup/{meta.namespace}/{name}"
    if label := meta.labels.get(POD_GROUP_LABEL):
        return f"coscheduling/{meta.namespace}/{label}"
    if (group := meta.labels.get(LWS_GROUP)) and whole(meta.annotations.get(LWS_SIZE)) is not None:
        return f"lws/{meta.namespace}/{group}"
    return None


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
        return whole(members[0].metadata.annotations.get(LWS_SIZE))
    return groups.get(group_of(key))


def least_members(group: PodGroup) -> int | None:
    """How many pods of a PodGroup must start together; 0 where it is no gang. Both kinds.

    None where it says no number: such a group starts nothing.
    """
    policy = group.spec.get("schedulingPolicy")
    if isinstance(policy, dict):
        gang = policy.get("gang")
        return whole(gang.get("minCount") or 1) if isinstance(gang, dict) else 0
    return whole(group.spec.get("minMember") or 1)


def _order(pod: Pod) -> tuple[object, ...]:
    """By the index that its workload gave it, then by name: the same after every restart."""
    meta = pod.metadata
    index = meta.labels.get(LWS_WORKER_INDEX) or meta.labels.get(JOB_INDEX) or ""
    number = int(index) if index.isdigit() else 1 << 31
    return (number, host_order(meta.name), meta.uid)
