"""The daemons of a cluster as data: command line, user, and how each shows that it is ready."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurm.errors import StackError
from slurm.stack.ports import answers, socket_answers
from slurm.stack.topology import Topology

# The daemons lie in sbin, which an ordinary user's PATH often lacks.
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
_PACKAGE = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "sinfo": "slurm-client",
    "sacctmgr": "slurm-client",
}
_DATABASE_PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr")


@dataclass(frozen=True)
class Daemon:
    """One daemon: how it is started, as whom, and how long its start may take."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    account: str | None = None
    patience: float = 30


def daemons(topology: Topology) -> list[Daemon]:
    """All daemons of a cluster, in the order in which they are started."""
    conf = str(topology.slurm_conf)
    before = [_mariadb(topology), _slurmdbd(topology)] if topology.accounting else []
    controller = Daemon(
        "slurmctld",
        (program("slurmctld"), "-D", "-f", conf),
        lambda: answers(topology.slurmctld_port),
    )
    return [_munged(topology), *before, controller, *_slurmds(topology, conf)]


def _munged(topology: Topology) -> Daemon:
    place = topology.directory / "munge"
    argv = (
        program("munged"),
        "--foreground",
        f"--key-file={place}/munge.key",
        f"--socket={topology.munge_socket}",
        f"--pid-file={place}/munged.pid",
        f"--seed-file={place}/munged.seed",
        "--num-threads=10",
    )
    ready = _listening(str(topology.munge_socket))
    return Daemon("munged", argv, ready, account="munge")


def _mariadb(topology: Topology) -> Daemon:
    place = topology.directory / "db"
    argv = (
        program("mariadbd"),
        "--no-defaults",
        f"--datadir={place}/data",
        f"--socket={topology.database_socket}",
        f"--pid-file={place}/mariadb.pid",
        "--skip-networking",
        "--performance-schema=OFF",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=32M",
        "--innodb-flush-log-at-trx-commit=2",
        # slurmdbd asks for these two: long transactions at roll-up, long rows of arrays.
        "--innodb-lock-wait-timeout=900",
        "--max-allowed-packet=16M",
    )
    ready = _listening(str(topology.database_socket))
    return Daemon("mariadbd", argv, ready, account="mysql", patience=60)


def _slurmdbd(topology: Topology) -> Daemon:
    port = topology.slurmdbd_port or 0
    return Daemon("slurmdbd", (program("slurmdbd"), "-D"), lambda: answers(port), patience=60)


def _slurmds(topology: Topology, conf: str) -> Iterable[Daemon]:
    slurmd = program("slurmd")
    for node in topology.nodes:
        yield Daemon(
            f"slurmd-{node.name}",
            (slurmd, "-D", "-N", node.name, "-f", conf),
            _answering(node.port),
        )


def _listening(path: str) -> Callable[[], bool]:
    return lambda: socket_answers(path)


def _answering(port: int) -> Callable[[], bool]:
    return lambda: answers(port)


def program(name: str) -> str:
    """The path of a program of the distribution."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise StackError(f"program {name} is not installed", hint=_install([name]))
    return found


def check_programs(accounting: bool) -> None:
    """Refuse to start when a program is missing, naming all packages at once."""
    wanted = [p for p in _PACKAGE if accounting or p not in _DATABASE_PROGRAMS]
    missing = [name for name in wanted if shutil.which(name, path=_PATH) is None]
    if missing:
        raise StackError(
            f"engine=native needs programs that are not installed: {', '.join(missing)}",
            hint=_install(missing),
        )


def _install(programs: list[str]) -> str:
    packages = sorted({_PACKAGE[name] for name in programs})
    return "apt-get install --no-install-recommends " + " ".join(packages)


def daemon_env(topology: Topology) -> dict[str, str]:
    """The environment of every daemon; it holds nothing of the caller's own."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "SLURM_CONF": str(topology.slurm_conf),
        "MYSQL_UNIX_PORT": str(topology.database_socket),
    }
