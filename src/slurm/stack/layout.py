"""What a cluster's directory holds: sub-directories with owners and modes, key, configuration."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from slurm.errors import StackError
from slurm.stack.daemons import program
from slurm.stack.native_plan import NativeCluster
from slurm.stack.ownership import check_owner

_PLACES = (
    ("etc", 0o755, None),
    ("log", 0o755, None),
    ("run", 0o755, None),
    ("state", 0o700, None),
    ("spool", 0o755, None),
    ("munge", 0o755, "munge"),
    ("db", 0o700, "mysql"),
    ("db/tmp", 0o700, "mysql"),
)


def claim(directory: Path, also: Sequence[str] = ()) -> None:
    """Make the directory, or check that it is free for a cluster or already belongs to one.

    Files named in `also` may be there.
    """
    check_owner(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = set(os.listdir(directory)) - set(also)
        if found and ".lock" not in found:
            raise StackError(
                f"dir={str(directory)!r} is not empty and holds no cluster of ours",
                hint="name a new or an empty directory",
            )
        # Jobs of other users, munged and MariaDB must pass through it; secrets have own modes.
        directory.chmod(0o755)
    except OSError as error:
        raise StackError(
            f"dir={str(directory)!r} cannot be used: {error.strerror}",
            hint="name a directory that you can make and write",
        ) from error


def prepare(cluster: NativeCluster) -> None:
    """Make the sub-directories, the munge key and all configuration files."""
    top = cluster.directory
    for name, mode, account in _PLACES:
        place = top / name
        place.mkdir(exist_ok=True)
        place.chmod(mode)
        _give(place, account, cluster)
    for old in (top / "log").glob("*.out"):
        # An error shall show the words of this start, not of an earlier one.
        old.unlink()
    key = top / "munge" / "munge.key"
    if not key.exists():
        _write(key, secrets.token_bytes(1024), 0o400)
        _give(key, "munge", cluster)
    write_conf(cluster)


def write_conf(cluster: NativeCluster) -> None:
    """Write all configuration files anew; each node has a place for its jobs."""
    top = cluster.directory
    for node in cluster.node_names:
        (top / "spool" / node).mkdir(exist_ok=True)
    for file, text in cluster.conf_files().items():
        mode = 0o600 if file == "slurmdbd.conf" else 0o755 if text.startswith("#!") else 0o644
        _write(top / "etc" / file, text.encode(), mode)


def closed_parent(directory: Path) -> Path | None:
    """The directory on the way that other users cannot pass, if there is one."""
    way = reversed((directory, *directory.parents))
    return next((place for place in way if not place.stat().st_mode & 0o001), None)


def account_ids(account: str | None, cluster: NativeCluster) -> tuple[int, int] | None:
    """User and group of a daemon's account, or None where it runs as ourselves.

    That is so when we are not root, and when the account could not reach the directory.
    """
    if account is None or os.geteuid() != 0 or cluster.private:
        return None
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def make_database(cluster: NativeCluster) -> None:
    """Make MariaDB's own tables, once for the life of the directory."""
    place = cluster.directory / "db"
    made = place / "made"
    if made.exists():
        return
    shutil.rmtree(place / "data", ignore_errors=True)
    ids = account_ids("mysql", cluster)
    argv = [
        program("mariadb-install-db"),
        "--no-defaults",
        f"--user={pwd.getpwuid(ids[0]).pw_name if ids else cluster.user}",
        f"--datadir={place}/data",
        # A server that starts removes the temporary tables of every other one in a shared /tmp.
        f"--tmpdir={place}/tmp",
        "--skip-test-db",
        "--skip-name-resolve",
        # Who may log in is decided by the kernel's word about who is on the socket.
        "--auth-root-authentication-method=socket",
        f"--auth-root-socket-user={cluster.user}",
        "--innodb-log-file-size=32M",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    done = subprocess.run(
        argv,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stdout.splitlines()
        # Its last lines are always the same advice; what went wrong stands above them.
        words = [line for line in lines if "ERROR" in line] or lines
        raise StackError("mariadb-install-db could not make the database", evidence=words[:12])
    made.touch()


def _give(path: Path, account: str | None, cluster: NativeCluster) -> None:
    ids = account_ids(account, cluster)
    if ids is not None:
        os.chown(path, *ids)


def _write(path: Path, content: bytes, mode: int) -> None:
    # A secret has its mode before it has its content.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
