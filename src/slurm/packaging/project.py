"""The project above a file, and whether somebody else put it there: building it runs its code."""

from __future__ import annotations

import os
import stat

from slurm.errors import PackagingError
from slurm.packaging.choose import find_project
from slurm.rundir import Untrusted, check_file

PROJECT, SETTINGS = "pyproject.toml", "uv.toml"


def project_of(source: str, kind: str = "wheel", option: str = "project") -> str | None:
    """The project of a source file; one that others may have put above it is refused.

    Who may write the source file has a say already: its code is run. `kind` and `option` are how
    to name a project instead.
    """
    project = find_project(source)
    if project is not None:
        fix = f'packaging={{"type": "{kind}", "{option}": "{project}"}}'
        check_found(os.path.join(project, PROJECT), source, f"if you trust it, name it: {fix}")
    return project


def check_settings(folder: str, project: str) -> None:
    """Refuse what uv reads in a folder and above, unless this user or the project's wrote it."""
    place = os.path.realpath(folder)
    while True:
        for name in (SETTINGS, PROJECT):
            path = os.path.join(place, name)
            if os.path.lexists(path) and place != os.path.realpath(project):
                check_found(
                    path, os.path.join(project, PROJECT), "work in a folder that is not below it"
                )
        above = os.path.dirname(place)
        if above == place:
            return
        place = above


def check_found(path: str, known: str, fix: str) -> None:
    """Refuse a file that was found and not named, which others than who wrote `known` can write."""
    folder = os.path.dirname(path)
    try:
        check_file(path)
    except Untrusted as error:
        if not _as_trusted(path, known) or not _as_trusted(os.path.realpath(path), known):
            raise PackagingError(f"{error}; what it says can run code", hint=fix) from error
    info = os.stat(folder)
    if info.st_uid not in (os.getuid(), 0) and not _as_trusted(folder, known):
        raise PackagingError(
            f"{path} lies in a folder of user {info.st_uid}, who may exchange it", hint=fix
        )


def _as_trusted(path: str, known: str) -> bool:
    """Whether nobody may write a file or folder but who may write a file that is run anyway."""
    try:
        found, by = os.lstat(path), os.stat(known)
    except OSError:
        return False
    mode = 0 if stat.S_ISLNK(found.st_mode) else found.st_mode
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        mode = 0
    group = not mode & stat.S_IWGRP or (found.st_gid == by.st_gid and by.st_mode & stat.S_IWGRP)
    others = not mode & stat.S_IWOTH or by.st_mode & stat.S_IWOTH
    return bool(found.st_uid in (os.getuid(), 0, by.st_uid) and group and others)
