"""Backup and restore of a cluster: database, state of the controller, secrets and cluster.toml."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slurm.errors import BackupDamaged, StackError
from slurm.stack import record as records
from slurm.stack import site
from slurm.stack.containers import Container
from slurm.stack.converge import Say, Stack, await_health, converge, make_stack, open_stack
from slurm.stack.engine import Engine, pour
from slurm.stack.life import check_free, prepare, settle, write_files
from slurm.stack.read import FILE_NAME
from slurm.stack.record import Record
from slurm.stack.state import locked

_DATABASE = "database.sql"
_STATE = "state.tar"
_SUMS = "SHA256SUMS"
_KEPT = (FILE_NAME, "stack.json")
_STATE_PLACE = "/var/lib/slurm/state"
_BLOCK = 1 << 20
_SOCKET = "--socket=/run/mysqld/mysqld.sock"
#: What a restore is doing: until the data is in its place, and after.
_LOADING, _LOADED = "restore", "restored"


# ---- backup -------------------------------------------------------------------------------------


def backup(directory: Path, say: Say, target: Path | None = None) -> Path:
    """Copy all that cannot be made again into a new folder of mode 0700; its path.

    A cluster that is down stays down; its database is started alone for the copy.
    """
    with locked(directory):
        stack = open_stack(directory, say)
        doing = stack.record.doing
        stack.record.step(doing or "backup")
        folder = copy(stack, target=target)
        stack.record.step(doing)
    return folder


def copy(stack: Stack, label: str = "", target: Path | None = None) -> Path:
    """The same for who has the cluster's lock.

    The controller is stopped meanwhile, in an orderly way, so that queue and accounting are of
    one moment; running jobs do not notice. The folder appears when it is whole.
    """
    directory = stack.record.directory
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = target or directory / "backups" / "-".join(filter(None, [stamp, label]))
    if folder.exists():
        raise StackError(f"{folder} is there already", hint="name a folder that is not")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True, mode=0o700)
    for name in _KEPT:
        shutil.copy2(directory / name, part / name)
    shutil.copytree(directory / "secrets", part / "secrets")
    with _database(stack) as database, _quiet(stack):
        if database is not None:
            _copy_database(stack, database, part / _DATABASE)
        _copy_state(stack, part / _STATE)
    (part / _SUMS).write_text(_sums(part))
    part.rename(folder)
    return folder


@contextlib.contextmanager
def _quiet(stack: Stack) -> Iterator[None]:
    """No controller changes queue or accounting; those that run are back at the end."""
    seen = stack.engine.seen()
    every = [c for c in stack.containers if c.service.startswith("slurmctld")]
    running = [c for c in every if c.service in seen and seen[c.service].running]
    begun = time.monotonic()
    # The second one first: it would take over.
    for container in reversed(running):
        stack.engine.stop(container.name, container.grace)
    try:
        yield
    finally:
        for container in running:
            stack.engine.start(container)
            await_health(stack, container)
        if running:
            stack.say(f"slurmctld was away for {time.monotonic() - begun:.1f} s")


@contextlib.contextmanager
def _database(stack: Stack) -> Iterator[Container | None]:
    """The cluster's own database at work, if it has one; one that was down is down again after."""
    if "mysql" not in stack.plan.addresses:
        yield None
        return
    container = stack.container("mysql")
    seen = stack.engine.seen().get(container.service)
    if seen is not None and seen.running:
        yield container
        return
    if seen is None:
        stack.engine.create(container)
    stack.engine.start(container)
    try:
        await_health(stack, container)
        yield container
    finally:
        stack.engine.stop(container.name, container.grace)


def _copy_database(stack: Stack, database: Container, file: Path) -> None:
    dump = ("mariadb-dump", "--no-defaults", _SOCKET, "--single-transaction")
    words = ("exec", database.name, *dump, "--databases", stack.plan.topology.database.name)
    pour(stack.engine, words, file, "the database could not be copied")


def _copy_state(stack: Stack, file: Path) -> None:
    run = ("run", "--rm", "--network=none", "--entrypoint", "tar", *_state_volume(stack))
    words = (*run, stack.container("slurmctld").image, "-C", _STATE_PLACE, "-c", ".")
    pour(stack.engine, words, file, "the controller's state could not be copied")


def _state_volume(stack: Stack) -> tuple[str, ...]:
    words = stack.container("slurmctld").create
    place = next(word for word in words if word.endswith(f":{_STATE_PLACE}"))
    return ("--volume", place)


def _sums(folder: Path) -> str:
    """A line for each file, as sha256sum writes and checks them."""
    lines = []
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != _SUMS):
        digest = hashlib.sha256()
        with file.open("rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
        lines.append(f"{digest.hexdigest()}  {file.relative_to(folder)}\n")
    return "".join(lines)


# ---- restore ------------------------------------------------------------------------------------


def restore(folder: Path, directory: Path, say: Say) -> Stack:
    """A cluster anew from a backup, in a directory that has none; ready when a job has run.

    The same command after an interruption goes on.
    """
    found = _checked(folder)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        record = records.load(directory)
        if record is None:
            record = _placed(found, folder, directory)
        elif not record.doing.startswith(_LOADING):
            raise StackError(
                f"there is a cluster in {directory}",
                hint="destroy it first: what it has now would be lost",
            )
        prepare(record, say)
        stack = make_stack(record, say)
        write_files(stack)
        if not record.doing.startswith(_LOADED):
            _load_state(stack, folder)
            _load_database(stack, folder)
            record.step(_LOADED)
            say("queue and accounting are back")
        converge(stack)
        settle(stack)
        return stack


def _checked(folder: Path) -> Record:
    """The record in a backup, all of whose files are as they were written."""
    found = records.load(folder)
    if found is None or not (folder / _SUMS).exists():
        raise StackError(
            f"{folder} is no backup of a cluster",
            hint="name a folder that `slurm cluster backup` made",
        )
    written = set((folder / _SUMS).read_text().splitlines())
    differ = sorted({line.split("  ", 1)[-1] for line in written ^ set(_sums(folder).splitlines())})
    if differ:
        raise BackupDamaged(
            f"the backup {folder} is not as it was written: {', '.join(differ)}",
            hint=f"take another one; `cd {folder} && sha256sum -c {_SUMS}` shows the same",
        )
    return found


def _placed(found: Record, folder: Path, directory: Path) -> Record:
    """The record for its new place, whatever host that is on."""
    check_free(directory, found.name, found.engine)
    left = Engine(found.engine, found.name).owned("volume")
    if left:
        raise StackError(
            f"volumes of a cluster {found.name!r} are there: {', '.join(left)}",
            hint=f"what they hold would be mixed with the backup: {found.engine} volume rm ...",
        )
    # The user's ids are those of the files that the jobs have.
    here = replace(site.look(), subnet=found.site.subnet, user=found.site.user)
    record = replace(found, directory=directory, site=here, doing=_LOADING)
    shutil.copytree(folder / "secrets", directory / "secrets", dirs_exist_ok=True)
    shutil.copy2(folder / FILE_NAME, directory / FILE_NAME)
    record.save()
    return record


def _load_state(stack: Stack, folder: Path) -> None:
    image = stack.container("slurmctld").image
    words = ("run", "--rm", "--interactive", "--network=none", "--entrypoint", "tar")
    _load(
        stack,
        (*words, *_state_volume(stack), image, "-C", _STATE_PLACE, "-x"),
        folder / _STATE,
        "the controller's state could not be put back",
    )


def _load_database(stack: Stack, folder: Path) -> None:
    with _database(stack) as database:
        if database is None or not (folder / _DATABASE).exists():
            return
        words = ("exec", "--interactive", database.name, "mariadb", "--no-defaults", _SOCKET)
        _load(stack, words, folder / _DATABASE, "the database could not be put back")


def _load(stack: Stack, words: tuple[str, ...], file: Path, problem: str) -> None:
    with file.open("rb") as content:
        said = stack.engine.call(*words, stdin=content, patience=3600)
    if said.code != 0:
        raise StackError(problem, evidence=said.last)
