"""Everything that an installation consists of, as values: `slurm bridge render` prints them."""

from __future__ import annotations

from typing import Any

import msgspec

from slurm.bridge.manifests import REGISTRATIONS, WEBHOOK_NAME, webhooks, writes_registration
from slurm.bridge.settings import Settings

NAME = "slurm-bridge"
IMAGE = "slurm-sdk/bridge:latest"
_LABELS = {"app.kubernetes.io/name": NAME}
_RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_TOKEN_DIR = "/var/run/secrets/slurm"

# What the bridge may do, and nothing more; the tests run it with these. For the whole cluster:
NODE_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": [*_READ, "patch"]},
    {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "resourceNames": ["kube-system"],
        "verbs": ["get"],
    },
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": list(REGISTRATIONS),
        "resourceNames": [WEBHOOK_NAME],
        "verbs": ["get"],
    },
]
# In the namespaces that opted in:
POD_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_READ, "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": ["get"]},
    {
        "apiGroups": ["apps"],
        "resources": ["replicasets", "deployments", "statefulsets", "daemonsets"],
        "verbs": ["get"],
    },
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get"]},
    {
        "apiGroups": ["leaderworkerset.x-k8s.io"],
        "resources": ["leaderworkersets"],
        "verbs": ["get"],
    },
    {
        "apiGroups": ["scheduling.k8s.io", "scheduling.x-k8s.io"],
        "resources": ["podgroups"],
        "verbs": _READ,
    },
]
# There, where `mode` is direct:
BINDING_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]
# Where DaemonSets are the nodes' own:
DAEMON_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get", "list"]},
]
# On the two registrations that were installed beside it, where the certificate is its own:
REGISTRATION_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": list(REGISTRATIONS),
        "resourceNames": [WEBHOOK_NAME],
        "verbs": ["patch"],
    },
]
# At home; the Secret is its own certificate's:
LEASE_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
]
SECRET_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["slurm-bridge-webhook"],
        "verbs": ["get", "update"],
    },
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
]


def rights(settings: Settings) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Name, namespace ("" is everywhere) and rules of each role that the bridge has."""
    pods = POD_RULES + (BINDING_RULES if settings.mode == "direct" else [])
    everywhere = NODE_RULES + (REGISTRATION_RULES if writes_registration(settings) else [])
    roles = [(NAME, "", everywhere + (pods if settings.namespace_selector else []))]
    roles += [(NAME + "-pods", place, pods) for place in settings.namespaces]
    listed = settings.nodes.daemon_set_namespaces
    roles += [(NAME + "-daemons", place, DAEMON_RULES) for place in listed]
    own = SECRET_RULES if settings.certificates == "self" else []
    return [*roles, (NAME, settings.namespace, LEASE_RULES + own)]


def installation(settings: Settings, image: str = IMAGE, replicas: int = 2) -> list[dict[str, Any]]:
    """All objects, in an order in which they can be created."""
    home = settings.namespace
    here = {"name": NAME, "namespace": home, "labels": _LABELS}
    config = msgspec.yaml.encode(_chosen(settings)).decode()
    ports = [{"name": "webhook", "port": 443, "targetPort": "webhook"}]
    budget = {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}
    return [
        _object("v1", "Namespace", {"name": home}),
        _object("v1", "ServiceAccount", here),
        *(each for role in rights(settings) for each in _role(*role, home)),
        _object("v1", "ConfigMap", here, data={"config.yaml": config}),
        _object("v1", "Service", here, spec={"selector": _LABELS, "ports": ports}),
        _object("policy/v1", "PodDisruptionBudget", here, spec=budget),
        _object("apps/v1", "Deployment", here, spec=_deployment(settings, image, replicas)),
        # Last: from here on pods wait for the bridge.
        *(
            {**body, "metadata": {**body["metadata"], "labels": _LABELS}}
            for body in webhooks(settings, "", f"system:serviceaccount:{home}:{NAME}")
        ),
    ]


def _role(
    name: str, namespace: str, rules: list[dict[str, Any]], home: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A role with its binding to the bridge."""
    kind = "Role" if namespace else "ClusterRole"
    place = {"namespace": namespace} if namespace else {}
    meta = {"name": name, **place, "labels": _LABELS}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": home}
    return (
        _object(f"{_RBAC}/v1", kind, meta, rules=rules),
        _object(f"{_RBAC}/v1", kind + "Binding", meta, roleRef=reference, subjects=[subject]),
    )


def _chosen(settings: Settings) -> dict[str, Any]:
    """The settings that differ from the defaults, and those that everybody sets."""
    given, plain = msgspec.to_builtins(settings), msgspec.to_builtins(Settings())
    keep = {key: value for key, value in given.items() if value != plain[key]}
    slurm = {key: value for key, value in given["slurm"].items() if value != plain["slurm"][key]}
    keep["slurm"] = {"url": settings.slurm.url, **slurm}
    return {"slurm": keep.pop("slurm"), "namespaces": settings.namespaces, **keep}


def _object(version: str, kind: str, metadata: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _deployment(settings: Settings, image: str, replicas: int) -> dict[str, Any]:
    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10}

    container = {
        "name": "bridge",
        "image": image,
        "args": ["bridge", "run", "--config", "/etc/slurm-bridge/config.yaml"],
        "ports": [
            {"name": "webhook", "containerPort": settings.webhook_port},
            {"name": "health", "containerPort": settings.health_port},
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/slurm-bridge"},
            {"name": "token", "mountPath": _TOKEN_DIR, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    spec = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "token", "secret": {"secretName": "slurm-bridge-token"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory"}},
        ],
    }
    template = {"metadata": {"labels": _LABELS}, "spec": spec}
    return {"replicas": replicas, "selector": {"matchLabels": _LABELS}, "template": template}
