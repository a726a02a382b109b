"""Which statements of the user's modules read what lies outside of code when they are imported.

A file, the environment, the clock, the network: what comes of it is nowhere in the source. Names
are followed as they stand, so rather too much is found than too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from slurm.content.acts import is_builtin
from slurm.content.origins import INSTALLED, OWN, PYTHON

if TYPE_CHECKING:
    from slurm.content.slices import Module
    from slurm.content.statements import Statement

#: Modules of Python that make things and read nothing from outside.
MAKING = frozenset(
    ("abc", "collections", "contextlib", "contextvars", "copy", "dataclasses", "decimal", "enum",
     "fractions", "functools", "itertools", "logging", "math", "operator", "queue", "re", "slurm",
     "string", "struct", "threading", "types", "typing", "weakref")
)  # fmt: skip
#: Those that read nothing, although what they are given may.
_PURE = MAKING | frozenset(
    ("__future__", "array", "ast", "base64", "binascii", "bisect", "cmath", "heapq", "html", "json",
     "keyword", "numbers", "pprint", "statistics", "textwrap", "unicodedata", "zlib")
)  # fmt: skip
#: Functions of Python that read something, or that differ from one process to the next.
_READING = frozenset(("breakpoint", "eval", "exec", "hash", "id", "input", "open", "__import__"))
#: What is asked of `os` and `pathlib` to write a path down.
_OF_PATHS = frozenset(
    ("Path", "PosixPath", "PurePath", "PurePosixPath", "abspath", "absolute", "as_posix",
     "basename", "curdir", "dirname", "fspath", "join", "joinpath", "name", "normpath", "pardir",
     "parent", "parents", "path", "realpath", "resolve", "sep", "splitext", "stem", "suffix",
     "with_name", "with_suffix")
)  # fmt: skip


class Outside:
    """Judges the statements of some modules; `home` says where a name of one comes from."""

    def __init__(
        self,
        modules: Mapping[str, Module],
        home: Callable[[Module, str], str],
        acts: Callable[[Module, Statement], bool],
    ) -> None:
        self._modules = list(modules.values())
        self._home = home
        self._acts = acts
        self._known: dict[int, bool] = {}
        #: Statements that read nothing, also when they are called.
        self._clean: set[int] = set()
        #: Name -> what binds it, in any of the modules.
        self._binding: dict[str, list[tuple[Module, Statement]]] = {}
        for module in self._modules:
            for one in module.source.statements:
                for name in one.binds:
                    self._binding.setdefault(name, []).append((module, one))
        self.filled = self._filled()

    def reads(self, module: Module, one: Statement) -> bool:
        """Whether what comes of a statement depends on more than code."""
        if id(one) not in self._known:
            seen: set[int] = set()
            self._known[id(one)] = self._reads(module, one, whole=False, seen=seen)
            if not self._known[id(one)]:
                self._clean |= seen - {id(one)}
        return self._known[id(one)]

    def _reads(self, module: Module, one: Statement, whole: bool, seen: set[int]) -> bool:
        """`whole`: what a function says counts, too, for somebody calls it."""
        if id(one) in seen or id(one) in self._clean:
            return False
        seen.add(id(one))
        asked = one.evaluated
        makers = {name for name in asked.makers if self._home(module, name) == OWN}
        whole = whole or bool(makers)
        names = one.names if whole else asked.names
        attributes = one.outer if whole else asked.attributes
        for name in names:
            if self._is_read(module, name, attributes, whole or name in asked.called):
                return True
        followed = {*makers, *(n for n in names if self._home(module, n) == OWN)}
        if followed - set(one.binds) or whole:
            followed |= attributes
        return any(self._reads(*found, True, seen) for found in self._bound(module, followed))

    def _is_read(
        self, module: Module, name: str, attributes: Iterable[str], is_called: bool
    ) -> bool:
        source = module.source
        if name not in source.bound:
            return name in _READING and is_builtin(name)
        home = self._home(module, name)
        if home == INSTALLED:
            place = source.imported.get(name, (0, name, ()))[1]
            return is_called and place.partition(".")[0] not in _PURE
        if home != PYTHON:
            return False
        top = source.imported.get(name, (0, name, ()))[1].partition(".")[0]
        if top in ("os", "pathlib"):
            return not _OF_PATHS.issuperset({*attributes, name} - {"os", "pathlib"})
        return top not in _PURE

    def _bound(self, module: Module, names: Iterable[str]) -> Iterable[tuple[Module, Statement]]:
        for name in names:
            place = module.source.imported.get(name)
            for real in {name, *(place[2] if place else ())}:
                yield from self._binding.get(real, ())

    def _filled(self) -> frozenset[str]:
        """The names of what such statements may have changed: tables that a file fills."""
        found: set[str] = set()
        waiting: list[str] = []
        for module in self._modules:
            for one in module.chosen.values():
                if self._acts(module, one) and self.reads(module, one):
                    asked = one.evaluated
                    waiting += [*asked.names, *asked.attributes, *asked.makers, *one.texts]
                    if any(self._home(module, name) == OWN for name in asked.makers):
                        waiting += [*one.names, *one.outer]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                for _, one in self._binding.get(name, ()):
                    waiting += [*one.names, *one.outer]
                    waiting += self._classes_of(one)
        return frozenset(found)

    def _classes_of(self, one: Statement) -> Iterable[str]:
        """The classes that are made of something: who has the one finds the others."""
        for module in self._modules:
            for other in module.source.statements:
                if not other.evaluated.makers.isdisjoint(one.binds):
                    yield from other.binds
