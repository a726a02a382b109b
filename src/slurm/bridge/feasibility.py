"""Whether Kubernetes would let a pod run on a node, so that Slurm is not asked for it in vain."""

from __future__ import annotations

from collections.abc import Iterable

from slurm.bridge.kube_types import Node, Pod, Requirement, Taint, Term, Toleration
from slurm.bridge.quantities import whole

_KEEPS_OUT = ("NoSchedule", "NoExecute")


def objection(pod: Pod, node: Node) -> str | None:
    """Why this pod may not run on this node, or None."""
    labels = node.metadata.labels
    wrong = next((k for k, v in pod.spec.nodeSelector.items() if labels.get(k) != v), None)
    if wrong is not None:
        return f"nodeSelector wants {wrong}={pod.spec.nodeSelector[wrong]}"
    if not _affinity_holds(pod, node):
        return "nodeAffinity does not match"
    taint = next((t for t in node.spec.taints if not _tolerated(t, pod.spec.tolerations)), None)
    return f"taint {taint.key}:{taint.effect} is not tolerated" if taint else None


def infeasible(pods: Iterable[Pod], nodes: Iterable[Node]) -> list[Node]:
    """The nodes that none of the pods of a gang may run on, or that one of them may not."""
    members = list(pods)
    return [node for node in nodes if any(objection(pod, node) for pod in members)]


def _affinity_holds(pod: Pod, node: Node) -> bool:
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    if required is None:
        return True
    return any(_term_holds(term, node) for term in required.nodeSelectorTerms)


def _term_holds(term: Term, node: Node) -> bool:
    if not term.matchExpressions and not term.matchFields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(r, node.metadata.labels) for r in term.matchExpressions) and all(
        _holds(r, fields) for r in term.matchFields
    )


def _holds(rule: Requirement, values: dict[str, str]) -> bool:
    value = values.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            # The API server takes any text for a number; kube-scheduler lets it match nothing.
            there, limit = whole(value), whole(rule.values[0] if rule.values else "")
            if there is None or limit is None:
                return False
            return there > limit if rule.operator == "Gt" else there < limit
        case _:
            # A rule of a later Kubernetes: kube-scheduler decides.
            return True


def _tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    # Cordon, NotReady and pressure are Slurm's to know as node states, and pass; they are no
    # reason to keep a waiting pod away from a node for good.
    if taint.effect not in _KEEPS_OUT or taint.key.startswith("node.kubernetes.io/"):
        return True
    return any(
        ((not t.key and t.operator == "Exists") or t.key == taint.key)
        and t.effect in ("", taint.effect)
        and (t.operator == "Exists" or t.value == taint.value)
        for t in tolerations
    )
