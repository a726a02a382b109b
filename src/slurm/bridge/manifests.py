"""What the bridge registers in Kubernetes, as values: the webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from slurm.bridge.kube_types import Node
from slurm.bridge.names import TAINT
from slurm.bridge.settings import Settings

WEBHOOK_NAME = "slurm-bridge"
HOOK = "pods.bridge.slurm-sdk"
ADMISSION = "admissionregistration.k8s.io/v1"
REGISTRATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
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


def writes_registration(settings: Settings) -> bool:
    """Whether the bridge changes registrations that were installed beside it."""
    return settings.certificates == "self" or settings.failure_policy == "Ignore"


def webhooks(
    settings: Settings, authority: str, bridge: str, *, url: str = "", policy: str = "Fail"
) -> list[dict[str, Any]]:
    """Both registrations. `url` is used where the bridge runs outside of the cluster.

    What the bridge itself writes is not validated: it must get through while no replica serves.
    """
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
    others = f"request.userInfo.username != {json.dumps(bridge)}"
    hook = {
        "name": HOOK,
        "namespaceSelector": selector(settings),
        "failurePolicy": policy,
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_S,
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"],
    }
    mutating = {
        **hook,
        "clientConfig": _client(settings, authority, url, "/mutate"),
        "rules": [{**rule, "resources": ["pods"], "operations": ["CREATE"]}],
        "reinvocationPolicy": "Never",
    }
    both = {"resources": ["pods", "pods/resize"], "operations": ["CREATE", "UPDATE"]}
    validating = {
        **hook,
        "clientConfig": _client(settings, authority, url, "/validate"),
        "rules": [{**rule, **both}],
        "matchConditions": [{"name": "others-than-the-bridge", "expression": others}],
    }
    return [
        {
            "apiVersion": ADMISSION,
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": WEBHOOK_NAME},
            "webhooks": [each],
        }
        for kind, each in (("Mutating", mutating), ("Validating", validating))
    ]


def _client(settings: Settings, authority: str, url: str, path: str) -> dict[str, Any]:
    bundle = {"caBundle": authority} if authority else {}
    if url:
        return {"url": url.rstrip("/") + path, **bundle}
    service = {"name": settings.service, "namespace": settings.namespace, "path": path, "port": 443}
    return {"service": service, **bundle}
