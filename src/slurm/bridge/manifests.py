"""What the bridge registers in Kubernetes, as values: the webhooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slurm.bridge.kube_types import Node
from slurm.bridge.names import TAINT
from slurm.bridge.settings import Settings

WEBHOOK_NAME = "slurm-bridge"
_TIMEOUT_S = 5


def selector(settings: Settings) -> dict[str, Any]:
    """The namespaces that opted in; an outage of the bridge is felt in no other."""
    if settings.namespace_selector:
        return {"matchLabels": dict(settings.namespace_selector)}
    names = settings.namespaces or ["-none-"]
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": "In", "values": sorted(names)}]}


def failure_policy(settings: Settings, nodes: Iterable[Node]) -> str:
    """What happens to pods while the webhook is away.

    Ignore is granted only where every node of Slurm keeps strangers out by a taint: a pod that was
    created meanwhile has no gate, and kube-scheduler would put it beside Slurm's.
    """
    mine = [n for n in nodes if settings.nodes.label in n.metadata.labels]
    kept = all(
        any(t.key == TAINT and t.effect in ("NoSchedule", "NoExecute") for t in n.spec.taints)
        for n in mine
    )
    return "Ignore" if settings.failure_policy == "Ignore" and mine and kept else "Fail"


def webhooks(
    settings: Settings, authority: str, url: str = "", policy: str = "Fail"
) -> list[dict[str, Any]]:
    """Both registrations. `url` is used where the bridge runs outside of the cluster."""
    pods: dict[str, Any] = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    both = {**pods, "resources": ["pods", "pods/resize"]}
    return [
        _webhook(
            settings, authority, url, policy, "Mutating", [{**pods, "operations": ["CREATE"]}]
        ),
        _webhook(
            settings,
            authority,
            url,
            policy,
            "Validating",
            [{**both, "operations": ["CREATE", "UPDATE"]}],
        ),
    ]


def _webhook(
    settings: Settings,
    authority: str,
    url: str,
    policy: str,
    kind: str,
    rules: list[dict[str, Any]],
) -> dict[str, Any]:
    path = "/mutate" if kind == "Mutating" else "/validate"
    service = {"name": settings.service, "namespace": settings.namespace, "path": path, "port": 443}
    where: dict[str, Any] = {"url": url.rstrip("/") + path} if url else {"service": service}
    hook = {
        "name": "pods.bridge.slurm-sdk",
        "clientConfig": {**where, "caBundle": authority},
        "rules": [{**rule, "scope": "Namespaced"} for rule in rules],
        "namespaceSelector": selector(settings),
        "failurePolicy": policy,
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_S,
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"],
    }
    if kind == "Mutating":
        hook["reinvocationPolicy"] = "Never"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": WEBHOOK_NAME},
        "webhooks": [hook],
    }
