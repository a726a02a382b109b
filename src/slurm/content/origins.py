"""Where a module comes from: Python itself, an installed package, or files of the user's own."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slurm.content.unseen import Unseen
from slurm.rundir.stamps import Stamp, stamp_of

PYTHON, INSTALLED, OWN, ABSENT = "python", "installed", "own", "absent"
#: The SDK and what travels with it: their own version says all.
_OURS = frozenset(("slurm", "cloudpickle"))
_SITES = re.compile(r"[/\\](?:site|dist)-packages(?:[/\\]|$)")


@dataclass(frozen=True)
class Origin:
    """Where a module comes from; `file` and the folders of its submodules, if it is one's own."""

    kind: str
    file: str | None = None
    locations: tuple[str, ...] | None = None


class Captured(Protocol):
    """Code that was captured for a call: what is in it counts, and not what lies in the files."""

    def module(self, name: str) -> tuple[str, tuple[str, ...] | None] | None:
        """The file of a module, and for a package the folders of its submodules."""

    def namespace(self, name: str) -> tuple[str, ...] | None:
        """The folders of a package that has no file."""

    def below(self, name: str) -> set[str] | None:
        """The submodules of a package; None for one that was not captured."""

    def read(self, file: str) -> bytes | None:
        """The content of a file; None for one that was not captured."""


class Origins:
    """Finds and reads the modules of a call: captured code first, then the import path."""

    def __init__(self, captured: Captured | None = None) -> None:
        self._captured = captured
        self._found: dict[str, Origin] = {}
        self._below: dict[str, set[str]] = {}
        #: The source files that were read, captured or not.
        self.sources: set[str] = set()
        #: What the files looked like that are read where they lie, by us now and by the job later.
        self.live: dict[str, Stamp] = {}

    def find(self, name: str) -> Origin:
        """Where a module comes from; nothing is imported for it."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Origin:
        top, _, rest = name.partition(".")
        if top in _OURS:
            return Origin(INSTALLED)
        if self._captured is not None:
            found = self._captured.module(name)
            if found is not None:
                return Origin(OWN, *found)
            places = self._captured.namespace(name)
            if places is not None:
                return Origin(OWN, None, places)
        if not rest:
            return _find_top(name)
        above = self.find(name.rpartition(".")[0])
        if above.kind != OWN:
            return above
        return _find_below(name, above)

    def below(self, name: str) -> set[str]:
        """The names of the submodules of a package."""
        if name not in self._below:
            found = self._captured.below(name) if self._captured is not None else None
            if found is None:
                found = set()
                for place in self.find(name).locations or ():
                    with contextlib.suppress(OSError):
                        found.update(entry.partition(".")[0] for entry in os.listdir(place))
            self._below[name] = found
        return self._below[name]

    def read(self, file: str) -> bytes:
        """The content of a module's file."""
        self.sources.add(file)
        data = self._captured.read(file) if self._captured is not None else None
        if data is None:
            try:
                self.watch(file)
                with open(file, "rb") as f:
                    data = f.read()
            except OSError as error:
                raise Unseen(f"{file} cannot be read ({error.strerror})") from error
        return data

    def watch(self, file: str) -> None:
        """Note what a file looks like that the job will read where it lies."""
        self.live[file] = stamp_of(file)


def _find_top(name: str) -> Origin:
    if name in sys.builtin_module_names:
        return Origin(PYTHON)
    spec = _spec_of(name)
    if name in sys.stdlib_module_names and not _is_shadowed(spec):
        return Origin(PYTHON)
    if spec is None:
        loaded = sys.modules.get(name)
        return Origin(ABSENT) if loaded is None else Origin(OWN)
    places = spec.submodule_search_locations
    locations = tuple(map(os.path.abspath, places)) if places is not None else None
    if not spec.has_location or spec.origin is None:
        if not locations:
            return Origin(OWN)  # made by a finder out of nothing we could read
        if all(_SITES.search(place + os.sep) for place in locations):
            return Origin(INSTALLED)
        return Origin(OWN, None, locations)
    file = os.path.abspath(spec.origin)
    if _is_of_python(file) or (_SITES.search(file) and versions_of(name)):
        return Origin(PYTHON if _is_of_python(file) else INSTALLED)
    return Origin(OWN, file, locations)


def _is_shadowed(spec: Any) -> bool:
    """Whether a file of the user's own stands before the module of Python that has its name."""
    if spec is None or not spec.has_location or spec.origin is None:
        return False
    file = os.path.abspath(spec.origin)
    return not _is_of_python(file) and not _SITES.search(file) and os.path.isfile(file)


def _spec_of(name: str) -> Any:
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    if loaded is not None and getattr(loaded, "name", None) == name:
        return loaded
    for finder in sys.meta_path:
        try:
            found = finder.find_spec(name, None)
        except Exception:  # noqa: BLE001 - a finder of any program may raise anything
            continue
        if found is not None:
            return found
    return None


def _find_below(name: str, above: Origin) -> Origin:
    """A submodule, by the files in the folders of its package."""
    last = name.rpartition(".")[2]
    loaded = _spec_of(name) if name in sys.modules else None
    if loaded is not None and loaded.has_location and not loaded.origin.endswith(".py"):
        return Origin(OWN, os.path.abspath(loaded.origin))
    for place in above.locations or ():
        folder = os.path.join(place, last)
        if os.path.isfile(os.path.join(folder, "__init__.py")):
            return Origin(OWN, os.path.join(folder, "__init__.py"), (folder,))
        for ending in (".py", *_COMPILED):
            if os.path.isfile(folder + ending):
                return Origin(OWN, folder + ending)
        if os.path.isdir(folder):
            return Origin(OWN, None, (folder,))
    return Origin(ABSENT)


_COMPILED = (*importlib.machinery.EXTENSION_SUFFIXES, ".pyc")


@functools.lru_cache(maxsize=1)
def _homes() -> tuple[str, ...]:
    paths: Mapping[str, str] = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[name]) + os.sep for name in ("stdlib", "platstdlib"))


def _is_of_python(file: str) -> bool:
    real = os.path.realpath(file)
    return real.startswith(_homes()) and not _SITES.search(real)


# ---- versions of installed packages -----------------------------------------------------------


def versions_of(top: str) -> tuple[str, ...]:
    """Name and version of the distributions that brought a module; empty where none did."""
    return _versions_of(top, tuple(map(_seen, sys.path)))


def _seen(entry: str) -> tuple[str, int]:
    """A folder of the import path and when names in it changed: packages may be installed now."""
    try:
        return entry, os.stat(entry or os.curdir).st_mtime_ns
    except (OSError, ValueError):
        return entry, 0


@functools.lru_cache(maxsize=1024)
def _versions_of(top: str, path: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    if top in _OURS:
        from slurm import __version__

        return (f"slurm-sdk=={__version__}",)
    own = top.replace("_", "-").lower()
    found = {
        f"{name}=={version}"
        for name, version, tops in _distributions(path)
        if top in tops() or (name.replace("_", "-").lower() == own and not tops())
    }
    return tuple(sorted(found))


@functools.lru_cache(maxsize=1)
def _distributions(path: tuple[tuple[str, int], ...]) -> tuple[tuple[str, str, Any], ...]:
    """Name, version and what gives the modules of each distribution, the first on the path."""
    found: dict[str, tuple[str, str, Any]] = {}
    for one in importlib.metadata.distributions():
        try:
            name, version = str(one.metadata["Name"]), str(one.version)
        except Exception:  # noqa: BLE001 - a folder that pip left half removed raises anything
            continue
        found.setdefault(name, (name, version, functools.cache(functools.partial(_tops, one))))
    return tuple(found.values())


def _tops(one: importlib.metadata.Distribution) -> frozenset[str]:
    """The modules at the top of a distribution."""
    record = one.read_text("RECORD")
    if record is None:
        listed = one.read_text("top_level.txt") or one.read_text("installed-files.txt") or ""
        return frozenset(_first_parts(listed.split()))
    return frozenset(_first_parts(set(_TOP.findall(record))))


_TOP = re.compile(r'^"?([A-Za-z_][\w.-]*)', re.MULTILINE)


def _first_parts(paths: Iterable[str]) -> set[str]:
    names = {os.path.normpath(path).split(os.sep)[0] for path in paths}
    return {name.partition(".")[0] for name in names if not name.endswith("-info")}
