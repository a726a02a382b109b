"""Topology + what was found -> Plan: every address, port, place and limit decided, nothing done."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from slurm.api.unshared import FEATURE
from slurm.errors import StackError
from slurm.model.hostlist import collapse_hostlist
from slurm.stack.check import (
    FIRST_NODE_ADDRESS,
    PORT_OF_ITS_OWN,
    apart_nodes,
    chosen_version,
    node_groups,
    srun_ports,
)
from slurm.stack.site import Gpu, Site
from slurm.stack.topology import Nodes, Partition, Topology, User
from slurm.stack.versions import SUITES, at_least

#: Each service's place in the subnet: an address stays when another service comes or goes.
_SLOTS = {
    "slurmctld": 2,
    "slurmctld-backup": 3,
    "slurmdbd": 4,
    "mysql": 5,
    "slurmrestd": 6,
    "login": 7,
    "prometheus": 8,
    "grafana": 9,
    "slurm-exporter": 10,
    "node-exporter": 11,
}
#: What slurmd itself and its container need of the memory limit, in MiB.
RESERVED_MEMORY = 128
SLURMD_PORT = 6818
SLURMDBD_PORT = 6819
#: The images of a Mac, unless the topology asks for others.
ARM = "linux/arm64"


@dataclass(frozen=True)
class Node:
    """One compute node as it will be: where it is, and what jobs may have of it."""

    name: str
    hostname: str
    address: str
    port: int
    cpus: int
    memory: int
    gpus: tuple[Gpu, ...] = ()
    detect_gpus: bool = False
    features: tuple[str, ...] = ()
    weight: int = 1
    host: str = ""
    platform: str = ""
    limit: int = 0


@dataclass(frozen=True)
class Paths:
    """Where the daemons keep things; without `logs` they write to standard error."""

    state: str = "/var/lib/slurm/state"
    spool: str = "/var/spool/slurmd"
    run: str = "/run/slurm"
    logs: str = ""
    keys: str = "/run/slurm-keys"
    munge_socket: str = ""


@dataclass(frozen=True)
class Cgroups:
    """How jobs are held to their memory, or why they are not."""

    plugin: str = ""
    mount: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Plan:
    """A whole cluster, decided; every file is a function of this value."""

    topology: Topology
    version: str
    user: str
    controllers: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    paths: Paths
    auth: str
    cgroups: Cgroups
    slurmctld_port: int = 6817
    slurmdbd_port: int | None = SLURMDBD_PORT
    slurmdbd_host: str = "slurmdbd"
    slurmdbd_address: str = "127.0.0.1"
    #: Whether the daemons of a native cluster listen on the loopback address and nowhere else.
    loopback_alone: bool = True
    storage_host: str = "localhost"
    storage_user: str = "slurm"
    users: tuple[User, ...] = ()
    # Of containers only.
    subnet: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    site: Site = field(default_factory=Site)
    notices: tuple[str, ...] = ()

    @property
    def native(self) -> bool:
        """Whether the daemons are plain processes of one host."""
        return self.topology.engine == "native"

    @property
    def several_hosts(self) -> bool:
        """Whether nodes run on other hosts than the controller."""
        return any(node.host for node in self.nodes)

    @property
    def suite(self) -> str:
        """The Debian release of the Slurm images."""
        return SUITES[self.version]

    @property
    def enforcement(self) -> str:
        """What holds jobs to what they asked for, or why nothing does."""
        if not self.cgroups.plugin:
            return f"none: {self.cgroups.why_not}"
        found = "cgroup/v1" if self.cgroups.plugin == "cgroup/v1" else "cgroup/v2"
        devices = " and GPUs" if any(node.gpus for node in self.nodes) else ""
        return f"{found} holds memory{devices}; cores are counted, and a node's own are its limit"

    def since(self, version: str) -> bool:
        """Whether this cluster's Slurm is that release or a later one."""
        return at_least(self.version, version)

    @property
    def joined(self) -> tuple[Node, ...]:
        """The nodes of other hosts: slurmctld knows them when they have joined."""
        return tuple(node for node in self.nodes if node.host)

    def srun_ports(self, service: str) -> tuple[int, int]:
        """The ports of srun in one container: those of a host publish different ones."""
        low, high = srun_ports(self.topology)
        sharing = [s for s in self.addresses if s == "login" or s.startswith("slurmd-")]
        if service not in sharing:
            return low, high
        size = (high - low + 1) // len(sharing)
        first = low + size * sharing.index(service)
        return first, first + size - 1

    def on_host(self, name: str) -> tuple[Node, ...]:
        """The nodes of one host; the empty name is the host where `up` runs."""
        return tuple(node for node in self.nodes if node.host == name)


def container_plan(topology: Topology, site: Site | None = None) -> Plan:
    """The plan of a cluster in containers."""
    site = site or Site()
    version = chosen_version(topology)
    groups = node_groups(topology)
    count = sum(len(group.names) for group in groups)
    subnet = topology.network.subnet
    if subnet == "auto":
        subnet = site.subnet or next(subnets(topology.name, count))
    network = ipaddress.IPv4Network(subnet)
    wanted = [name for name in services(topology) if name not in site.without]
    addresses = {name: str(network[_SLOTS[name]]) for name in wanted}
    cgroups = _cgroups(topology, site, version)
    nodes = tuple(_nodes(topology, groups, site, network, version))
    controllers = [name for name in addresses if name.startswith("slurmctld")]
    external = topology.database.kind == "external"
    return Plan(
        topology=topology,
        version=version,
        user="slurm",
        controllers=tuple((name, addresses[name]) for name in controllers),
        nodes=nodes,
        partitions=partitions(topology),
        paths=Paths(),
        auth=auth_kind(topology, version),
        cgroups=cgroups,
        slurmctld_port=topology.controller.port,
        slurmdbd_port=SLURMDBD_PORT if topology.accounting else None,
        slurmdbd_address=addresses.get("slurmdbd", ""),
        storage_host=topology.database.host if external else addresses.get("mysql", ""),
        storage_user=topology.database.user,
        users=tuple(
            replace(user, gid=user.gid or user.uid) for user in topology.users or (site.user,)
        ),
        subnet=subnet,
        addresses={
            **addresses,
            **{n.hostname: _inner(network, i) for i, n in enumerate(nodes) if not n.host},
        },
        site=site,
        notices=tuple(_notices(topology, site, cgroups)),
    )


def services(topology: Topology) -> Iterator[str]:
    """The services of a topology beside its nodes, in the order of their addresses."""
    wanted = {
        "slurmctld": True,
        "slurmctld-backup": topology.controller.backup,
        "slurmdbd": topology.accounting,
        "mysql": topology.database.kind == "mariadb",
        "slurmrestd": topology.rest.enabled,
        "login": topology.login.enabled,
        "prometheus": topology.monitoring.enabled,
        "grafana": topology.monitoring.enabled and topology.monitoring.grafana,
        "slurm-exporter": topology.monitoring.enabled,
        "node-exporter": topology.monitoring.enabled and topology.monitoring.node_exporter,
    }
    return (name for name, there in wanted.items() if there)


def subnets(name: str, nodes: int) -> Iterator[str]:
    """Private networks with room for so many nodes, beginning with one that the name decides."""
    room = nodes + FIRST_NODE_ADDRESS + 2
    blocks = 1 << max(0, (room - 1).bit_length() - 8)
    count = 256 // blocks
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    for step in range(count):
        yield f"10.213.{(first + step) % count * blocks}.0/{24 - (blocks.bit_length() - 1)}"


def auth_kind(topology: Topology, version: str) -> str:
    """`slurm` or `munge`."""
    if topology.auth.kind != "auto":
        return topology.auth.kind
    return "slurm" if at_least(version, "23.11") else "munge"


def partitions(topology: Topology) -> tuple[Partition, ...]:
    """The queues as slurm.conf has them: one default, and hosts without shared files apart."""
    found = topology.partitions or (Partition("main"),)
    apart = apart_nodes(topology)
    everyone = [name for group in node_groups(topology) for name in group.names]
    together = tuple(name for name in everyone if name not in apart)
    if apart:
        found = tuple(replace(p, nodes=together) if p.nodes == "ALL" else p for p in found)
    if not any(part.default for part in found):
        found = (replace(found[0], default=True), *found[1:])
    served = {name for part in found for name in (everyone if part.nodes == "ALL" else part.nodes)}
    taken = {part.name for part in found}
    for host in topology.hosts:
        own = tuple(n for g in topology.nodes if g.host == host.name for n in g.names)
        if not host.shared and own and not served.issuperset(own):
            name = host.name.replace("-", "_")
            found = (*found, Partition(name if name not in taken else f"only_{name}", own))
    return found


def _inner(network: ipaddress.IPv4Network, number: int) -> str:
    return str(network[FIRST_NODE_ADDRESS + number])


def _nodes(
    topology: Topology,
    groups: tuple[Nodes, ...],
    site: Site,
    network: ipaddress.IPv4Network,
    version: str,
) -> Iterator[Node]:
    several = any(group.host for group in groups)
    used: dict[str, int] = {}
    given: dict[str, int] = {}
    number = 0
    for group in groups:
        for name in group.names:
            host = topology.host(group.host)
            # Where hosts are several, each has its own way to a node of the first: by its name.
            reached = (host.address if host else f"slurmd-{name}") if several else ""
            turn = used.get(group.host, 0)
            own_port = several and (not group.host or at_least(version, PORT_OF_ITS_OWN))
            gpus = _gpus(group, site, first_of_host=turn == 0, taken=given.get(group.host, 0))
            auto = group.gpus == "auto" and bool(gpus)
            yield Node(
                name=name,
                hostname=f"slurmd-{name}",
                address=reached or _inner(network, number),
                port=topology.network.node_port + turn if own_port else SLURMD_PORT,
                cpus=group.cpus,
                memory=group.memory - min(RESERVED_MEMORY, group.memory // 4),
                gpus=gpus,
                detect_gpus=auto and gpus[0].vendor == "nvidia" and at_least(version, "24.11"),
                features=(*group.features, *((FEATURE,) if host and not host.shared else ())),
                weight=group.weight,
                host=group.host,
                platform=group.platform or (ARM if host and host.platform == "mac" else ""),
                limit=group.memory,
            )
            used[group.host] = turn + 1
            given[group.host] = given.get(group.host, 0) + len(gpus)
            number += 1


def gpus_of(groups: Sequence[Nodes], site: Site) -> list[tuple[Gpu, ...]]:
    """The GPUs of nodes of one host, each given by its group."""
    found: list[tuple[Gpu, ...]] = []
    for turn, group in enumerate(groups):
        taken = sum(map(len, found))
        found.append(_gpus(group, site, first_of_host=turn == 0, taken=taken))
    return found


def _gpus(group: Nodes, site: Site, *, first_of_host: bool, taken: int) -> tuple[Gpu, ...]:
    """A node's GPUs; two nodes of a host never get the same one."""
    found = site.gpus_of(group.host)
    if isinstance(group.gpus, str):  # auto: all that were found, for the first node of the host
        return found if first_of_host else ()
    vendor = found[0].vendor if found else "nvidia"
    types = [request.type or "" for request in group.gpus for _ in range(request.count)]
    first = "/dev/dri/renderD" if vendor == "amd" else "/dev/nvidia"
    offset = taken + (128 if vendor == "amd" else 0)
    return tuple(Gpu(vendor, kind, f"{first}{offset + n}") for n, kind in enumerate(types))


def _cgroups(topology: Topology, site: Site, version: str) -> Cgroups:
    if topology.limits.enforce is False:
        return Cgroups(why_not="limits.enforce is false")
    used = {group.host for group in topology.nodes}
    without = [
        host.name
        for host in topology.hosts
        if host.name in used
        and (host.cgroups is False or (host.cgroups == "auto" and host.platform == "qnap"))
    ]
    why = ""
    found = site.cgroup if topology.limits.cgroup == "auto" else topology.limits.cgroup
    if found == "none":
        why = "this host has no cgroup with a memory controller"
    elif found == "v2" and not at_least(version, "22.05"):
        why = f"Slurm {version} knows no cgroup v2"
    elif without:
        why = f"{', '.join(without)} cannot, and Slurm follows processes in one way everywhere"
    if why and topology.limits.enforce is True:
        raise StackError(
            f"limits.enforce = true is not possible: {why}",
            hint='write enforce = "auto", or cgroups = true for a host that can',
        )
    if why:
        return Cgroups(why_not=why)
    return Cgroups("cgroup/v1" if found == "v1" else "autodetect")


def _notices(topology: Topology, site: Site, cgroups: Cgroups) -> Iterator[str]:
    if cgroups.why_not:
        yield f"jobs are not held to their memory: {cgroups.why_not}"
    for name in services(topology):
        if name in site.without:
            yield f"no {name}: its image is not here and cannot be pulled; `up` tries again"
    apart = apart_nodes(topology)
    if apart:
        yield (
            f"{collapse_hostlist(apart)} has no shared directory: a partition of its own, "
            "and no runs that need shared files"
        )
    if any(g.gpus == "auto" and g.host for g in topology.nodes):
        yield 'GPUs of other hosts are not looked for: write gpus = "..." for nodes that have some'
