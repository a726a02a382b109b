"""What no single key can tell: whether the parts of a topology fit together."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from slurm.errors import nearest
from slurm.model.hostlist import collapse_hostlist
from slurm.stack import confkeys
from slurm.stack.toml_lines import Way
from slurm.stack.topology import Nodes, Topology
from slurm.stack.versions import DEFAULT, at_least

Finding = tuple[Way, str, str]

#: A cluster of one host; more nodes than this on one machine is a slip of the keyboard.
MOST_NODES = 1000
#: Addresses before the nodes' own: gateway, and a service each.
FIRST_NODE_ADDRESS = 20
#: The release from which on a node that joins may have another port than SlurmdPort.
PORT_OF_ITS_OWN = "24.11"
_SRUN_PORTS = (60001, 61000)
#: So many of a container where hosts are several: docker runs a process for each.
PUBLISHED_SRUN_PORTS = 60
DEFAULT_NODES = (Nodes(names=("n1", "n2")),)

_OF_THE_SYSTEM = ("root", "slurm", "munge", "mysql", "prometheus", "sshd", "nobody", "slurmrest")
_NOT_SHARED = ("/", "/etc", "/usr", "/bin", "/lib", "/proc", "/sys", "/dev", "/run", "/var", "/tmp")
# What the cluster is built on; a line of one's own could only break it.
_OURS = ("clustername", "slurmctldhost", "nodename", "slurmuser", "statesavelocation")
_OURS_DBD = ("dbdhost", "dbdaddr", "storagetype", "slurmuser")


def findings(topology: Topology) -> Iterator[Finding]:
    """Everything that does not fit, as way into the file, problem and fix."""
    yield from _names(topology)
    yield from _nodes(topology)
    yield from _partitions(topology)
    yield from _accounting(topology)
    yield from _users(topology)
    yield from _services(topology)
    yield from _hosts(topology)
    yield from _ports(topology)
    yield from _lines(topology)
    if topology.engine == "native":
        yield from _native(topology)


def chosen_version(topology: Topology) -> str:
    """The release that `auto` stands for in containers, or the one that is named."""
    return DEFAULT if topology.version == "auto" else topology.version


def node_groups(topology: Topology) -> tuple[Nodes, ...]:
    """The groups of nodes, or the default two nodes."""
    return topology.nodes or DEFAULT_NODES


def srun_ports(topology: Topology) -> tuple[int, int]:
    """The ports that are named; else plenty, or few where each is published by the engine."""
    asked = topology.network.srun_ports
    if isinstance(asked, tuple):
        return asked
    if not any(group.host for group in topology.nodes):
        return _SRUN_PORTS
    here = sum(len(group.names) for group in topology.nodes if not group.host)
    first = _SRUN_PORTS[0]
    return first, min(first + PUBLISHED_SRUN_PORTS * (here + 1) - 1, 65535)


def _unknown(way: Way, what: str, word: str, known: Iterable[str]) -> Finding:
    names = list(known)
    close = nearest(word, names)
    fix = f'did you mean "{close}"?' if close else f"known: {', '.join(names[:12]) or 'none'}"
    return way, f'there is no {what} "{word}"', fix


def _names(topology: Topology) -> Iterator[Finding]:
    for table in ("hosts", "partitions", "qos", "accounts", "users"):
        seen: set[str] = set()
        for number, item in enumerate(getattr(topology, table)):
            if item.name in seen:
                yield (table, number, "name"), f'"{item.name}" is there twice', "rename one"
            seen.add(item.name)


def _nodes(topology: Topology) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for number, group in enumerate(topology.nodes):
        twice = [name for name in group.names if name in seen]
        if twice:
            yield (
                ("nodes", number, "names"),
                f"{collapse_hostlist(twice)} is also in nodes[{seen[twice[0]]}]",
                "give each node one name",
            )
        seen.update(dict.fromkeys(group.names, number))
        if group.host and topology.host(group.host) is None:
            known = [host.name for host in topology.hosts]
            yield _unknown(("nodes", number, "host"), "host", group.host, known)
    if len(seen) > MOST_NODES:
        yield ("nodes",), f"{len(seen)} nodes are too many", f"at most {MOST_NODES}"


def _partitions(topology: Topology) -> Iterator[Finding]:
    apart = apart_nodes(topology)
    known = [name for group in node_groups(topology) for name in group.names]
    defaults = [n for n, part in enumerate(topology.partitions) if part.default]
    for number in defaults[1:]:
        yield (
            ("partitions", number, "default"),
            f'"{topology.partitions[defaults[0]].name}" is the default partition already',
            "let one partition be the default",
        )
    for number, part in enumerate(topology.partitions):
        way: Way = ("partitions", number)
        nodes = () if part.nodes == "ALL" else part.nodes
        for name in nodes:
            if name not in known:
                yield _unknown((*way, "nodes"), "node", name, known)
        mixed = apart.intersection(nodes)
        if mixed and len(mixed) < len(nodes):
            yield (
                (*way, "nodes"),
                f"{collapse_hostlist(mixed)} has no shared directory, the other nodes have it",
                "give it a partition of its own, or share the directory with its host",
            )
        if part.max_time and part.default_time and part.default_time > part.max_time:
            yield (*way, "default_time"), "is longer than max_time", "make it at most max_time"
        if part.qos and part.qos not in _qos(topology):
            yield _unknown((*way, "qos"), "QOS", part.qos, _qos(topology))
        for name in part.accounts:
            if name not in [account.name for account in topology.accounts]:
                yield _unknown(
                    (*way, "accounts"), "account", name, [a.name for a in topology.accounts]
                )


def apart_nodes(topology: Topology) -> set[str]:
    """The nodes of hosts that do not have the shared directory."""
    alone = {host.name for host in topology.hosts if not host.shared}
    return {name for group in topology.nodes if group.host in alone for name in group.names}


def _qos(topology: Topology) -> list[str]:
    return ["normal", *(qos.name for qos in topology.qos)]


def _accounting(topology: Topology) -> Iterator[Finding]:
    for table in ("qos", "accounts"):
        if getattr(topology, table) and not topology.accounting:
            yield (table,), "needs accounting, and database.kind is none", "give it a database"
    parents = {account.name: account.parent for account in topology.accounts}
    people = [user.name for user in topology.users]
    for number, qos in enumerate(topology.qos):
        for name in qos.preempts:
            if name not in _qos(topology):
                yield _unknown(("qos", number, "preempts"), "QOS", name, _qos(topology))
    for number, account in enumerate(topology.accounts):
        way: Way = ("accounts", number)
        if account.parent != "root" and account.parent not in parents:
            yield _unknown((*way, "parent"), "account", account.parent, ["root", *parents])
        elif _circle(account.name, parents):
            yield (*way, "parent"), "the accounts stand in a circle", 'let one have parent = "root"'
        for name in account.qos:
            if name not in _qos(topology):
                yield _unknown((*way, "qos"), "QOS", name, _qos(topology))
        for name in account.users if people else ():
            if name not in people:
                yield _unknown((*way, "users"), "user", name, people)


def _circle(name: str, parents: dict[str, str]) -> bool:
    seen = set()
    while name in parents and name not in seen:
        seen.add(name)
        name = parents[name]
    return name in seen


def _users(topology: Topology) -> Iterator[Finding]:
    seen: dict[int, str] = {}
    for number, user in enumerate(topology.users):
        if user.uid in seen:
            what = f"{user.uid} is the uid of {seen[user.uid]} too"
            yield ("users", number, "uid"), what, "give each user a uid"
        seen[user.uid] = user.name
        if user.name in _OF_THE_SYSTEM:
            what = f'"{user.name}" is an account of the system'
            yield ("users", number, "name"), what, "use the name of a person"


def _services(topology: Topology) -> Iterator[Finding]:
    version = chosen_version(topology)
    database = topology.database
    if topology.auth.kind == "slurm" and not at_least(version, "23.11"):
        what = f"Slurm {version} has no auth/slurm: it came with 23.11"
        yield ("auth", "kind"), what, 'write kind = "munge", or take a later version'
    if topology.rest.enabled and not topology.auth.jwt:
        yield ("auth", "jwt"), "slurmrestd lets nobody in without tokens", "write jwt = true"
    if database.kind == "external" and not database.host:
        yield ("database",), "host is missing: an external database has one", "add host = ..."
    if database.kind == "external" and database.host in ("localhost", "127.0.0.1"):
        what = f"{database.host} is the container itself, not this machine"
        yield ("database", "host"), what, "write the address that other machines would use"
    if database.kind != "external" and database.host:
        what = f'is used only with kind = "external", and kind is "{database.kind}"'
        yield ("database", "host"), what, "remove it, or change kind"
    if database.kind == "mariadb" and database.buffer_pool * 4 > topology.limits.mysql.memory * 3:
        yield (
            ("database", "buffer_pool"),
            f"{database.buffer_pool} MiB leave too little of MariaDB's "
            f"{topology.limits.mysql.memory} MiB",
            "make it at most three quarters of limits.mysql.memory",
        )
    if topology.controller.takeover is None:
        yield ("controller", "takeover"), "a backup that never takes over is none", "such as 2min"
    if topology.shared.path in _NOT_SHARED:
        what = f"{topology.shared.path} belongs to each container itself"
        yield ("shared", "path"), what, "such as /home or /data"


def _hosts(topology: Topology) -> Iterator[Finding]:
    used = {group.host for group in topology.nodes if group.host}
    addresses: dict[str, str] = {topology.network.address: "network.address"}
    for number, host in enumerate(topology.hosts):
        if host.name in used and not host.address:
            what = f'address is missing: the cluster reaches "{host.name}" by it'
            yield ("hosts", number), what, 'add address = "192.168.1.20"'
        elif host.address and host.address in addresses:
            what = f"{host.address} is {addresses[host.address]} too"
            yield ("hosts", number, "address"), what, "give each host its own"
        addresses.setdefault(host.address, f"the address of {host.name}")
    if used and not topology.network.address:
        way: Way = next(("nodes", n, "host") for n, g in enumerate(topology.nodes) if g.host)
        what = f"nodes on {', '.join(sorted(used))} need network.address, this host's own address"
        yield way, what, 'add [network] with address = "192.168.1.10"'
    yield from _joining(topology, used)
    if topology.network.subnet != "auto":
        room = ipaddress.IPv4Network(topology.network.subnet).num_addresses
        nodes = sum(len(group.names) for group in node_groups(topology))
        if room < nodes + FIRST_NODE_ADDRESS + 2:
            what = f"{topology.network.subnet} has no room for {nodes} nodes and the services"
            yield ("network", "subnet"), what, "take a wider network, such as a /24"


def _joining(topology: Topology, used: set[str]) -> Iterator[Finding]:
    """What nodes on other hosts ask of the rest."""
    if not used:
        return
    way: Way = next(("nodes", n, "host") for n, g in enumerate(topology.nodes) if g.host)
    version = chosen_version(topology)
    if not at_least(version, "22.05"):
        what = f"Slurm {version} knows no nodes that join: they came with 22.05"
        yield way, what, "take a later version, or keep the nodes on this host"
    for name in used if not at_least(version, PORT_OF_ITS_OWN) else ():
        if sum(len(group.names) for group in topology.nodes if group.host == name) > 1:
            what = f"Slurm {version} lets one node of {name} join, for all must have one port"
            yield way, what, f"give it one larger node, or take Slurm {PORT_OF_ITS_OWN} or later"
    if topology.controller.backup:
        what = "two controllers cannot both be published on the port of one address"
        yield ("controller", "backup"), what, "remove it, or keep all nodes on this host"
    for number, host in enumerate(topology.hosts):
        lost = host.shared and not host.shared_source and topology.shared.source[:1] != "/"
        if host.name in used and lost:
            what = f'the volume "{topology.shared.source}" is not on {host.name}'
            fix = "write shared = false, or shared_source with the directory there"
            yield ("hosts", number), what, fix
    here = sum(len(group.names) for group in topology.nodes if not group.host)
    first, last = srun_ports(topology)
    if last - first + 1 < 4 * (here + 1):
        what = f"{last - first + 1} ports are too few for {here} nodes and the login node"
        yield ("network", "srun_ports"), what, f"name {4 * (here + 1)} or more: srun takes four"


def _ports(topology: Topology) -> Iterator[Finding]:
    taken: dict[int, str] = {}
    first, last = srun_ports(topology)
    monitoring = topology.monitoring
    ports: list[tuple[Way, int, bool]] = [
        (("controller", "port"), topology.controller.port, True),
        (("rest", "port"), topology.rest.port, topology.rest.enabled),
        (("login", "port"), topology.login.port, topology.login.enabled),
        (("monitoring", "prometheus_port"), monitoring.prometheus_port, monitoring.enabled),
        (("monitoring", "grafana_port"), monitoring.grafana_port, monitoring.enabled),
        (("network", "node_port"), topology.network.node_port, bool(topology.hosts)),
    ]
    for way, port, used in ports:
        where = ".".join(map(str, way))
        if not used:
            continue
        if port in taken:
            yield way, f"{port} is also {taken[port]}", "give each its own port"
        elif first <= port <= last:
            yield way, f"{port} lies in network.srun_ports", "take a port outside of them"
        taken[port] = where


def _lines(topology: Topology) -> Iterator[Finding]:
    """Lines of the user's own, checked against what the release knows."""
    version = chosen_version(topology)
    for file, ours in (("slurm", _OURS), ("slurmdbd", _OURS_DBD), ("cgroup", ()), ("gres", ())):
        for number, line in enumerate(getattr(topology.conf, file)):
            way: Way = ("conf", file, number)
            word, equals, value = (part.strip() for part in line.partition("="))
            if not equals or not value:
                yield way, f'"{line}" is not KEY=VALUE', 'such as "MaxArraySize=5000"'
            elif word.lower() in ours and value.upper().split()[0] != "DEFAULT":
                yield way, f"{word} is decided by the topology", "use the keys of this file"
            elif word.lower() in ("storagepass", "jobcomppass"):
                what = "no secret belongs into this file"
                yield way, what, "remove it: the password is read from the secrets folder"
            elif problem := confkeys.why_not(f"{file}.conf", word, version):
                yield way, problem.what, problem.fix


def _native(topology: Topology) -> Iterator[Finding]:
    """What plain processes on one host cannot be."""
    fix = "use the engine podman or docker, or remove it"
    for way, used, what in (
        (("controller", "backup"), topology.controller.backup, "a backup controller"),
        (("rest", "enabled"), topology.rest.enabled, "slurmrestd"),
        (("monitoring", "enabled"), topology.monitoring.enabled, "monitoring"),
        (("hosts",), bool(topology.hosts), "other hosts"),
        (("auth", "kind"), topology.auth.kind == "slurm", "auth/slurm"),
        (("database", "kind"), topology.database.kind == "external", "an external database"),
    ):
        if used:
            yield way, f"the engine native has not {what}", fix
