"""What is different on a Mac or on a NAS: overrides of the compose file, as values."""

from __future__ import annotations

from typing import Any

from slurm.stack.plan import Plan
from slurm.stack.services import named_volumes

PLATFORMS = ("ubuntu", "mac", "qnap")
# Memory of each daemon on a machine that has little.
_SMALL = "512m"


def override(plan: Plan, services: dict[str, Any], platform: str) -> dict[str, Any]:
    """The override of one platform, for the services of the compose file."""
    return _mac(plan, services) if platform == "mac" else _qnap(plan, services)


def comment(platform: str) -> str:
    """What stands above an override."""
    if platform == "mac":
        return (
            "For Docker Desktop or a podman machine on macOS, beside docker-compose.yml.\n"
            "SLURM_PLATFORM=linux/amd64 takes the other kind of image (slower on Apple silicon)."
        )
    return (
        "For a NAS (QNAP and the like), beside docker-compose.yml: little memory, no CPU quota\n"
        "in the kernel, volumes under SLURM_STORAGE. Make their directories first:\n"
        "grep -o 'device: .*' docker-compose.override.qnap.yml shows them."
    )


def _is_node(name: str) -> bool:
    return name.startswith("slurmd-")


def _mac(plan: Plan, services: dict[str, Any]) -> dict[str, Any]:
    nodes = {node.hostname: node for node in plan.nodes}
    changed: dict[str, Any] = {}
    for name in services:
        given = nodes[name].platform if name in nodes else ""
        changed[name] = {"platform": given or "${SLURM_PLATFORM:-linux/arm64}"}
        if name in nodes and plan.cgroups.plugin:
            # The virtual machine has cgroups of its own.
            changed[name]["cgroup"] = "private"
    return {"services": changed}


def _qnap(plan: Plan, services: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in services:
        # 0 takes the quota away, which an old kernel refuses.
        changed[name] = {"cpus": 0}
        if not _is_node(name):
            # A node's limit stays: Slurm counts on that memory.
            changed[name]["mem_limit"] = _SMALL
    storage = next(
        (h.storage for h in plan.topology.hosts if h.platform == "qnap" and h.storage), ""
    )
    place = "${SLURM_STORAGE:-" + (storage or f"/share/Container/{plan.topology.name}") + "}"
    volumes = {
        volume: {
            "driver_opts": {"type": "none", "o": "bind", "device": f"{place}/{volume}"},
        }
        for volume in named_volumes(services)
    }
    return {"services": changed, "volumes": volumes}
