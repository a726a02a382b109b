"""What stands above a pod: its owners and its group, read and verified before they are believed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from slurm.bridge.kube import Kube, KubeError
from slurm.bridge.kube_types import Meta, Owner, SchedulingGroup
from slurm.bridge.names import POD_GROUP_LABEL, PREFIX
from slurm.bridge.parameters import asked
from slurm.bridge.paths import BadName, api_path
from slurm.errors import SlurmError

# How far up a pod's owners are asked for annotations.
_DEEPEST = 6
# The API server waits five seconds for the webhook.
_PATIENCE_S = 2.0
_APPS = "apps/v1"
DAEMON_SET = (_APPS, "DaemonSet")
#: The kinds that are asked, with their plurals and what their right to be read is named after.
PLURALS = {
    ("batch/v1", "Job"): "jobs",
    ("batch/v1", "CronJob"): "cronjobs",
    (_APPS, "ReplicaSet"): "replicasets",
    (_APPS, "Deployment"): "deployments",
    (_APPS, "StatefulSet"): "statefulsets",
    DAEMON_SET: "daemonsets",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "leaderworkersets",
}


class UnreadOwner(SlurmError):
    """What a pod says to stand above it cannot be read, or is another object than it says."""

    code = "SLURM-E802"


class _MadeSpec(msgspec.Struct, frozen=True):
    schedulingGroup: SchedulingGroup | None = None


class Made(msgspec.Struct, frozen=True):
    """A pod that is being created: what says whose it is."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: _MadeSpec = msgspec.field(default_factory=_MadeSpec)


class _OwningSpec(msgspec.Struct, frozen=True):
    activeDeadlineSeconds: int | None = None


class Owning(msgspec.Struct, frozen=True):
    """An object above a pod."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: _OwningSpec = msgspec.field(default_factory=_OwningSpec)


def controller_of(meta: Meta) -> Owner | None:
    """The owner that controls an object, by what the object says of itself."""
    return next((o for o in meta.ownerReferences if o.controller), None)


def is_daemon(owner: Owner | None) -> bool:
    """Whether an owner says that it is a DaemonSet."""
    return owner is not None and (owner.apiVersion, owner.kind) == DAEMON_SET


class Owners:
    """Reads the objects above pods, in the pods' own namespace only."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def wishes(self, namespace: str, pod: Made) -> dict[str, str]:
        """What a pod's owners and its group ask for; the nearest owner's word counts."""
        found: dict[str, str] = {}
        owner = controller_of(pod.metadata)
        for _ in range(_DEEPEST):
            if owner is None or (owner.apiVersion, owner.kind) not in PLURALS:
                break
            value = await self.read(namespace, owner)
            found = {**_wishes(owner.kind, value), **found}
            owner = controller_of(value.metadata)
        for api, name in _groups_of(pod):
            found = {**await self._group(namespace, api, name), **found}
        return found

    async def daemon(self, namespace: str, pod: Made) -> bool:
        """Whether a DaemonSet that is there controls the pod."""
        owner = controller_of(pod.metadata)
        if owner is None or not is_daemon(owner):
            return False
        await self.read(namespace, owner)
        return True

    async def read(self, namespace: str, owner: Owner) -> Owning:
        """The object that an owner reference names: there, and the very one."""
        plural = PLURALS[owner.apiVersion, owner.kind]
        what = f"{owner.kind} {namespace}/{owner.name[:80]}"
        try:
            value = await self._get(namespace, owner.apiVersion, plural, owner.name)
        except SlurmError as error:
            raise UnreadOwner(f"its owner {what} cannot be read: {error.message}") from error
        if not owner.uid or value.metadata.uid != owner.uid:
            raise UnreadOwner(f"its owner {what} has another uid than the pod says")
        return value

    async def _group(self, namespace: str, api: str, name: str) -> dict[str, str]:
        """The wishes of a PodGroup; a pod may be there before its group."""
        try:
            return _wishes("PodGroup", await self._get(namespace, api, "podgroups", name))
        except KubeError as error:
            if error.status == 404:
                return {}
            wrong: SlurmError = error
        except BadName as error:
            wrong = error
        what = f"PodGroup {namespace}/{name[:80]}"
        raise UnreadOwner(f"its {what} cannot be read: {wrong.message}") from wrong

    async def _get(self, namespace: str, api: str, plural: str, name: str) -> Owning:
        path = api_path(plural, api=api, namespace=namespace, name=_given(name))
        content = await self._kube.ask("GET", path, timeout=_PATIENCE_S)
        try:
            return msgspec.json.decode(content, type=Owning, strict=False)
        except msgspec.MsgspecError as error:
            raise KubeError(f"{path}: {error}") from error


def _given(name: str) -> str:
    """Without a name the path would be that of all objects."""
    if not name:
        raise BadName("it has no name")
    return name


def _wishes(kind: str, value: Owning) -> dict[str, str]:
    asks = asked(value.metadata.annotations)
    deadline = value.spec.activeDeadlineSeconds
    if kind == "Job" and deadline is not None:
        asks.setdefault("timelimit", str(-(-deadline // 60)))
    return {PREFIX + name: text for name, text in asks.items()}


def _groups_of(pod: Made) -> Iterator[tuple[str, str]]:
    """The API and name of the PodGroup that a pod says it is in."""
    if pod.spec.schedulingGroup and pod.spec.schedulingGroup.podGroupName:
        yield "scheduling.k8s.io/v1alpha2", pod.spec.schedulingGroup.podGroupName
    elif label := pod.metadata.labels.get(POD_GROUP_LABEL):
        yield "scheduling.x-k8s.io/v1alpha1", label
