"""Backup and restore of a cluster: database, state of the controller, secrets and cluster.toml."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import record as records
from slurm.stack.converge import Say, Stack, await_health, converge, make_stack, prove
from slurm.stack.engine import pour
from slurm.stack.life import prepare, register, write_files
from slurm.stack.read import FILE_NAME
from slurm.stack.record import Record
from slurm.stack.state import locked

_DATABASE = "database.sql"
_STATE = "state.tar"
_KEPT = (FILE_NAME, "stack.json")
_STATE_PLACE = "/var/lib/slurm/state"


def backup(stack: Stack, label: str = "", target: Path | None = None) -> Path:
    """Copy all that cannot be made again into a new folder of mode 0700; its path.

    The controller is stopped while its state is copied, in an orderly way and for seconds, so
    that its files fit together; running jobs do not notice.
    """
    directory = stack.record.directory
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = target or directory / "backups" / "-".join(filter(None, [stamp, label]))
    folder.mkdir(parents=True, mode=0o700)
    for name in _KEPT:
        shutil.copy2(directory / name, folder / name)
    shutil.copytree(directory / "secrets", folder / "secrets")
    if "mysql" in stack.plan.addresses:
        name = stack.container("mysql").name
        dump = ("mariadb-dump", "--no-defaults", "--socket=/run/mysqld/mysqld.sock")
        which = ("--single-transaction", "--databases", stack.plan.topology.database.name)
        problem = "the database could not be copied"
        pour(stack.engine, ("exec", name, *dump, *which), folder / _DATABASE, problem)
    controller = stack.container("slurmctld")
    stack.engine.stop(controller.name, controller.grace)
    try:
        run = ("run", "--rm", "--network=none", "--entrypoint", "tar", *_state_volume(stack))
        copy = (controller.image, "-C", _STATE_PLACE, "-c", ".")
        problem = "the controller's state could not be copied"
        pour(stack.engine, (*run, *copy), folder / _STATE, problem)
    finally:
        stack.engine.start(controller)
        await_health(stack, controller)
    return folder


def _state_volume(stack: Stack) -> tuple[str, ...]:
    words = stack.container("slurmctld").create
    place = next(word for word in words if word.endswith(f":{_STATE_PLACE}"))
    return ("--volume", place)


def restore(folder: Path, directory: Path, say: Say) -> Stack:
    """A cluster anew from a backup, in a directory that has none; ready when a job has run."""
    if records.load(directory) is not None:
        raise StackError(
            f"there is a cluster in {directory}",
            hint="destroy it first: what it has now would be lost",
        )
    found = records.load(folder)
    if found is None or not (folder / _STATE).exists():
        raise StackError(
            f"{folder} is no backup of a cluster",
            hint="name a folder that `slurm cluster backup` made",
        )
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        record = _placed(found, folder, directory)
        prepare(record, say)
        stack = make_stack(record, say)
        write_files(stack)
        _load_state(stack, folder)
        _load_database(stack, folder, say)
        converge(stack)
        prove(stack)
        register(stack)
        record.step("")
        return stack


def _placed(found: Record, folder: Path, directory: Path) -> Record:
    record = found
    record.directory = directory
    shutil.copytree(folder / "secrets", directory / "secrets", dirs_exist_ok=True)
    shutil.copy2(folder / FILE_NAME, directory / FILE_NAME)
    record.step("restore")
    return record


def _load_state(stack: Stack, folder: Path) -> None:
    image = stack.container("slurmctld").image
    words = ("run", "--rm", "--interactive", "--network=none", "--entrypoint", "tar")
    with (folder / _STATE).open("rb") as archive:
        said = stack.engine.call(
            *(*words, *_state_volume(stack), image, "-C", _STATE_PLACE, "-x"),
            stdin=archive,
            patience=3600,
        )
    if said.code != 0:
        raise StackError("the controller's state could not be put back", evidence=said.last)


def _load_database(stack: Stack, folder: Path, say: Say) -> None:
    if not (folder / _DATABASE).exists() or "mysql" not in stack.plan.addresses:
        return
    database = stack.container("mysql")
    stack.engine.create(database)
    stack.engine.start(database)
    await_health(stack, database)
    words = ("exec", "--interactive", database.name, "mariadb", "--no-defaults")
    with (folder / _DATABASE).open("rb") as dump:
        said = stack.engine.call(
            *words, "--socket=/run/mysqld/mysqld.sock", stdin=dump, patience=3600
        )
    if said.code != 0:
        raise StackError("the database could not be put back", evidence=said.last)
    say("the database is back")
