"""The part of the user's own modules that a call can reach, by their source.

A module is a list of statements. A statement that acts when the module is imported always counts;
a definition counts once its name occurs in what counts already. Names are taken as they stand,
whatever object they belong to: that finds too much rather than too little.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from slurm.content.acts import is_builtin, is_harmless_name
from slurm.content.code import READERS
from slurm.content.origins import ABSENT, INSTALLED, OWN, PYTHON, Origins, versions_of
from slurm.content.outside import MAKING, Outside
from slurm.content.patched import patched
from slurm.content.places import CLASS, CODED, INSIDE, VALUE, Place, content_at, home_folder, joined
from slurm.content.plain import combine
from slurm.content.statements import (
    Import,
    Source,
    Statement,
    read_statements,
)
from slurm.content.unseen import Unseen

#: Modules of Python whose functions change something that others see.
_CHANGING = frozenset(
    ("atexit", "builtins", "codecs", "ctypes", "faulthandler", "gc", "importlib", "locale", "mmap",
     "multiprocessing", "os", "random", "resource", "runpy", "signal", "site", "socket", "sys",
     "tracemalloc", "unittest", "warnings")
)  # fmt: skip


@dataclass
class Roots:
    """Where a call enters code that the job imports."""

    modules: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    #: Names in texts, which may be those of modules.
    texts: set[str] = field(default_factory=set)
    #: Whether names are used that are not written down.
    dynamic: bool = False

    def enter(self, module: str, *names: str) -> None:
        """A name of a module is used."""
        self.modules.add(module)
        for name in names:
            self.names.update(name.split("."))

    def joined(self, other: Roots) -> Roots:
        """Both."""
        return Roots(
            self.modules | other.modules,
            self.names | other.names,
            self.texts | other.texts,
            self.dynamic or other.dynamic,
        )


#: The digest of a value, where it leads on, and whether there are paths below a folder in it.
OfValue = Callable[[Any, str], tuple[str, Roots, bool]]


@dataclass
class Module:
    """A module that is imported, and what of it counts."""

    name: str
    file: str
    package: str
    source: Source
    chosen: dict[int, Statement] = field(default_factory=dict)
    waiting: dict[int, Statement] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    #: Its names are used elsewhere without its own.
    starred: bool = False


class Slices:
    """What calls reach of the modules around them; one object for the calls of one submission."""

    def __init__(
        self, origins: Origins, of_value: OfValue, here: bool = False, shipped: bool = False
    ) -> None:
        self._origins = origins
        self._of_value = of_value
        #: Whether the modules of this process run, with all that it has put into them.
        self._here = here
        #: Whether all code is known by what packaging ships: then what it runs is known, too.
        self._shipped = shipped
        self._known: dict[tuple[Any, ...], str] = {}
        #: What has been looked at in imported modules: the job compares before it stores a value.
        self.values: dict[Place, str] = {}

    def of(self, roots: Roots) -> str:
        """The digest of all that can be reached from some names of some modules."""
        sets = map(frozenset, (roots.modules, roots.names, roots.texts))
        key = (*sets, roots.dynamic)
        if key not in self._known:
            reach = _Reach(self._origins, self._of_value, self._here, self._shipped)
            self._known[key] = reach.of(roots)
            self.values.update(reach.values)
        return self._known[key]


class _Reach:
    def __init__(self, origins: Origins, of_value: OfValue, here: bool, shipped: bool) -> None:
        self._origins = origins
        self._of_value = of_value
        self._here = here
        self._shipped = shipped
        self._modules: dict[str, Module] = {}
        self._others: set[str] = set()
        self._seen: set[str] = set()
        self._names: set[str] = set()
        self._dynamic = False
        self.values: dict[Place, str] = {}
        self._files: dict[str, str] = {}

    def of(self, roots: Roots) -> str:
        self._enter(roots)
        while self._choose() or self._look_below() or self._look_at_values():
            pass
        acting = self._acting()
        parts = [self._digest(self._modules[name], acting) for name in sorted(self._modules)]
        files = [f"{name}={digest}" for name, digest in sorted(self._files.items())]
        values = sorted(joined(place, digest) for place, digest in self.values.items())
        return combine("slice", *filter(None, parts), *files, *values, *sorted(self._others))

    def _enter(self, roots: Roots) -> None:
        for module in roots.modules:
            self._bring(module)
        self._names |= roots.names
        self._mean(roots.texts)
        self._dynamic |= roots.dynamic

    # ---- modules --------------------------------------------------------------------------------

    def _bring(self, name: str) -> bool:
        """Import a module and the packages around it; whether there is one."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            above = ".".join(parts[:end])
            origin = self._origins.find(above)
            if above in self._seen:
                continue
            if origin.kind == PYTHON:
                return True
            if origin.kind == INSTALLED:
                self._others.update(versions_of(parts[0]) or (f"{parts[0]}==",))
                return True
            if origin.kind == ABSENT:
                if end == 1:
                    self._others.add(f"{above} is not there")
                return False
            self._seen.add(above)
            if origin.file is not None:
                self._read(above, origin.file, origin.locations is not None)
            elif origin.locations is None:
                raise Unseen("a module without a file", above)
        return True

    def _read(self, name: str, file: str, is_package: bool) -> None:
        data = self._origins.read(file)
        if not file.endswith((".py", ".pyw")):
            self._files[name] = combine("file", data.hex())
            return
        try:
            source = read_statements(data)
        except (SyntaxError, ValueError, RecursionError) as error:
            if self._shipped:
                return
            raise Unseen(f"{file} cannot be read as Python ({error})", name) from error
        package = name if is_package else name.rpartition(".")[0]
        module = Module(name, file, package, source, waiting=dict(enumerate(source.statements)))
        self._modules[name] = module
        for one in source.statements:
            if one.brings:
                self._follow(module, one.imports)

    def _follow(self, module: Module, imports: Iterable[Import]) -> None:
        for level, name, names in imports:
            target = _resolve(module.package, level, name)
            if target is None or not self._bring(target):
                continue
            if self._origins.find(target).kind != OWN:
                continue
            for one in names:
                if one == "*":
                    module.starred = True
                elif self._origins.find(f"{target}.{one}").kind == OWN:
                    self._bring(f"{target}.{one}")

    def _mean(self, texts: set[str]) -> None:
        """Bring the modules whose names stand in texts, as a table of plugins has them."""
        for text in texts:
            name = text.partition(":")[0]
            if name not in self._seen and self._origins.find(name.partition(".")[0]).kind == OWN:
                self._bring(name)

    # ---- statements -----------------------------------------------------------------------------

    def _choose(self) -> bool:
        """Take the statements that count by what is known now; whether there were more."""
        more = False
        for module in list(self._modules.values()):
            found = [at for at, one in module.waiting.items() if self._counts(module, one)]
            for at in found:
                one = module.chosen[at] = module.waiting.pop(at)
                self._take(module, one)
            more |= bool(found)
        return more

    def _counts(self, module: Module, one: Statement) -> bool:
        if self._dynamic or not one.binds.isdisjoint(module.names):
            return True
        return not one.binds.isdisjoint(self._names) or self._acts(module, one)

    def _take(self, module: Module, one: Statement) -> None:
        self._dynamic |= bool(one.unseen)
        if one.unseen and not self._shipped:
            raise Unseen(one.unseen, f"{module.name}, line {one.line}")
        module.names |= one.names
        self._names |= one.outer
        self._mean(one.texts)
        if module.starred:
            self._names |= one.names
        self._dynamic |= one.dynamic
        self._follow(module, one.imports)

    def _acts(self, module: Module, one: Statement) -> bool:
        """Whether a statement does more than bind its names."""
        if one.acts:
            return True
        for name in one.calls:
            if self._home(module, name) not in (PYTHON, INSTALLED, ABSENT):
                return True
        if any(self._has_effect(module, one, name) for name in one.effects):
            return True
        if any(self._home(module, name) != PYTHON for name in one.bases):
            return True
        # A function of one's own that is handed to another may be called by it.
        return bool(one.calls or one.bases) and any(
            name in module.source.bound and self._is_own_code(module, name) for name in one.handed
        )

    def _has_effect(self, module: Module, one: Statement, name: str) -> bool:
        """Whether a value is asked of a module that may change something on the way.

        Of other people's packages those are called for their effect whose value nobody uses.
        """
        home = self._home(module, name)
        if home == PYTHON:
            place = module.source.imported.get(name, (0, name, ()))[1]
            return name in module.source.bound and place.partition(".")[0] in _CHANGING
        if home != INSTALLED or not all(bound.startswith("_") for bound in one.binds):
            return False
        others = (other for other in module.source.statements if other is not one)
        return not any(one.binds & other.names for other in others)

    def _home(self, module: Module, name: str) -> str:
        """Where a name of a module comes from."""
        source = module.source
        if name not in source.bound:
            # What a star brings could be anything.
            return PYTHON if is_builtin(name) and _is_no_runner(name) else OWN
        if source.bound[name] > 1 or name not in source.imported:
            return OWN
        level, place, _ = source.imported[name]
        return OWN if level else self._origins.find(place.partition(".")[0]).kind

    def _is_own_code(self, module: Module, name: str) -> bool:
        if name in module.source.imported:
            return self._home(module, name) == OWN
        return any(
            one.loose and not one.computed and name in one.binds and not one.asked
            for one in module.source.statements
        )

    # ---- what Python finds by itself ------------------------------------------------------------

    def _look_below(self) -> bool:
        """Submodules whose names occur: they may have been imported by anybody."""
        more = False
        for name in list(self._seen):
            for below in self._origins.below(name) & self._names:
                full = f"{name}.{below}"
                if full not in self._seen and self._origins.find(full).kind == OWN:
                    more |= self._bring(full)
        return more

    def _look_at_values(self) -> bool:
        """What modules have read or computed when they were imported, where they are loaded."""
        outside = Outside(self._modules, self._home, self._acts)
        more = False
        for module in list(self._modules.values()):
            loaded = sys.modules.get(module.name)
            for one in list(module.chosen.values()):
                if loaded is None:
                    self._refuse_unknown(module, one, outside)
                    continue
                for place in self._lying(module, loaded, one, outside):
                    more |= self._look_at(module, loaded, place)
            if loaded is not None:
                for name in self._added(module, loaded):
                    more |= self._look_at(module, loaded, Place(module.name, name, CODED))
        return more

    def _refuse_unknown(self, module: Module, one: Statement, outside: Outside) -> None:
        """Refuse what an import would read, where this process has not imported the module."""
        if not any(self._is_used(module, name) for name in one.binds):
            return
        if outside.reads(module, one) or not one.binds.isdisjoint(outside.filled):
            raise Unseen(
                "it may read something when it is imported, and this program has not imported it; "
                f"import {module.name} where the task is defined",
                f"{module.name}, line {one.line}",
            )

    def _lying(
        self, module: Module, loaded: types.ModuleType, one: Statement, outside: Outside
    ) -> Iterator[Place]:
        """The places of what a statement binds that hold more than its source says."""
        reads = outside.reads(module, one)
        filled = not one.binds.isdisjoint(outside.filled)
        names = one.binds & vars(loaded).keys()
        if one.is_class or one.defines:
            own = reads and any(self._home(module, n) == OWN for n in one.evaluated.makers)
            methods = {full.rpartition(".")[2] for full in one.defines}
            every = (
                None
                if own or filled or one.dynamic
                else tuple(sorted(one.evaluated.fields | methods))
            )
            if reads or filled:
                for name in names:
                    kind = CLASS if one.is_class else INSIDE
                    yield Place(module.name, name, kind, every if one.is_class else ())
        elif self._is_computed(module, one) or (reads and not one.brings):
            yield from (Place(module.name, name, CODED if one.acts else VALUE) for name in names)
            return
        if self._here or filled:
            yield from patched(loaded, self._origins.read(module.file), one)

    def _added(self, module: Module, loaded: types.ModuleType) -> Iterator[str]:
        """Names that are used, and that a module has although no statement of it binds them."""
        brought = (one.imports[0][2] for one in module.source.statements if one.brings)
        if any("*" in names for names in brought):
            return
        bound = module.source.bound.keys()
        for name in sorted((module.names | self._names) & vars(loaded).keys() - bound):
            if not name.startswith("__") and not isinstance(vars(loaded)[name], types.ModuleType):
                yield name

    def _is_used(self, module: Module, name: str) -> bool:
        return self._dynamic or name in module.names or name in self._names

    def _look_at(self, module: Module, loaded: types.ModuleType, place: Place) -> bool:
        if place in self.values or not self._is_used(module, place.name.partition(".")[0]):
            return False
        try:
            digest, roots, moves = self._of_value(content_at(loaded, place), home_folder(loaded))
        except Unseen as unseen:
            unseen.within(str(place))
            raise
        self.values[place] = digest
        if moves:
            self._others.add(f"{module.name} is imported from {home_folder(loaded)}")
        self._enter(roots)
        return True

    # ---- the digest -----------------------------------------------------------------------------

    def _acting(self) -> set[str]:
        """The modules that act when they are imported, or import such ones."""
        needs = {name: self._needs(module) for name, module in self._modules.items()}
        acting = {
            name
            for name, module in self._modules.items()
            if any(self._acts(module, one) for one in module.chosen.values())
        }
        more = True
        while more:
            found = {name for name, needed in needs.items() if needed & acting} - acting
            acting |= found
            more = bool(found)
        return acting

    def _needs(self, module: Module) -> set[str]:
        return {
            name
            for one in module.source.statements
            for name in _places(module, one)
            if name in self._modules
        }

    def _digest(self, module: Module, acting: set[str]) -> str:
        """What counts of a module: definitions in any order, the rest as it stands."""
        loose: list[str] = []
        fixed: list[str] = []
        names = self._names | module.names
        documented = not READERS.isdisjoint(names)
        for at, one in enumerate(module.source.statements):
            # What an imported module does happens whether or not its name is used.
            if at not in module.chosen and acting.isdisjoint(_places(module, one)):
                continue
            text = one.documented if documented else one.digest
            (loose if self._is_loose(module, one, acting) else fixed).append(text)
        doc = [f"says {module.source.doc}"] if documented and module.source.doc else []
        place = [f"lies at {module.file}"] if "__file__" in names else []
        if not loose and not fixed and not doc:
            return ""
        return combine("module", module.name, *doc, *place, *sorted(loose), "then", *fixed)

    def _is_loose(self, module: Module, one: Statement, acting: set[str]) -> bool:
        """Whether it does not matter where a statement stands."""
        source = module.source
        if not one.loose or one.acts or any(source.bound[name] != 1 for name in one.binds):
            return False
        if not acting.isdisjoint(_places(module, one)):
            return False
        # A default or an attribute of a class has the value that a name has at that moment.
        own = (name for name in one.takes if name in source.bound)
        return all(source.bound[n] == 1 and self._is_steady(module, n) for n in own)

    def _is_steady(self, module: Module, name: str) -> bool:
        if name in module.source.constants:
            return True
        place = module.source.imported.get(name, (0, name, ()))[1]
        home = self._home(module, name)
        return home == INSTALLED or (home == PYTHON and place.partition(".")[0] not in _CHANGING)

    def _is_computed(self, module: Module, one: Statement) -> bool:
        if not one.computed or not one.asked:
            return one.computed
        return not all(self._makes(module, name) for name in one.asked)

    def _makes(self, module: Module, name: str) -> bool:
        if name not in module.source.bound:
            return is_harmless_name(name)
        level, place, _ = module.source.imported.get(name, (1, "", ()))
        return not level and place.partition(".")[0] in MAKING


def _is_no_runner(name: str) -> bool:
    return name not in ("eval", "exec", "compile", "__import__", "setattr", "delattr", "globals")


def _resolve(package: str, level: int, name: str) -> str | None:
    """The full name of a module that an import statement names."""
    if not level:
        return name or None
    parts = package.split(".") if package else []
    if level - 1 >= len(parts):
        return None
    base = ".".join(parts[: len(parts) - level + 1])
    return f"{base}.{name}" if name else base


def _places(module: Module, one: Statement) -> set[str]:
    """The modules that an import statement may run, and the packages around them."""
    found: set[str] = set()
    for level, name, names in one.imports if one.brings else ():
        target = _resolve(module.package, level, name)
        if target is not None:
            parts = target.split(".")
            found.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
            found.update(f"{target}.{last}" for last in names)
    return {name for name in found if not f"{module.name}.".startswith(f"{name}.")}
