"""The parts of Kubernetes' objects that the bridge reads; all else is skipped while decoding."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Owner(Struct, frozen=True):
    """One owner of an object."""

    kind: str
    name: str
    apiVersion: str = "v1"
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generateName: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: list[str] = field(default_factory=list)
    ownerReferences: list[Owner] = field(default_factory=list)


Amounts = dict[str, str | int | float]


class Resources(Struct, frozen=True):
    """What a container or a pod asks for."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


class Port(Struct, frozen=True):
    """A port of a container."""

    hostPort: int | None = None


class Container(Struct, frozen=True):
    """One container."""

    name: str = ""
    resources: Resources = field(default_factory=Resources)
    ports: list[Port] = field(default_factory=list)
    restartPolicy: str | None = None


class Gate(Struct, frozen=True):
    """One scheduling gate."""

    name: str


class Toleration(Struct, frozen=True):
    """A taint that a pod can live with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """One condition on a node's labels or fields."""

    key: str
    operator: str
    values: list[str] = field(default_factory=list)


class Term(Struct, frozen=True):
    """Conditions that must hold together."""

    matchExpressions: list[Requirement] = field(default_factory=list)
    matchFields: list[Requirement] = field(default_factory=list)


class NodeTerms(Struct, frozen=True):
    """Terms of which one must hold."""

    nodeSelectorTerms: list[Term] = field(default_factory=list)


class NodeAffinity(Struct, frozen=True):
    """Which nodes a pod may run on."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None = None


class PodAffinity(Struct, frozen=True):
    """Which other pods a pod must be near to, or away from."""

    requiredDuringSchedulingIgnoredDuringExecution: list[Any] = field(default_factory=list)


class Affinity(Struct, frozen=True):
    """A pod's affinities."""

    nodeAffinity: NodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class Spread(Struct, frozen=True):
    """One constraint on how pods are spread."""

    topologyKey: str = ""
    whenUnsatisfiable: str = "DoNotSchedule"


class SchedulingGroup(Struct, frozen=True):
    """The group that a pod is scheduled with."""

    podGroupName: str = ""


class PodSpec(Struct, frozen=True):
    """What a pod should be."""

    nodeName: str = ""
    serviceAccountName: str = ""
    containers: list[Container] = field(default_factory=list)
    initContainers: list[Container] = field(default_factory=list)
    resources: Resources | None = None
    overhead: Amounts = field(default_factory=dict)
    schedulingGates: list[Gate] = field(default_factory=list)
    tolerations: list[Toleration] = field(default_factory=list)
    nodeSelector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    topologySpreadConstraints: list[Spread] = field(default_factory=list)
    resourceClaims: list[Any] = field(default_factory=list)
    activeDeadlineSeconds: int | None = None
    terminationGracePeriodSeconds: int | None = None
    schedulingGroup: SchedulingGroup | None = None


class Condition(Struct, frozen=True):
    """One condition of a pod or a node."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True):
    """How a container ended."""

    exitCode: int = 0


class ContainerState(Struct, frozen=True):
    """The state of a container."""

    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    """What the kubelet says of a container."""

    name: str = ""
    state: ContainerState = field(default_factory=ContainerState)


class PodStatus(Struct, frozen=True):
    """What a pod is."""

    phase: str = "Pending"
    reason: str = ""
    conditions: list[Condition] = field(default_factory=list)
    containerStatuses: list[ContainerStatus] = field(default_factory=list)


class Pod(Struct, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def gates(self) -> list[str]:
        """The names of its scheduling gates."""
        return [g.name for g in self.spec.schedulingGates]

    @property
    def over(self) -> bool:
        """Whether it has run to its end, well or badly."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True):
    """What a node should be."""

    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)


class Address(Struct, frozen=True):
    """An address of a node."""

    type: str
    address: str


class NodeStatus(Struct, frozen=True):
    """What a node is."""

    allocatable: Amounts = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)


class Node(Struct, frozen=True):
    """A node of Kubernetes."""

    metadata: Meta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it can take pods."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


class PodGroup(Struct, frozen=True):
    """A group of pods that start together, of either API; `spec` differs between them."""

    metadata: Meta
    spec: dict[str, Any] = field(default_factory=dict)


class ListMeta(Struct, frozen=True):
    """What a list says of itself."""

    resourceVersion: str = ""
    continue_: str = field(default="", name="continue")
