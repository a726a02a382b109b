"""What a cluster consists of, as values: every key of `cluster.toml` with kind, default, meaning.

A value here says what is asked for. What is found out where the cluster runs (addresses, ports,
directories, GPUs) is in `slurm.stack.plan`.
"""

# ruff: noqa: RUF009 - key and table return fields of a dataclass

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slurm.model.units import GpuRequest
from slurm.stack import kinds
from slurm.stack.kinds import Kind
from slurm.stack.versions import SUITES

_REQUIRED = object()


def key(kind: Kind, default: Any, doc: str) -> Any:
    """A key of one table: what it may be, what it is where it is left out, what it means."""
    details = {"kind": kind, "doc": doc, "required": default is _REQUIRED}
    if default is _REQUIRED:
        return field(metadata=details)
    return field(default=default, metadata=details)


def table(cls: type, doc: str) -> Any:
    """A key that is a table of its own."""
    return field(default_factory=cls, metadata={"table": cls, "doc": doc})


def tables(cls: type, doc: str) -> Any:
    """A key that is a list of tables, `[[...]]`."""
    return field(default=(), metadata={"tables": cls, "doc": doc})


@dataclass(frozen=True)
class Controller:
    """`[controller]`: slurmctld."""

    backup: bool = key(kinds.FLAG, False, "a second slurmctld takes over when the first is gone")
    state: str = key(
        kinds.VOLUME, "state", "where its state is kept; both controllers need the same place"
    )
    port: int = key(kinds.PORT, 6817, "where it listens")
    takeover: int | None = key(kinds.DURATION, 120, "silence after which the backup takes over")


@dataclass(frozen=True)
class Database:
    """`[database]`: where accounting is kept."""

    kind: str = key(
        kinds.choice("mariadb", "external", "none"),
        "mariadb",
        "a MariaDB of the cluster's own, one that exists already, or no accounting",
    )
    host: str = key(kinds.optional(kinds.HOSTNAME), "", "external: its host")
    port: int = key(kinds.PORT, 3306, "external: its port")
    name: str = key(kinds.NAME, "slurm_acct_db", "the database in it")
    user: str = key(kinds.NAME, "slurm", "who slurmdbd is there")
    suite: str = key(
        kinds.choice(*SUITES.values()),
        "trixie",
        "the Debian whose MariaDB it is; it stays when Slurm is upgraded",
    )
    buffer_pool: int = key(kinds.MEMORY, 128, "InnoDB's buffer pool")
    keep: str = key(
        kinds.text(r"\d{1,4}(hours|days|months)?", "a number of months, or 30days, 12hours"),
        "24months",
        "how long jobs, steps and events are kept",
    )


@dataclass(frozen=True)
class Host:
    """`[[hosts]]`: a machine other than the one where `up` runs, or more about that one."""

    name: str = key(kinds.LABEL, _REQUIRED, "its name here")
    address: str = key(kinds.optional(kinds.ADDRESS), "", "its address for the other hosts")
    platform: str = key(
        kinds.choice("ubuntu", "mac", "qnap"), "ubuntu", "what kind of machine it is"
    )
    shared: bool = key(
        kinds.FLAG, True, "whether the shared directory is there; if not, it has its own partition"
    )
    shared_source: str = key(
        kinds.optional(kinds.PATH), "", "where the shared directory lies on it"
    )
    storage: str = key(kinds.optional(kinds.PATH), "", "where its volumes are kept")
    cgroups: bool | str = key(
        kinds.either("auto", kinds.FLAG), "auto", "whether it can hold jobs to their memory"
    )
    ssh: str = key(
        kinds.optional(kinds.text(r"[A-Za-z0-9_.@-]+", "a name for ssh, [user@]host")),
        "",
        "how ssh reaches it",
    )


@dataclass(frozen=True)
class Nodes:
    """`[[nodes]]`: nodes that are alike."""

    names: tuple[str, ...] = key(kinds.NODES, _REQUIRED, "their names")
    cpus: int = key(kinds.number(1, 4096), 2, "CPUs of each; also the container's limit")
    memory: int = key(kinds.MEMORY, 2048, "memory of each; also the container's limit")
    gpus: str | tuple[GpuRequest, ...] = key(kinds.GPUS, "auto", "GPUs of each; `auto` looks")
    features: tuple[str, ...] = key(kinds.many(kinds.WORD), (), "words that jobs can ask for")
    platform: str = key(
        kinds.optional(kinds.choice("linux/amd64", "linux/arm64")), "", "the image's platform"
    )
    host: str = key(
        kinds.optional(kinds.LABEL), "", "the host they run on; left out: where `up` runs"
    )
    weight: int = key(kinds.number(1, 65533), 1, "nodes of less weight are taken first")


@dataclass(frozen=True)
class Partition:
    """`[[partitions]]`: a queue. Without any there is `main`, with all nodes."""

    name: str = key(kinds.NAME, _REQUIRED, "its name")
    nodes: str | tuple[str, ...] = key(
        kinds.either("ALL", kinds.NODES), "ALL", "its nodes; ALL: those with the shared directory"
    )
    default: bool = key(kinds.FLAG, False, "jobs that name no partition come here")
    max_time: int | None = key(kinds.DURATION, None, "the longest that a job may run")
    default_time: int | None = key(
        kinds.DURATION, None, "how long a job may run that does not say; as max_time if left out"
    )
    max_nodes: int = key(kinds.number(0, 65533), 0, "most nodes of one job; 0: no limit")
    priority: int = key(kinds.number(0, 65533), 1, "jobs of a higher tier are looked at first")
    qos: str = key(kinds.optional(kinds.NAME), "", "a QOS whose limits hold for the partition")
    accounts: tuple[str, ...] = key(
        kinds.many(kinds.NAME), (), "accounts that may use it; left out: all"
    )


@dataclass(frozen=True)
class Qos:
    """`[[qos]]`: a quality of service in accounting."""

    name: str = key(kinds.NAME, _REQUIRED, "its name")
    priority: int = key(kinds.number(0, 1_000_000), 0, "added to a job's priority")
    max_time: int | None = key(kinds.DURATION, None, "the longest that a job may run")
    max_jobs: int = key(kinds.number(0, 1_000_000), 0, "running jobs of one user; 0: no limit")
    max_submit: int = key(kinds.number(0, 10_000_000), 0, "jobs of one user in all; 0: no limit")
    max_cpus: int = key(kinds.number(0, 10_000_000), 0, "CPUs of one user; 0: no limit")
    max_gpus: int = key(kinds.number(0, 100_000), 0, "GPUs of one user; 0: no limit")
    preempts: tuple[str, ...] = key(kinds.many(kinds.NAME), (), "QOS whose jobs it may push aside")


@dataclass(frozen=True)
class Account:
    """`[[accounts]]`: an account in accounting, and who is in it."""

    name: str = key(kinds.NAME, _REQUIRED, "its name")
    parent: str = key(kinds.NAME, "root", "the account above it")
    users: tuple[str, ...] = key(kinds.many(kinds.NAME), (), "users in it")
    qos: tuple[str, ...] = key(kinds.many(kinds.NAME), (), "QOS that its jobs may have")
    shares: int = key(kinds.number(1, 1_000_000), 1, "its share for fair-share")


@dataclass(frozen=True)
class User:
    """`[[users]]`: a person, with the same ids everywhere. Without any: whoever calls."""

    name: str = key(kinds.text(r"[a-z_][a-z0-9_-]{0,31}", "a login name"), _REQUIRED, "login name")
    uid: int = key(kinds.number(1000, 59999), _REQUIRED, "user id, the same on every host")
    gid: int = key(kinds.number(0, 59999), 0, "group id; left out: as uid")
    admin: bool = key(kinds.FLAG, False, "an administrator in accounting")
    ssh_key: str = key(kinds.optional(kinds.LINE), "", "a public key for the login node")


@dataclass(frozen=True)
class Auth:
    """`[auth]`: how the daemons know each other and their users."""

    kind: str = key(
        kinds.choice("auto", "munge", "slurm"), "auto", "auto: auth/slurm from 23.11 on, else munge"
    )
    jwt: bool = key(kinds.FLAG, True, "tokens for REST (`slurm cluster token`)")


@dataclass(frozen=True)
class Rest:
    """`[rest]`: slurmrestd."""

    enabled: bool = key(kinds.FLAG, False, "whether there is one")
    port: int = key(kinds.PORT, 6820, "its port, also on the host")
    address: str = key(
        kinds.ADDRESS, "127.0.0.1", "the address of the host that it is published on"
    )


@dataclass(frozen=True)
class Login:
    """`[login]`: a login node with sshd."""

    enabled: bool = key(kinds.FLAG, True, "whether there is one; `Cluster.from_stack` needs it")
    port: int = key(kinds.PORT, 2222, "its port on the host")
    address: str = key(
        kinds.ADDRESS, "127.0.0.1", "the address of the host that it is published on"
    )


@dataclass(frozen=True)
class Monitoring:
    """`[monitoring]`: Prometheus, Grafana and the exporters."""

    enabled: bool = key(kinds.FLAG, False, "whether there is any")
    grafana: bool = key(kinds.FLAG, True, "Grafana, from its own image; off where there is none")
    node_exporter: bool = key(kinds.FLAG, True, "the host's own numbers")
    prometheus_port: int = key(kinds.PORT, 9090, "Prometheus' port on the host")
    grafana_port: int = key(kinds.PORT, 3000, "Grafana's port on the host")
    address: str = key(kinds.ADDRESS, "127.0.0.1", "the address of the host they are published on")
    keep: str = key(
        kinds.text(r"\d{1,4}[hdwy]", "a time such as 15d"), "15d", "how long Prometheus keeps it"
    )


@dataclass(frozen=True)
class Network:
    """`[network]`: addresses."""

    subnet: str = key(
        kinds.either("auto", kinds.SUBNET), "auto", "of the daemons; `up` finds a free one"
    )
    address: str = key(
        kinds.optional(kinds.ADDRESS),
        "",
        "this host's address for the others: needed when nodes run on other hosts",
    )
    node_port: int = key(
        kinds.number(1024, 65000), 6830, "the first port of slurmd where hosts are several"
    )
    srun_ports: tuple[int, int] | str = key(
        kinds.either("auto", kinds.PORTS),
        "auto",
        "where srun waits for its steps; auto: 60 ports for the login node and each node of this "
        "host where hosts are several, else 60001-61000",
    )


@dataclass(frozen=True)
class Limit:
    """`[limits.SERVICE]`: what one service may use."""

    memory: int = key(kinds.MEMORY, 2048, "memory")
    cpus: int = key(kinds.number(0, 4096), 0, "CPUs; 0: no limit")


@dataclass(frozen=True)
class Limits:
    """`[limits]`: what each service may use; a node's limits are its own `cpus` and `memory`."""

    enforce: bool | str = key(
        kinds.either("auto", kinds.FLAG),
        "auto",
        "hold jobs to their memory by cgroups; auto: where the hosts can",
    )
    cgroup: str = key(
        kinds.choice("auto", "v1", "v2", "none"), "auto", "which cgroups the host has; auto: look"
    )
    slurmctld: Limit = table(Limit, "the controllers")
    slurmdbd: Limit = table(Limit, "slurmdbd")
    mysql: Limit = table(Limit, "MariaDB")
    slurmrestd: Limit = table(Limit, "slurmrestd")
    login: Limit = table(Limit, "the login node")
    monitoring: Limit = table(Limit, "each monitoring service")


@dataclass(frozen=True)
class Images:
    """`[images]`: names of images. Left empty, ours are named after their content."""

    slurm: str = key(kinds.optional(kinds.IMAGE), "", "of the Slurm services")
    database: str = key(kinds.optional(kinds.IMAGE), "", "of MariaDB")
    monitoring: str = key(kinds.optional(kinds.IMAGE), "", "of Prometheus and the exporters")
    base: str = key(
        kinds.IMAGE, "docker.io/library/debian:{suite}-slim", "what ours are built from"
    )
    grafana: str = key(kinds.IMAGE, "docker.io/grafana/grafana:11.6.0", "Grafana's own")
    packages: tuple[str, ...] = key(
        kinds.many(kinds.WORD), (), "more Debian packages for nodes and login"
    )


@dataclass(frozen=True)
class Shared:
    """`[shared]`: the directory that login and nodes have in common."""

    path: str = key(kinds.PATH, "/home", "where it is in the cluster")
    source: str = key(kinds.VOLUME, "home", "where it is on the host: a volume, or a directory")


@dataclass(frozen=True)
class Oci:
    """`[oci]`: how `--container` runs an image's bundle."""

    runtime: str = key(
        kinds.choice("runc", "crun", "none"), "runc", "the program; none: no oci.conf"
    )


@dataclass(frozen=True)
class Conf:
    """`[conf]`: lines of your own; a line replaces ours of the same key."""

    slurm: tuple[str, ...] = key(kinds.many(kinds.LINE), (), "for slurm.conf")
    slurmdbd: tuple[str, ...] = key(kinds.many(kinds.LINE), (), "for slurmdbd.conf")
    cgroup: tuple[str, ...] = key(kinds.many(kinds.LINE), (), "for cgroup.conf")
    gres: tuple[str, ...] = key(kinds.many(kinds.LINE), (), "for gres.conf, after ours")


@dataclass(frozen=True)
class Topology:
    """A whole cluster as it is asked for; all configuration is a function of this and the site."""

    name: str = key(kinds.NAME, "slurm", "the cluster's name, also of its compose project")
    version: str = key(
        kinds.choice("auto", *SUITES),
        "auto",
        "Slurm's version; auto: 24.11 in containers, the installed one with native",
    )
    engine: str = key(kinds.choice("podman", "docker", "native"), "podman", "how the daemons run")
    controller: Controller = table(Controller, "slurmctld")
    database: Database = table(Database, "accounting's database")
    hosts: tuple[Host, ...] = tables(Host, "other machines")
    nodes: tuple[Nodes, ...] = tables(Nodes, "compute nodes; without any there are n1 and n2")
    partitions: tuple[Partition, ...] = tables(Partition, "queues")
    qos: tuple[Qos, ...] = tables(Qos, "qualities of service")
    accounts: tuple[Account, ...] = tables(Account, "accounts")
    users: tuple[User, ...] = tables(User, "users")
    auth: Auth = table(Auth, "authentication")
    rest: Rest = table(Rest, "slurmrestd")
    login: Login = table(Login, "login node")
    monitoring: Monitoring = table(Monitoring, "monitoring")
    network: Network = table(Network, "addresses")
    limits: Limits = table(Limits, "limits")
    images: Images = table(Images, "images")
    shared: Shared = table(Shared, "shared directory")
    oci: Oci = table(Oci, "OCI bundles")
    conf: Conf = table(Conf, "further lines")

    @property
    def accounting(self) -> bool:
        """Whether the cluster has slurmdbd."""
        return self.database.kind != "none"

    def host(self, name: str) -> Host | None:
        """The host of that name, if the file says anything about it."""
        return next((host for host in self.hosts if host.name == name), None)
