"""A cluster of plain processes as a value: what was asked, its plan, where its files lie."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from slurm.errors import StackError
from slurm.stack.check import node_groups
from slurm.stack.conf import cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf
from slurm.stack.plan import Cgroups, Node, Paths, Plan, gpus_of, partitions
from slurm.stack.site import Site
from slurm.stack.topology import Conf, Database, Nodes, Topology, User

# Slurm's configuration has no quoting for paths: commas, blanks, '#' and '%' mean something there.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+@-]*\Z")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
# sun_path holds 108 bytes with the closing zero; munge appends ".lock" to its socket's path.
_LONGEST_DIR = 107 - len("/munge/munge.socket.lock")
_OWN_FILES = ("slurm.conf", "slurmdbd.conf")


@dataclass(frozen=True)
class Request:
    """What a caller asks for without a file; the rest is found at run time."""

    nodes: int = 1
    cpus: int = 8
    memory_mb: int = 4000
    extra_conf: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    accounting: bool = True
    name: str | None = None

    def topology(self) -> Topology:
        """The same as a topology; without a name it gets one later."""
        names = tuple(f"n{number}" for number in range(1, self.nodes + 1))
        return Topology(
            name=self.name or "",
            engine="native",
            nodes=(Nodes(names, self.cpus, self.memory_mb, gpus=()),),
            database=Database("mariadb" if self.accounting else "none"),
            conf=Conf(slurm=self.extra_conf, cgroup=self._lines("cgroup.conf")),
        )

    def _lines(self, file: str) -> tuple[str, ...]:
        return tuple(self.files.get(file, "").splitlines())


@dataclass(frozen=True)
class NativeCluster:
    """A cluster of plain processes: its plan, and the directory that holds all of it.

    Where other users cannot reach the directory (`private`), all daemons run as the caller, and
    only for them.
    """

    plan: Plan
    directory: Path
    private: bool = False
    files: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cluster's name in Slurm."""
        return self.plan.topology.name

    @property
    def user(self) -> str:
        """The account of the daemons."""
        return self.plan.user

    @property
    def accounting(self) -> bool:
        """Whether the cluster has a database and slurmdbd."""
        return self.plan.slurmdbd_port is not None

    @property
    def node_names(self) -> list[str]:
        """The names of the compute nodes, in order."""
        return [node.name for node in self.plan.nodes]

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.directory / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Where this cluster's own munged listens."""
        return self.directory / "munge" / "munge.socket"

    @property
    def database_socket(self) -> Path:
        """Where this cluster's own MariaDB listens; it has no TCP port."""
        return self.directory / "db" / "mariadb.sock"

    @property
    def cgroup(self) -> str:
        """The name of this cluster's cgroups: no other directory's cluster has the same."""
        digest = hashlib.sha256(str(self.directory).encode()).hexdigest()
        return f"slurm-sdk-{self.name}-{digest[:8]}"

    @property
    def client_env(self) -> dict[str, str]:
        """What a client's environment needs to reach this cluster."""
        return {"SLURM_CONF": str(self.slurm_conf)}

    @property
    def enforce_memory(self) -> bool:
        """Whether jobs are held to their memory."""
        return bool(self.plan.cgroups.plugin)

    def conf_files(self) -> dict[str, str]:
        """Every file of the configuration directory by name, the caller's own files included."""
        files = {**self.files, "slurm.conf": slurm_conf(self.plan)}
        if self.enforce_memory:
            files["cgroup.conf"] = cgroup_conf(self.plan)
        gres = gres_conf(self.plan)
        if gres:
            files["gres.conf"] = gres
        if self.accounting:
            files["slurmdbd.conf"] = slurmdbd_conf(self.plan)
        return files

    def log(self, daemon: str) -> Path:
        """Where a daemon's own words are, from its first line on."""
        return self.directory / "log" / f"{daemon}.out"


def native_plan(
    topology: Topology,
    directory: Path,
    host: str,
    user: str,
    ports: list[int],
    version: str,
    why_not_enforced: str | None,
    site: Site | None = None,
    alone: bool = True,
) -> Plan:
    """The plan of a native cluster: all daemons on the loopback address of one host.

    `alone`: they listen there and nowhere else. `ports` are those of slurmctld, of slurmdbd, and
    of each node; `user` runs the daemons.
    """
    top = str(directory)
    mine = [(name, group) for group in node_groups(topology) for name in group.names]
    gpus = gpus_of([group for _, group in mine], site or Site())
    return Plan(
        topology=topology,
        version=version,
        user=user,
        controllers=((host, "127.0.0.1"),),
        nodes=tuple(
            Node(
                name,
                host,
                "127.0.0.1",
                port,
                group.cpus,
                group.memory,
                gpus=found,
                features=group.features,
                weight=group.weight,
            )
            for (name, group), port, found in zip(mine, ports[2:], gpus, strict=True)
        ),
        partitions=partitions(topology),
        paths=Paths(
            state=f"{top}/state",
            spool=f"{top}/spool",
            run=f"{top}/run",
            logs=f"{top}/log",
            munge_socket=f"{top}/munge/munge.socket",
        ),
        auth="munge",
        loopback_alone=alone,
        # Links to this cluster's own part of each hierarchy: two clusters would otherwise share
        # directories, for Slurm names them by node and job id only.
        cgroups=Cgroups(why_not=why_not_enforced)
        if why_not_enforced
        else Cgroups("cgroup/v1", mount=f"{top}/cgroup"),
        slurmctld_port=ports[0],
        slurmdbd_port=ports[1] if topology.accounting else None,
        slurmdbd_host=host,
        storage_user=user,
        users=topology.users or (User(user, 0),),
    )


def checked_directory(directory: str | Path) -> Path:
    """The absolute directory, or an error that says why a cluster cannot live there."""
    path = Path(directory).expanduser().resolve()
    if not _PLAIN_PATH.match(str(path)):
        raise StackError(
            f"dir={str(path)!r} has characters that slurm.conf cannot express",
            hint="use a directory of letters, digits and . _ + @ - only",
        )
    if len(str(path)) > _LONGEST_DIR:
        raise StackError(
            f"dir={str(path)!r} is too long: a unix socket in it would pass 107 bytes",
            hint=f"use a directory of at most {_LONGEST_DIR} characters, such as /tmp/slurm1",
        )
    return path


def check_request(request: Request) -> None:
    """Refuse what no cluster can be made of, naming the argument and the value."""
    if request.name is not None and not _NAME.match(request.name):
        raise StackError(
            f"name={request.name!r} is not a cluster name",
            hint="start with a lower case letter, then letters, digits or _, at most 32",
        )
    for argument, value, least, most in (
        ("nodes", request.nodes, 1, 1000),
        ("cpus", request.cpus, 1, 4096),
        ("memory_mb", request.memory_mb, 100, 1 << 30),
    ):
        if not least <= value <= most:
            raise StackError(
                f"{argument}={value!r} is not possible",
                hint=f"{argument} is a whole number from {least} to {most}",
            )
    for line in request.extra_conf:
        if not line.strip() or len(line) == 1 or "\n" in line:
            raise StackError(
                f"extra_conf has {line!r}, which is not one line of slurm.conf",
                hint='give a list of lines: extra_conf=["MaxArraySize=5000"]',
            )
    for file in request.files:
        if file in _OWN_FILES:
            raise StackError(
                f"files[{file!r}]: this file is written by the stack itself",
                hint="add lines to slurm.conf with extra_conf (--conf-line)",
            )
        if not _FILE_NAME.match(file):
            raise StackError(
                f"files[{file!r}] is not a plain file name",
                hint="give the name it shall have beside slurm.conf, such as oci.conf",
            )
