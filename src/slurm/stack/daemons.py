"""The daemons of a cluster as data: command line, account, and where each one listens."""

from __future__ import annotations

from dataclasses import dataclass

from slurm import programs
from slurm.stack.native_plan import NativeCluster
from slurm.stack.ports import listens, socket_listens
from slurm.stack.preflight import missing_programs


@dataclass(frozen=True)
class Daemon:
    """One daemon: how it is started, as whom, where it listens, how long its start may take."""

    name: str
    argv: tuple[str, ...]
    port: int | None = None
    socket: str | None = None
    account: str | None = None
    patience: float = 60

    def ready(self, pid: int) -> bool:
        """Whether the daemon with this pid accepts connections."""
        if self.port is not None:
            return listens(pid, self.port)
        return self.socket is None or socket_listens(self.socket)


def daemons(cluster: NativeCluster) -> list[Daemon]:
    """All daemons of a cluster, in the order in which they are started."""
    conf = str(cluster.slurm_conf)
    database = [_mariadb(cluster), _slurmdbd(cluster)] if cluster.accounting else []
    controller = Daemon(
        "slurmctld", ("slurmctld", "-D", "-f", conf), port=cluster.plan.slurmctld_port
    )
    nodes = [
        Daemon(f"slurmd-{n.name}", ("slurmd", "-D", "-N", n.name, "-f", conf), port=n.port)
        for n in cluster.plan.nodes
    ]
    return [_munged(cluster), *database, controller, *nodes]


def _munged(cluster: NativeCluster) -> Daemon:
    place = cluster.directory / "munge"
    argv = (
        "munged",
        "--foreground",
        f"--key-file={place}/munge.key",
        f"--socket={cluster.munge_socket}",
        f"--pid-file={place}/munged.pid",
        f"--seed-file={place}/munged.seed",
        # slurmctld itself advises ten.
        "--num-threads=10",
        # Without it munged insists that all users reach its socket, which is not wanted here.
        *(("--force",) if cluster.private else ()),
    )
    return Daemon("munged", argv, socket=str(cluster.munge_socket), account="munge")


def _mariadb(cluster: NativeCluster) -> Daemon:
    place = cluster.directory / "db"
    argv = (
        "mariadbd",
        "--no-defaults",
        f"--datadir={place}/data",
        f"--tmpdir={place}/tmp",
        f"--socket={cluster.database_socket}",
        f"--pid-file={place}/mariadb.pid",
        "--skip-networking",
        "--performance-schema=OFF",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=32M",
        "--innodb-flush-log-at-trx-commit=2",
        # slurmdbd asks for these two: long transactions at roll-up, long rows of arrays.
        "--innodb-lock-wait-timeout=900",
        "--max-allowed-packet=16M",
        # MariaDB runs as root only when it is told so.
        *((f"--user={cluster.user}",) if cluster.private else ()),
    )
    return Daemon("mariadbd", argv, socket=str(cluster.database_socket), account="mysql")


def _slurmdbd(cluster: NativeCluster) -> Daemon:
    return Daemon("slurmdbd", ("slurmdbd", "-D"), port=cluster.plan.slurmdbd_port)


def program(name: str) -> str:
    """The path of a program of the distribution; daemons often lie where no user's PATH leads."""
    found = programs.find(name)
    if found is None:
        raise missing_programs("engine=native", [programs.named(name)])
    return found


def daemon_env(cluster: NativeCluster) -> dict[str, str]:
    """The environment of every daemon; it holds nothing of the caller's own."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "SLURM_CONF": str(cluster.slurm_conf),
        # The client library in slurmdbd has no other way to be told of a socket.
        "MYSQL_UNIX_PORT": str(cluster.database_socket),
    }
