"""Plan -> what another host needs to bring its nodes in: a compose project, a script; pure."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, cast

from slurm.api.unshared import FEATURE, FILE_NAME
from slurm.stack.check import srun_ports
from slurm.stack.compose import node_service, node_volumes
from slurm.stack.conf import node_words
from slurm.stack.containers import container, network
from slurm.stack.image import images, template
from slurm.stack.plan import Node, Plan
from slurm.stack.platforms import override
from slurm.stack.services import EDGE, Service, any_service, named_volumes, slurm_service
from slurm.stack.topology import Host
from slurm.stack.yaml import Alias, Anchor, dump, plain

FOLDER = "hosts"
_HERE = Path("@HERE@")


def joining_hosts(plan: Plan) -> list[Host]:
    """The hosts of the topology that have nodes and are not this one."""
    used = {node.host for node in plan.joined}
    return [host for host in plan.topology.hosts if host.name in used]


def project(plan: Plan, host: Host) -> dict[str, Any]:
    """The compose project of one host: its nodes, and nothing else of the cluster."""
    nodes = plan.on_host(host.name)
    services = {node.hostname: _slurmd(plan, host, node, nodes[0]) for node in nodes}
    if host.platform != "ubuntu":
        changed = override(plan, services, host.platform)["services"]
        services = {name: {**service, **changed[name]} for name, service in services.items()}
    secrets = services[nodes[0].hostname]["secrets"]
    return {
        "name": project_name(plan, host),
        "x-hosts": Anchor("hosts", _addresses(plan)),
        "x-service": Anchor("service", any_service()),
        "x-slurm": Anchor("slurm", slurm_service(plan, images(plan)["slurm"])),
        "services": services,
        "networks": {EDGE: {}},
        "volumes": {name: {} for name in named_volumes(services)},
        "secrets": {name: {"file": f"./secrets/{name}"} for name in secrets},
    }


def project_name(plan: Plan, host: Host) -> str:
    """The name of a host's own compose project."""
    return f"{plan.topology.name}-{host.name}"


def _addresses(plan: Plan) -> list[str]:
    """What another host's containers must know by name: the controller, and all nodes."""
    names = [plan.controllers[0][0], *(node.hostname for node in plan.on_host(""))]
    there = [f"{name}:{plan.topology.network.address}" for name in names]
    return [*there, *(f"{node.hostname}:{node.address}" for node in plan.joined)]


def _slurmd(plan: Plan, host: Host, node: Node, first: Node) -> Service:
    volumes = node_volumes(plan, node)
    if host.storage:
        volumes = [v if v.startswith("/") else f"{host.storage}/{v}" for v in volumes]
    service: Service = {
        "<<": Alias("slurm"),
        "container_name": f"{project_name(plan, host)}-{node.hostname}",
        "command": ["slurmd"],
        **_net(plan, host, node, first),
        **node_service(
            plan,
            node,
            volumes,
            SLURM_HOST_ADDRESS=host.address,
            SLURM_CPUS=str(node.cpus),
            SLURM_MEMORY=str(node.limit),
            SLURM_RESERVED=str(node.limit - node.memory),
            SLURM_NODE_WORDS=" ".join(node_words(node)),
        ),
    }
    return service if "privileged" in service else {**service, "cap_add": ["NET_ADMIN"]}


def _net(plan: Plan, host: Host, node: Node, first: Node) -> Service:
    """All nodes of a host share one network, as processes of one host would."""
    if node != first:
        return {"network_mode": f"service:{first.hostname}", "extra_hosts": []}
    low, high = srun_ports(plan.topology)
    last = plan.on_host(host.name)[-1].port
    own = f"{first.port}-{last}" if last > first.port else str(first.port)
    return {
        "hostname": node.hostname,
        "networks": {EDGE: {}},
        "ports": [f"{host.address}:{ports}:{ports}" for ports in (own, f"{low}-{high}")],
    }


# ---- the files ----------------------------------------------------------------------------------


def host_files(plan: Plan) -> dict[str, str]:
    """The folder of each other host, by path; the key comes when it joins."""
    found = {}
    for host in joining_hosts(plan):
        whole = project(plan, host)
        title = f"Written by `slurm cluster render`: the nodes on {host.name}."
        files = {
            "docker-compose.yml": dump(whole, title),
            "join.sh": _script(plan, host, cast("dict[str, Any]", plain(whole))),
            "Containerfile": template("Containerfile"),
            "entrypoint.sh": template("entrypoint.sh"),
            "secrets/.gitignore": "*\n!.gitignore\n",
        }
        found.update({f"{FOLDER}/{host.name}/{name}": text for name, text in files.items()})
    return found


def _script(plan: Plan, host: Host, whole: dict[str, Any]) -> str:
    """join.sh: the same containers as the compose project, with the engine alone."""
    name = project_name(plan, host)
    image = images(plan)["slurm"]
    build = [word for key, value in image.arguments for word in ("--build-arg", f"{key}={value}")]
    bind = [v.partition(":")[0] for s in whole["services"].values() for v in s["volumes"]]
    made = [
        container(plan, _HERE, node.hostname, whole["services"][node.hostname], node.name, name)
        for node in plan.on_host(host.name)
    ]
    lines = "\n".join(f"bring {one.name} {_words(one.create)}" for one in made)
    return (
        template("join.sh")
        .replace(
            "@ENGINES@", "podman docker" if plan.topology.engine == "podman" else "docker podman"
        )
        .replace("@NETWORK@", network(name, EDGE))
        .replace("@IMAGE@", image.name)
        .replace("@BUILD@", shlex.join(["--target", image.target, *build]))
        .replace("@FOLDERS@", shlex.join([p for p in bind if host.storage and host.storage in p]))
        .replace("@NAMES@", " ".join(one.name for one in reversed(made)))
        .replace("@BRING@", lines)
    )


def _words(words: tuple[str, ...]) -> str:
    # The folder is where the script lies, which nobody knows before.
    quoted = [
        '"$here"'.join(part and shlex.quote(part) for part in word.split(str(_HERE)))
        for word in words
    ]
    return " ".join(f"\\\n  {word}" if word.startswith("--") else word for word in quoted)


def unshared(plan: Plan) -> dict[str, str]:
    """`noshared.json`, or nothing: which partitions and nodes see no shared file, with the host."""
    nodes = {node.name: node.host for node in plan.joined if FEATURE in node.features}
    if not nodes:
        return {}
    apart = {p.name: p.nodes for p in plan.partitions if set(p.nodes) <= nodes.keys()}
    found = {
        "partition": {name: nodes[members[0]] for name, members in apart.items()},
        "nodelist": nodes,
        "path": plan.topology.shared.path,
    }
    return {f"shared/{FILE_NAME}": json.dumps(found, indent=1) + "\n"}
