"""A configuration directory that changes as one: versions side by side, and a link to one."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_CURRENT = ".current"
_VERSIONS = ".versions"


def current(directory: Path) -> str:
    """The version that is in use, or nothing."""
    link = directory / _CURRENT
    return Path(os.readlink(link)).name if link.is_symlink() else ""


def texts(directory: Path) -> dict[str, str]:
    """The files of the version that is in use."""
    now = current(directory)
    folder = directory / _VERSIONS / now
    return {file.name: file.read_text() for file in sorted(folder.iterdir())} if now else {}


def switch(directory: Path, files: Mapping[str, str]) -> str:
    """Put new files into use at once; the version that was in use before.

    The directory itself stays what it is, because containers have mounted it: every name in it
    leads through one link, and that link is what changes.
    """
    before = current(directory)
    content = "\0".join(f"{name}\0{text}" for name, text in sorted(files.items()))
    version = hashlib.sha256(content.encode()).hexdigest()[:16]
    folder = directory / _VERSIONS / version
    if not folder.exists():
        fresh = folder.with_name(f".{version}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name, text in files.items():
            (fresh / name).write_text(text, encoding="utf-8")
            (fresh / name).chmod(0o644)
        # Daemons of other users read them, whatever the umask was.
        for made in (fresh, fresh.parent):
            made.chmod(0o755)
        fresh.rename(folder)
    use(directory, version)
    return before


def use(directory: Path, version: str) -> None:
    """Put a version that is there into use."""
    _link(directory / _CURRENT, f"{_VERSIONS}/{version}")
    names = {file.name for file in (directory / _VERSIONS / version).iterdir()}
    for name in names:
        _link(directory / name, f"{_CURRENT}/{name}")
    for link in directory.iterdir():
        if link.is_symlink() and link.name != _CURRENT and link.name not in names:
            link.unlink()


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and os.readlink(path) == target:
        return
    fresh = path.with_name(f".{path.name}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    os.replace(fresh, path)
