"""What the services of a compose file are made of, piece by piece; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm.stack.check import srun_ports
from slurm.stack.image import Image
from slurm.stack.plan import Plan
from slurm.stack.topology import Limit
from slurm.stack.yaml import Alias, Anchor

Service = dict[str, Any]

#: The first line of every file that compose and its services read.
WRITTEN = "Written by `slurm cluster render`; change cluster.toml, not this file."
NETWORK = "slurm-net"
#: Ports of containers on an internal network alone are not published: who is, joins this too.
EDGE = "slurm-edge"
ENTRY = "/usr/local/bin/slurm-entrypoint"
EXPORTER_PORT = 9341
NODE_EXPORTER_PORT = 9100
_LOGGING = {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def any_service() -> Service:
    """What all services have in common."""
    return {
        # Something must reap what a job leaves behind: slurmd as process 1 does not.
        "init": True,
        "restart": "unless-stopped",
        "logging": _LOGGING,
        "extra_hosts": Alias("hosts"),
    }


def built_from(image: Image) -> Service:
    """The image of a service, and how it is built."""
    build = {"context": ".", "dockerfile": "Containerfile", "target": image.target}
    return {"image": image.name, "build": {**build, "args": dict(image.arguments)}}


def slurm_service(plan: Plan, image: Image) -> Service:
    """What the services of Slurm have in common."""
    users = ",".join(f"{u.name}:{u.uid}:{u.gid}" for u in plan.users)
    environment = {
        "SLURM_AUTH": plan.auth,
        "SLURM_CLUSTER": plan.topology.name,
        "SLURM_USERS": users,
        "SLURM_SHARED": plan.topology.shared.path,
        "SLURMCTLD_PORT": str(plan.slurmctld_port),
    }
    if len(plan.controllers) > 1:
        environment["SLURM_CONTROLLERS"] = " ".join(name for name, _ in plan.controllers)
    if plan.auth == "slurm":
        # auth/slurm looks in /etc/slurm otherwise, and no secret lies there.
        environment["SLURM_SACK_KEY"] = f"{plan.paths.keys}/slurm.key"
    if plan.several_hosts:
        low, high = srun_ports(plan.topology)
        environment["SRUN_PORTS"] = f"{low}-{high}"
    shared = Anchor("environment", environment)
    return {"<<": Alias("service"), **built_from(image), "environment": shared}


def health(role: str, start: str = "60s") -> Service:
    """How the entry point is asked whether a service does its work."""
    return {
        "test": ["CMD", ENTRY, "health", role],
        "interval": "15s",
        "timeout": "15s",
        "retries": 4,
        "start_period": start,
    }


def after(plan: Plan, *names: str) -> Service:
    """Which of the services that are there come up before."""
    # podman runs no health checks by itself, so nothing may wait for one; entry points wait.
    docker = plan.topology.engine == "docker"
    condition = "service_healthy" if docker else "service_started"
    there = [name for name in names if name in plan.addresses]
    return {"depends_on": {name: {"condition": condition} for name in there}} if there else {}


def limits(limit: Limit) -> Service:
    """What a service may use at most."""
    found: Service = {"mem_limit": f"{limit.memory}m"}
    return {**found, "cpus": limit.cpus} if limit.cpus else found


def own_service(plan: Plan, name: str, role: str, base: str = "slurm") -> Service:
    """A service's own name, address and role, on what it has in common with others."""
    return {
        "<<": Alias(base),
        "container_name": f"{plan.topology.name}-{name}",
        "hostname": name,
        "command": [role],
        "networks": {NETWORK: {"ipv4_address": plan.addresses[name]}},
    }


def published(plan: Plan, name: str, *ports: str) -> Service:
    """A service that can be reached from outside of the cluster's network."""
    inner = {NETWORK: {"ipv4_address": plan.addresses[name]}}
    return {"networks": {**inner, EDGE: {}}, "ports": list(ports)}


def auth_secret(plan: Plan) -> str:
    """The key by which the daemons know each other."""
    return "munge.key" if plan.auth == "munge" else "slurm.key"


def key_secrets(plan: Plan) -> list[str]:
    """The keys of a daemon that also takes tokens."""
    return [auth_secret(plan), *(["jwt_hs256.key"] if plan.topology.auth.jwt else [])]


def with_environment(**more: object) -> Service:
    """Variables beside those that all services of Slurm have."""
    if not more:
        return {}
    return {"environment": {"<<": Alias("environment"), **{k: str(v) for k, v in more.items()}}}


def named_volumes(services: Mapping[str, Service]) -> list[str]:
    """The volumes that services use by name, each once."""
    sources = [v.partition(":")[0] for s in services.values() for v in s.get("volumes", ())]
    return list(dict.fromkeys(name for name in sources if not name.startswith(("/", "."))))
