"""The bridge's configuration file: one typed value, checked when it is read."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from slurm.bridge.names import EXTERNAL_NODE, SCHEDULER
from slurm.errors import ConfigError


class SlurmSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where slurmrestd is and who the bridge is to it."""

    url: str = "http://localhost:6820"
    # Whoever sees the token on its way is the user that it names, so http is for this host only.
    allow_plain_http: bool = False
    token_file: str = "/var/run/secrets/slurm/auth-token"
    user: str | None = None
    ca_file: str | None = None
    # The cluster's name; where it is not given, that of the first answer is kept for good.
    cluster: str | None = None
    timeout: float = 12.0
    partition: str | None = None
    mcs_label: str | None = None


class Rule(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Who pods are to Slurm: the first rule that fits decides. `*` fits everything.

    `users` and `groups` are of Kubernetes and fit only pods that a person creates directly; pods of
    a Job or Deployment are created by a controller, so map those by namespace or service account.
    """

    namespace: str = "*"
    service_account: str = "*"
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    user: str = ""
    account: str = ""
    # What annotations may choose instead.
    allow_users: list[str] = field(default_factory=list)
    allow_accounts: list[str] = field(default_factory=list)
    # Beside `slurm.partition`; `*` is any. The token may be SlurmUser's, who is let in everywhere.
    allow_partitions: list[str] = field(default_factory=list)
    allow_qos: list[str] = field(default_factory=list)
    allow_reservations: list[str] = field(default_factory=list)
    allow_priority: bool = False


class NodeSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which nodes are Slurm's and what it may count on there."""

    label: str = EXTERNAL_NODE
    taint: Literal["NoSchedule", "NoExecute", "none"] = "NoSchedule"
    # Whose DaemonSets are the nodes' own: their pods need no job, and Slurm leaves room for them.
    daemon_set_namespaces: list[str] = field(default_factory=lambda: ["kube-system"])
    # Left to Kubernetes' own pods on each node, beside what those DaemonSets ask for.
    reserve_cpu: str = "0"
    reserve_memory: str = "0"
    features: list[str] = field(default_factory=lambda: ["bridge"])
    # Resources of Kubernetes that are generic resources of Slurm.
    gres: dict[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    )
    # Seconds that a node may be NotReady before Slurm calls it down.
    down_after: float = 60.0
    cordon_when_drained: bool = False


class Brakes(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much the bridge may delete."""

    # Pods whose job is gone from Slurm, a minute; more trips the breaker.
    missing_per_minute: int = 10
    evictions_per_minute: int = 300
    # Seconds that the breaker stays open.
    cooldown: float = 600.0
    # Seconds between the two proofs that a job is gone.
    proof_interval: float = 5.0


class Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All of it."""

    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    namespaces: list[str] = field(default_factory=list)
    namespace_selector: dict[str, str] = field(default_factory=dict)
    mode: Literal["gate", "direct"] = "gate"
    scheduler_name: str = SCHEDULER
    identity: list[Rule] = field(default_factory=list)
    nodes: NodeSettings = field(default_factory=NodeSettings)
    brakes: Brakes = field(default_factory=Brakes)
    poll: float = 0.5
    idle_poll: float = 2.0
    # Seconds between two complete lists of Slurm's jobs, which find what nobody waits for.
    resync: float = 300.0
    # Seconds that kube-scheduler has for a pod after its gate is gone.
    bind_timeout: float = 300.0
    # Seconds beyond its grace that a deleted pod may stay on a node that is gone or silent.
    stuck_after: float = 60.0
    # Seconds that a pod may take to stop: so long it can be there when its job has ended.
    longest_grace: float = 600.0
    lease_seconds: float = 15.0
    namespace: str = "slurm-bridge"
    lease: str = "slurm-bridge"
    webhook_port: int = 9443
    health_port: int = 8081
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    # self: made and renewed by the bridge; files: from certificateDir, as cert-manager writes them.
    certificates: Literal["self", "files"] = "self"
    certificate_dir: str = "/var/run/slurm-bridge/tls"
    # static: the webhooks are installed beside the bridge, which fills in its authority at most;
    # bridge: it makes them itself, for one that runs outside of the cluster with such rights.
    registration: Literal["static", "bridge"] = "static"
    service: str = "slurm-bridge"
    workers: int = 16


#: What is rendered where no configuration is given.
EXAMPLE = Settings(
    slurm=SlurmSettings(url="https://slurmrestd.slurm:6820"), namespaces=["slurm-demo"]
)


def read_settings(path: str | Path) -> Settings:
    """The settings in a YAML or JSON file; what is wrong is said with its place."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the configuration {path} cannot be read: {error.strerror}",
            hint="`slurm bridge render` writes one to start from",
        ) from error
    return parse_settings(content, str(path))


def parse_settings(content: bytes | str, name: str = "configuration") -> Settings:
    """The same from text."""
    try:
        settings = msgspec.yaml.decode(content or b"{}", type=Settings)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"{name}: {error}", hint="docs/bridge.md lists every key") from error
    if settings.namespaces and settings.namespace_selector:
        raise ConfigError(
            f"{name}: namespaces and namespaceSelector are both given",
            hint="give the list, or the selector, not both",
        )
    if settings.failure_policy == "Ignore" and settings.nodes.taint == "none":
        raise ConfigError(
            f"{name}: failurePolicy Ignore without a taint on Slurm's nodes",
            hint="a pod made while the webhook is away would run beside Slurm; "
            "set nodes.taint: NoSchedule, or failurePolicy: Fail",
        )
    _check_url(settings.slurm, name)
    for number, rule in enumerate(settings.identity):
        if not rule.user and not rule.allow_users:
            raise ConfigError(
                f"{name}: identity rule {number + 1} gives no Slurm user",
                hint="add `user: NAME`, or `allowUsers` for annotations to choose from",
            )
    return settings


def _check_url(slurm: SlurmSettings, name: str) -> None:
    """No password in the address, and no token over a network that anybody may read."""
    try:
        parts = urlsplit(slurm.url)
        host = parts.hostname or ""
    except ValueError as error:
        raise ConfigError(f"{name}: slurm.url {slurm.url!r}: {error}") from error
    if parts.password or parts.username:
        raise ConfigError(
            f"{name}: slurm.url holds a user or a password", hint="give a token in slurm.tokenFile"
        )
    if parts.scheme == "http" and not slurm.allow_plain_http and not _is_here(host):
        raise ConfigError(
            f"{name}: slurm.url {slurm.url!r} would send the token unencrypted to {host!r}",
            hint="use https:// (slurm.caFile for an authority of your own) or unix:/path; on a "
            "network that you trust: slurm.allowPlainHttp: true",
        )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
