"""Nodes of Kubernetes as nodes of Slurm: what to change there, a pure function of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal

from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.names import MANAGED, PARTITIONS, REASON, SLURM_NAME, TAINT, TOPOLOGY
from slurm.bridge.owners import controller_of, is_daemon
from slurm.bridge.quantities import MIB, quantity
from slurm.bridge.settings import NodeSettings
from slurm.bridge.translation import requests_of

# Allocatable memory differs a little after every boot; that alone makes no new node.
_MEMORY_TOLERANCE = 0.02
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@dataclass(frozen=True)
class SlurmNode:
    """What Slurm says of a node."""

    name: str
    states: frozenset[str]
    cpus: int = 0
    memory: int = 0
    gres: str = ""
    features: tuple[str, ...] = ()
    topology: str = ""
    address: str = ""
    reason: str = ""

    @property
    def external(self) -> bool:
        """Whether pods, not slurmd, run there."""
        return "EXTERNAL" in self.states

    @property
    def busy(self) -> bool:
        """Whether jobs hold a part of it."""
        return bool(self.states & _BUSY)

    @property
    def drained(self) -> bool:
        """Whether it takes no new job."""
        return bool(self.states & {"DRAIN", "DOWN", "FAIL"})

    @property
    def ours_to_resume(self) -> bool:
        """Whether it was the bridge that took it out of service."""
        return self.drained and self.reason.startswith(REASON)


@dataclass(frozen=True)
class Shape:
    """What a node of Slurm is made of."""

    name: str
    address: str
    cpus: int
    memory: int
    gres: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    topology: str = ""

    def conf(self) -> str:
        """The line that makes it. With an address: a name that is not known stalls Slurm."""
        parts = [f"NodeName={self.name}", "State=EXTERNAL", f"NodeAddr={self.address}"]
        parts += [f"CPUs={self.cpus}", f"RealMemory={self.memory}"]
        if self.features:
            parts.append("Feature=" + ",".join(self.features))
        if self.gres:
            parts.append("Gres=" + self.gres_text())
            parts += [f"GresConf={_gres_conf(kind, count)}" for kind, count in self.gres]
        if self.topology:
            parts.append(f"Topology={self.topology}")
        return " ".join(parts)

    def gres_text(self) -> str:
        """Its generic resources in one word."""
        return ",".join(f"{kind}:{count}" for kind, count in self.gres)

    def fits(self, node: SlurmNode) -> bool:
        """Whether Slurm's node is still of this shape."""
        close = self.memory * (1 - _MEMORY_TOLERANCE) <= node.memory <= self.memory
        return self.cpus == node.cpus and close and self.gres_text() == _plain(node.gres)


def shape_of(node: Node, settings: NodeSettings, standing: Iterable[Pod] = ()) -> Shape:
    """What Slurm may count on: allocatable, less what is reserved and what is `standing` there."""
    have = {name: quantity(value) for name, value in node.status.allocatable.items()}
    own = [requests_of(p) for p in standing]
    taken = {n: sum((o.get(n, Decimal(0)) for o in own), Decimal(0)) for n in ("cpu", "memory")}
    cpu = have.get("cpu", Decimal(0)) - taken["cpu"] - quantity(settings.reserve_cpu)
    memory = have.get("memory", Decimal(0)) - taken["memory"] - quantity(settings.reserve_memory)
    gres: dict[str, int] = {}
    for name, kind in settings.gres.items():
        if count := int(have.get(name, 0)):
            gres[kind] = gres.get(kind, 0) + count
    meta = node.metadata
    extra = [p.strip() for p in meta.annotations.get(PARTITIONS, "").split(",") if p.strip()]
    return Shape(
        slurm_name(node),
        address_of(node),
        max(1, int(cpu)),
        max(1, int(memory / MIB)),
        tuple(sorted(gres.items())),
        tuple(dict.fromkeys((*settings.features, *extra))),
        meta.annotations.get(TOPOLOGY, ""),
    )


def slurm_name(node: Node) -> str:
    """The name that Slurm has for a node."""
    return node.metadata.labels.get(SLURM_NAME) or node.metadata.name


def address_of(node: Node) -> str:
    """Where the node is; its name where it has no address."""
    by_kind = {a.type: a.address for a in node.status.addresses}
    return by_kind.get("InternalIP") or by_kind.get("Hostname") or node.metadata.name


# ---- actions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Create:
    """Make the node in Slurm."""

    shape: Shape


@dataclass(frozen=True)
class Delete:
    """Take the node out of Slurm."""

    name: str


@dataclass(frozen=True)
class SetState:
    """DRAIN, DOWN or RESUME, with a reason."""

    name: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class SetFeatures:
    """Bring features and topology up to date, which needs no new node."""

    name: str
    features: tuple[str, ...]
    topology: str


@dataclass(frozen=True)
class SetTaint:
    """Put the taint on the node in Kubernetes, or take it off."""

    node: Node
    effect: str | None


@dataclass(frozen=True)
class Cordon:
    """Cordon the node in Kubernetes because Slurm drained it."""

    node: Node


NodeAction = Create | Delete | SetState | SetFeatures | SetTaint | Cordon


def plan_node(
    node: Node | None,
    slurm: SlurmNode | None,
    settings: NodeSettings,
    *,
    standing: Iterable[Pod] = (),
    unready_for: float = 0.0,
    registers: bool = True,
) -> list[NodeAction]:
    """What brings Slurm in step with Kubernetes for one node.

    `registers` is False where Slurm is too old to make nodes over REST: then only states are kept.
    One function decides about drain and resume, so that no two parts of it undo each other.
    """
    managed = node is not None and settings.label in node.metadata.labels
    if node is None or not managed:
        untaint: list[NodeAction] = [SetTaint(node, None)] if node and _taint(node) else []
        return [*untaint, *(_retire(slurm, registers) if slurm and slurm.external else [])]
    if slurm is None:
        shape = shape_of(node, settings, standing)
        return [Create(shape)] if registers and node.ready else []
    taint = _taint_change(node, settings)
    if not slurm.external:
        # slurmd runs there beside the kubelet: its configuration is not ours.
        return [*taint, *_state(node, slurm, settings, unready_for)]
    shape = shape_of(node, settings, standing)
    if registers and not shape.fits(slurm) and node.ready:
        if slurm.busy:
            return [*taint, *_drain(slurm, "its resources changed")]
        return [*taint, Delete(slurm.name), Create(shape)]
    actions = [*taint, *_state(node, slurm, settings, unready_for)]
    known = (tuple(sorted(slurm.features)), slurm.topology)
    if registers and known != (tuple(sorted(shape.features)), shape.topology):
        actions.append(SetFeatures(slurm.name, shape.features, shape.topology))
    return actions


def _retire(slurm: SlurmNode, registers: bool) -> list[NodeAction]:
    """The node left Kubernetes: no new job, and away with it when the last one is gone."""
    if slurm.busy or not registers:
        return _drain(slurm, "the node left Kubernetes")
    return [Delete(slurm.name)]


def _drain(slurm: SlurmNode, why: str) -> list[NodeAction]:
    return [] if slurm.drained else [SetState(slurm.name, "DRAIN", REASON + why)]


def _state(
    node: Node, slurm: SlurmNode, settings: NodeSettings, unready_for: float
) -> list[NodeAction]:
    if node.metadata.deletionTimestamp is not None:
        return _drain(slurm, "the node is being deleted")
    if not node.ready:
        if unready_for < settings.down_after:
            return _drain(slurm, "the node is not ready")
        down = "DOWN" in slurm.states
        return [] if down else [SetState(slurm.name, "DOWN", REASON + "the node is not ready")]
    if node.spec.unschedulable:
        return _drain(slurm, "the node is cordoned")
    if slurm.ours_to_resume:
        return [SetState(slurm.name, "RESUME")]
    if slurm.drained and settings.cordon_when_drained:
        return [Cordon(node)]
    return []


def _taint(node: Node) -> str | None:
    return next((t.effect for t in node.spec.taints if t.key == TAINT), None)


def _taint_change(node: Node, settings: NodeSettings) -> list[NodeAction]:
    wanted = None if settings.taint == "none" else settings.taint
    return [] if _taint(node) == wanted else [SetTaint(node, wanted)]


def permanent(pods: Iterable[Pod], daemon_sets: Collection[str]) -> list[Pod]:
    """The pods that stay as long as their node does, without being Slurm's.

    `daemon_sets` are the uids of those that count and are there: what a pod says of its owner alone
    takes nothing from a node.
    """
    return [
        pod
        for pod in pods
        if (owner := controller_of(pod.metadata)) is not None
        and is_daemon(owner)
        and owner.uid in daemon_sets
        and MANAGED not in pod.metadata.labels
        and not pod.over
    ]


def _gres_conf(kind: str, count: int) -> str:
    """The devices' names: Slurm ignores a GPU that has none, and opens none on external nodes."""
    last = f"[0-{count - 1}]" if count > 1 else "0"
    return f"count={count},name={kind},file=/dev/slurm-sdk-{kind}{last}"


def _plain(gres: str) -> str:
    """Slurm's own text for generic resources without what it adds in parentheses."""
    parts = [part.partition("(")[0] for part in gres.split(",") if part]
    return ",".join(sorted(parts))
