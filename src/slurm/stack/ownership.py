"""Whose directory a cluster may be brought up in: what lies there is believed and executed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slurm.errors import StackError
from slurm.rundir import Untrusted, check_file
from slurm.rundir.private import open_unchanged


def check_owner(directory: Path) -> None:
    """Refuse a directory that another user could have filled, or, as root, could exchange.

    A directory that is not there yet is fine where the one above it is.
    """
    place = Path(os.path.realpath(directory))
    user = os.geteuid()
    if place.exists():
        _check(directory, place, place.lstat(), {user}, sticky=False)
    if user != 0:
        # Where others may write above it, they are those whom the administrator lets in there.
        return
    for above in place.parents:
        if above.exists():
            _check(directory, above, above.lstat(), {0}, sticky=True)


def check_found(file: Path) -> None:
    """Refuse a file that was found and not named, if others wrote it or could exchange it.

    Its lines for slurm.conf name programs, which the daemons run.
    """
    try:
        check_file(str(file))
        with open_unchanged(os.path.realpath(file)):
            pass
    except Untrusted as error:
        raise StackError(
            f"{error}; it is not read, since what it names is run",
            hint=f"if you trust it, name it: --topology {file.absolute()}",
        ) from error


def _check(
    directory: Path, place: Path, info: os.stat_result, owners: set[int], *, sticky: bool
) -> None:
    mode = stat.S_IMODE(info.st_mode)
    others = stat.S_IWOTH | (0 if info.st_gid in (0, os.getegid()) else stat.S_IWGRP)
    if info.st_uid not in owners:
        why = f"{place} belongs to user {info.st_uid}, not to you ({os.geteuid()})"
        fix = f"name a directory of your own; or give it to you: chown {os.geteuid()} {place}"
    elif info.st_mode & others and not (sticky and info.st_mode & stat.S_ISVTX):
        why = f"{place} is writable by others (mode {mode:04o})"
        fix = f"chmod go-w {place}"
    else:
        return
    raise StackError(f"dir={str(directory)!r} is refused: {why}", hint=fix)
