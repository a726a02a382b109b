"""The Pythons of this machine: one interpreter of each version."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path

import pytest


def _pythons() -> dict[tuple[int, int], str]:
    """From PATH, and pyenv's where it is used."""
    places = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    # A shim of pyenv is a shell script that may name a version which is not chosen.
    places = [p for p in places if p != root / "shims"]
    places += sorted((root / "versions").glob("*/bin"))
    found: dict[tuple[int, int], str] = {}
    for place in places:
        for minor in range(6, 20):
            program = shutil.which(f"python3.{minor}", path=str(place))
            if program:
                found.setdefault((3, minor), program)
    return found


PYTHONS = _pythons()


def of_version(minor: int) -> str:
    """A Python 3.minor; a test that needs one is skipped, and says so, where there is none."""
    return PYTHONS.get((3, minor)) or _not_run(f"there is no Python 3.{minor} here")


def of_another_version() -> str:
    """The newest Python that the SDK runs on and that is not of this one's minor version."""
    others = [found for found in PYTHONS if found >= (3, 10) and found != sys.version_info[:2]]
    return PYTHONS[max(others)] if others else _not_run("there is no second Python here")


def _not_run(reason: str) -> str:
    warnings.warn(f"NOT RUN: {reason}", stacklevel=3)
    pytest.skip(f"NOT RUN: {reason}")
