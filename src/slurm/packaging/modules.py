"""Finds the modules of the user's own that a call may import, and what is in their files."""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import re
import stat
import sys
import sysconfig
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from slurm.here import import_path

#: More than this is no program but data, or other people's code that lies in the way.
MOST_FILES = 5_000
MOST_BYTES = 64 << 20
#: No file of source code is larger.
LARGEST = 8 << 20
#: So many entries of folders are looked at; a folder without a package may have so many others.
MOST_SEEN, MOST_OTHERS = 50_000, 500
DEEPEST = 40

#: Folders that hold no source of the project.
_JUNK = frozenset(
    ("__pycache__", "node_modules", "venv", "env", "build", "dist", "site-packages", "slurm_jobs")
)
_OURS = frozenset(("slurm", "cloudpickle", "__main__", "__mp_main__"))
_IMPORT = re.compile(
    rb"(?:^|[:;])[ \t\f]*(?:from[ \t]+([\w.]+)[ \t]+import\b([ \t]*\((?:#[^\n]*|[^)#])*|[^\n(#]*)"
    rb"|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)


_CONTINUED = re.compile(rb"\\\r?\n")
_NAME = re.compile(rb"(?<!as )\b[A-Za-z_]\w*")


class TooMuch(Exception):
    """There are more files than a program has."""


@dataclass(frozen=True)
class Module:
    """A module by its full name: its file, and for a package the folders of its submodules."""

    name: str
    file: str
    locations: tuple[str, ...] | None = None


@dataclass
class Found:
    """The modules of a call, and the folders that would show a new one."""

    modules: dict[str, Module] = field(default_factory=dict)
    #: Packages without a file of their own, and where their parts lie.
    namespaces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    #: What was found and is not taken along, in words.
    left: list[str] = field(default_factory=list)
    compiled: int = 0
    #: How many entries of folders were looked at.
    seen: int = 0
    #: Packages that were taken whole, and names that are not the user's own.
    whole: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def add(self, name: str, file: str, locations: tuple[str, ...] | None = None) -> bool:
        """Take a module along; whether it is new."""
        if name in self.modules:
            return False
        if len(self.modules) >= MOST_FILES:
            raise TooMuch
        self.modules[name] = Module(name, file, locations)
        return True


@functools.lru_cache(maxsize=1)
def _installed_homes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.realpath(paths[name]) + os.sep for name in names})


@functools.lru_cache(maxsize=4096)
def is_installed(path: str) -> bool:
    """Whether a file came with Python or with a package that was installed."""
    real = os.path.realpath(path)
    return "site-packages" in real or "dist-packages" in real or real.startswith(_installed_homes())


# ---- what is loaded ---------------------------------------------------------------------------


class Loaded:
    """The user's own modules in this process; one that was looked at is not looked at again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Callable[[], object], object, Module | None]] = {}
        self._names: list[str] = []
        #: What was loaded under these names, and the spec of each.
        self._seen: list[object] = []
        self._found: list[Module] = []

    def modules(self) -> list[Module]:
        """All that are loaded now; the same list as before where nothing was loaded since."""
        now = dict(sys.modules)
        names = list(now)
        specs: list[object] = [
            loaded.__dict__.get("__spec__") if type(loaded) is ModuleType else None
            for loaded in now.values()
        ]
        seen = [*now.values(), *specs]
        if names != self._names or not all(map(operator.is_, seen, self._seen)):
            looked = map(self._look, names, now.values(), specs)
            self._found = [module for module in looked if module is not None]
            self._names, self._seen = names, seen
        return self._found

    def _look(self, name: str, module: object, spec: object) -> Module | None:
        known = self._known.get(name)
        if known is None or known[0]() is not module or known[1] is not spec:
            known = self._known[name] = (_reference(module), spec, _own(name, module))
        return known[2]


def _reference(module: object) -> Callable[[], object]:
    """What leads to a module while it lives; an id would be given to another one after it."""
    try:
        return weakref.ref(module)
    except TypeError:  # any object may stand in sys.modules
        return lambda: None


def _own(name: str, module: Any) -> Module | None:
    if name.partition(".")[0] in _OURS:
        return None
    try:
        spec, file = module.__spec__, module.__file__
        if spec is None or spec.name != name or not isinstance(file, str):
            return None
        locations = spec.submodule_search_locations
        places = tuple(map(os.path.abspath, locations)) if locations is not None else None
    except Exception:  # noqa: BLE001 - an object in sys.modules may raise anything
        return None
    file = os.path.abspath(file)
    if not file.endswith(".py") or is_installed(file) or not _is_source(file):
        return None
    return Module(name, file, places)


def _is_source(path: str) -> bool:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size <= LARGEST


# ---- which files --------------------------------------------------------------------------------


def find_modules(
    loaded: Iterable[Module], project: str | None, sources: Sources, script: str | None
) -> Found:
    """All modules that a call of this process may import, as far as files tell."""
    found = Found()
    loaded = list(loaded)
    try:
        _take(found, loaded, sources, script, whole=True)
        if project is not None:
            _sweep(found, project)
    except TooMuch:
        found = Found()
        found.left.append(
            f"more than {MOST_FILES} files: only what is imported was taken along, the rest is "
            "read when it is imported"
        )
        try:
            _take(found, loaded, sources, script, whole=False)
        except TooMuch:
            found.left[-1] = f"more than {MOST_FILES} modules are imported: some are read live"
    if found.compiled:
        found.left.append(f"{found.compiled} compiled modules stay where they are")
    return found


def _take(
    found: Found, loaded: list[Module], sources: Sources, script: str | None, whole: bool
) -> None:
    for module in loaded:
        found.add(module.name, module.file, module.locations)
    for module in loaded:
        _around(found, module.name, whole)
    # What is not loaded yet, but named in an import statement of what will be.
    waiting = [module.file for module in found.modules.values()] + ([script] if script else [])
    asked: set[str] = set()
    while waiting:
        source = sources.look(waiting.pop())
        for name in source.imports if source is not None else ():
            top = name.partition(".")[0]
            if name in asked or top in found.whole or top in found.others:
                continue
            asked.add(name)
            before = set(found.modules)
            _resolve(found, name, whole)
            waiting += [found.modules[n].file for n in found.modules.keys() - before]


def _around(found: Found, name: str, whole: bool) -> None:
    """The package around a module, whole; of a namespace package its place only."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        above = ".".join(parts[:end])
        known = found.modules.get(above)
        if known is not None:
            found.folders.add(os.path.dirname(known.file))
            if whole and known.locations:
                _walk_once(found, known)
                return
        elif above not in found.namespaces:
            places = getattr(sys.modules.get(above), "__path__", None)
            if places is not None and getattr(sys.modules[above], "__file__", None) is None:
                found.namespaces[above] = tuple(os.path.abspath(p) for p in places)


def _resolve(found: Found, name: str, whole: bool) -> None:
    """A module that is not loaded, where the import path finds it among the user's own files."""
    top, _, rest = name.partition(".")
    if top not in found.modules and top not in found.namespaces and not _resolve_top(found, top):
        found.others.add(top)
        return
    _around(found, top, whole)
    if rest:
        _resolve_below(found, top, rest.split("."), whole)


def _resolve_top(found: Found, top: str) -> bool:
    if top in _OURS or top in sys.builtin_module_names:
        return False
    if top in sys.modules and _own(top, sys.modules[top]) is None:
        return False  # installed, or not from a file
    try:
        spec = PathFinder.find_spec(top)
    except Exception:  # noqa: BLE001 - asks finders that programs have added
        return False
    if spec is None:
        return False
    places = spec.submodule_search_locations
    if spec.origin is not None:
        if is_installed(spec.origin) or not spec.origin.endswith(".py"):
            return False
        locations = tuple(map(os.path.abspath, places)) if places else None
        return _is_source(spec.origin) and found.add(top, os.path.abspath(spec.origin), locations)
    if places is None or any(is_installed(os.path.join(p, "_")) for p in places):
        return False
    found.namespaces[top] = tuple(map(os.path.abspath, places))
    return True


def _resolve_below(found: Found, above: str, parts: list[str], whole: bool) -> None:
    """The submodules on the way to one, of packages that were not taken whole."""
    for part in parts:
        known = found.modules.get(above)
        places = known.locations if known is not None else found.namespaces.get(above)
        above = f"{above}.{part}"
        for place in places or ():
            folder = os.path.join(place, part)
            if _is_source(os.path.join(folder, "__init__.py")):
                found.add(above, os.path.join(folder, "__init__.py"), (folder,))
                if whole:
                    _walk_once(found, found.modules[above])
            elif _is_source(folder + ".py"):
                found.add(above, folder + ".py")
            elif os.path.isdir(folder):
                found.namespaces.setdefault(above, (folder,))
            else:
                continue
            break
        else:
            return


def _sweep(found: Found, project: str) -> None:
    """All packages and modules of a project, on the entries of the import path that are in it."""
    top = os.path.realpath(project)
    for entry in dict.fromkeys(import_path()):
        inside = os.path.realpath(entry) == top or os.path.realpath(entry).startswith(top + os.sep)
        if not inside or is_installed(os.path.join(entry, "_")) or not os.path.isdir(entry):
            continue
        if os.path.exists(os.path.join(entry, "pyvenv.cfg")):
            continue
        found.folders.add(entry)
        for name, path, is_folder in _listed(found, entry):
            full = name if is_folder else name[:-3]
            if full in found.modules or full in _OURS or full in sys.stdlib_module_names:
                continue
            init = os.path.join(path, "__init__.py")
            if not is_folder:
                found.add(full, path)
            elif _is_source(init):
                found.add(full, init, (path,))
                _walk_once(found, found.modules[full])


def _walk_once(found: Found, package: Module) -> None:
    if package.name not in found.whole:
        found.whole.add(package.name)
        for folder in package.locations or ():
            _walk(found, package.name, folder, 0)


def _walk(found: Found, package: str, folder: str, depth: int) -> None:
    """The modules below a package's folder; folders without `__init__.py` count, if not large."""
    if depth > DEEPEST:
        return
    found.folders.add(folder)
    for name, path, is_folder in _listed(found, folder):
        full = f"{package}.{name if is_folder else name[:-3]}"
        if not is_folder:
            if name != "__init__.py":
                found.add(full, path)
            continue
        init = os.path.join(path, "__init__.py")
        if _is_source(init):
            new = found.add(full, init, (path,))
        else:
            new = full not in found.namespaces and _has_source(found, path)
            if new:
                found.namespaces[full] = (path,)
        if new and not _is_circle(path, depth):
            _walk(found, full, path, depth + 1)


def _is_circle(path: str, depth: int) -> bool:
    """Whether a folder is a link to one above it."""
    return os.path.islink(path) and os.path.dirname(path).startswith(os.path.realpath(path))


def _has_source(found: Found, folder: str) -> bool:
    """Whether a folder that is no package holds source code, among not too much else."""
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                found.seen += 1
                if entry.name.endswith(".py") or found.seen > MOST_SEEN:
                    return True
                if number > MOST_OTHERS:
                    return False
                if entry.name not in _JUNK and entry.name.isidentifier() and entry.is_dir():
                    inner = os.path.join(folder, entry.name)
                    if os.path.exists(os.path.join(inner, "__init__.py")):
                        return True
    except OSError:
        pass
    return False


def _listed(found: Found, folder: str) -> Iterator[tuple[str, str, bool]]:
    """Source files and folders that may hold some, by name: no data, no environments, no pipes."""
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return  # what cannot be read cannot be imported either
    found.seen += len(listed)
    if found.seen > MOST_SEEN:
        raise TooMuch
    for entry in listed:
        name = entry.name
        if name.endswith(".py"):
            if name[:-3].isidentifier() and _is_source(entry.path):
                yield name, entry.path, False
        elif name.endswith((".so", ".pyd")):
            found.compiled += 1
        elif name.isidentifier() and name not in _JUNK:
            try:
                is_folder = entry.is_dir()
            except OSError:
                continue
            if is_folder and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield name, entry.path, True


# ---- what is in a file --------------------------------------------------------------------------

#: What tells that a file has changed: times of change, size, and the number of its inode.
Stamp = tuple[int, int, int, int]
#: A file that was changed so shortly before it was read may change again within one tick.
FRESH_NS = 2_000_000_000


@dataclass(frozen=True)
class Source:
    """What was in a file: its digest, and the modules that it says it imports."""

    #: None: it was changed so lately that the same times may stand for another content.
    stamp: Stamp | None
    digest: str
    imports: tuple[str, ...]
    size: int


def stamp_of(path: str) -> Stamp:
    """The stamp that a file has now."""
    info = os.stat(path)
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino


class Sources:
    """What is in files; one that has not changed is not read again."""

    def __init__(self) -> None:
        self.known: dict[str, Source] = {}
        #: Whether there is something new among them.
        self.dirty = False

    def look(self, path: str) -> Source | None:
        """What is in a file; None for what cannot be read."""
        try:
            stamp = stamp_of(path)
            known = self.known.get(path)
            if known is not None and known.stamp == stamp:
                return known
            return self.keep(path, stamp, read_source(path))
        except (OSError, ValueError):
            return None

    def keep(self, path: str, stamp: Stamp, data: bytes) -> Source:
        """Remember what was read of a file that had this stamp before."""
        settled = stamp_of(path) == stamp and time.time_ns() - max(stamp[:2]) > FRESH_NS
        digest = hashlib.sha256(data).hexdigest()
        before = self.known.get(path)
        same = before is not None and before.digest == digest
        names = before.imports if before is not None and same else tuple(imported_names(data))
        self.known[path] = found = Source(stamp if settled else None, digest, names, len(data))
        self.dirty = self.dirty or settled
        return found


def read_source(path: str) -> bytes:
    """The bytes of a source file; what is no file, or too large for one, is refused."""
    if not _is_source(path):
        raise OSError(f"{path} is no source file")
    with open(path, "rb") as f:
        return f.read()


def imported_names(source: bytes) -> list[str]:
    """The names of modules in import statements; one in a text that looks like one does no harm."""
    found: dict[str, None] = {}
    for match in _IMPORT.finditer(_CONTINUED.sub(b" ", source)):
        if match[1] is not None:
            above = match[1]
            words = [above]
            if not above.startswith(b"."):
                words += [above + b"." + name for name in _NAME.findall(match[2])]
        else:
            words = [part.split()[0] for part in match[3].split(b",") if part.split()]
        for word in words:
            if not word.startswith(b"."):
                found[word.decode("ascii", "ignore")] = None
    return list(found)
