"""The code that was captured for a call, as what reads its modules sees it."""

from __future__ import annotations

import collections
import functools
import os
from typing import Any

from slurm import rundir
from slurm.content.unseen import Unseen
from slurm.packaging.capture import read_captured
from slurm.runner.captured import decode


class CapturedCode:
    """The modules of one capture: their files, their packages, and their content."""

    def __init__(self, data: bytes) -> None:
        index, self._begin = decode(data)
        self._data = data
        self._modules: dict[str, Any] = index["modules"]
        self._namespaces: dict[str, tuple[str, ...]] = index["namespaces"]
        self._files: dict[str, tuple[int, int]] = index["files"]
        self._below: dict[str, set[str]] = collections.defaultdict(set)
        for name in (*self._modules, *self._namespaces):
            above, _, last = name.rpartition(".")
            self._below[above].add(last)

    def module(self, name: str) -> tuple[str, tuple[str, ...] | None] | None:
        """The file of a module, and for a package the folders of its submodules."""
        found = self._modules.get(name)
        if found is None:
            return None
        file, places = found
        return str(file), None if places is None else tuple(places)

    def namespace(self, name: str) -> tuple[str, ...] | None:
        """The folders of a package that has no file."""
        found = self._namespaces.get(name)
        return None if found is None else tuple(found)

    def below(self, name: str) -> set[str] | None:
        """The submodules of a package; None for one that was not captured."""
        known = name in self._modules or name in self._namespaces
        return self._below[name] if known else None

    def read(self, file: str) -> bytes | None:
        """The content of a file; None for one that was not captured."""
        place = self._files.get(file)
        if place is None:
            return None
        start = self._begin + place[0]
        return self._data[start : start + place[1]]


@functools.lru_cache(maxsize=4)
def captured_code(place: str) -> CapturedCode:
    """The captured code of an environment; its content has made the folder's name."""
    try:
        return CapturedCode(read_captured(place))
    except (OSError, ValueError, rundir.Untrusted) as error:
        where = os.path.basename(place)[:10]
        raise Unseen(f"the code that was captured for it ({where}) is gone ({error})") from error
