"""Reads source code as a list of statements: what each does, names, and needs to be harmless."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from slurm.content.acts import (
    bound_in,
    is_text,
    judge_assignment,
    judge_class,
    judge_function,
    root_of,
)
from slurm.content.code import DYNAMIC, LOADERS, RUNNERS, TEXT_READERS, import_of, names_in
from slurm.content.evaluated import Evaluated, read_evaluated
from slurm.content.plain import combine

Import = tuple[int, str, tuple[str, ...]]


@dataclass
class Statement:
    """One statement at the top of a module."""

    line: int
    #: What it says, without docstrings and with them.
    digest: str = ""
    documented: str = ""
    binds: set[str] = field(default_factory=set)
    #: Names as such, and names that may lie in other modules: attributes, imports, texts.
    names: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    #: Those that stand in texts: modules may be meant.
    texts: set[str] = field(default_factory=set)
    imports: list[Import] = field(default_factory=list)
    #: Whether its imports happen when the module is imported, whoever uses what they bind.
    brings: bool = False
    #: It acts on more than the names that it binds.
    acts: bool = False
    #: It acts, unless these come from other people's packages; and these from Python itself.
    calls: set[str] = field(default_factory=set)
    bases: set[str] = field(default_factory=set)
    #: It acts, if one of these is a function or class of one's own: it may be called.
    handed: set[str] = field(default_factory=set)
    #: It binds what it has read or computed: the value counts, too, unless all that was asked for
    #: it comes from modules of Python that only make things.
    computed: bool = False
    asked: set[str] = field(default_factory=set)
    #: Where it stands among the others does not matter.
    loose: bool = False
    #: Names whose values it takes when it runs, as a default does: what binds them may act before.
    takes: set[str] = field(default_factory=set)
    #: What it binds cannot change: a number, a text.
    constant: bool = False
    #: The value, where it stands there.
    literal: tuple[Any, ...] = ()
    #: The functions and methods that it defines; whether nothing decorates them.
    defines: dict[str, bool] = field(default_factory=dict)
    #: Their defaults, where all values stand there.
    defaults: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    is_class: bool = False
    #: The attributes of a class whose values stand there.
    fields: dict[str, Any] = field(default_factory=dict)
    #: Who is called for the value that it binds.
    effects: set[str] = field(default_factory=set)
    #: What it asks for while the module is imported.
    evaluated: Evaluated = field(default_factory=Evaluated)
    dynamic: bool = False
    unseen: str = ""


@dataclass(frozen=True)
class Source:
    """The statements of a module, and what each of its names is bound by."""

    statements: tuple[Statement, ...]
    #: How often a name is bound.
    bound: dict[str, int]
    #: Name -> the module that it was imported from.
    imported: dict[str, Import]
    #: The docstring, and the names that no other statement could change.
    doc: str = ""
    constants: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=4096)
def read_statements(data: bytes) -> Source:
    """The statements of a source file; what is no Python raises SyntaxError."""
    statements: list[Statement] = []
    imported: dict[str, Import] = {}
    tree = ast.parse(data)
    for node in tree.body:
        _drop_requests(node, imported)
        if _is_skipped(node):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for found, name, place in _aliases(node):
                statements.append(found)
                if name:
                    imported[name] = place
        else:
            statements.append(_statement(node))
    bound: dict[str, int] = {}
    for one in statements:
        for name in one.binds:
            bound[name] = bound.get(name, 0) + 1
    constants = frozenset(n for one in statements if one.constant for n in one.binds)
    doc = ast.get_docstring(tree, clean=False) or ""
    return Source(tuple(statements), bound, imported, doc, constants)


#: Options of tasks that say where and when a job runs; none of them is an answer's business.
_REQUESTS = frozenset(
    ("account", "array_throttle", "cache", "comment", "constraint", "cpus_per_task", "error",
     "exclude", "job_name", "mail_type", "mail_user", "mem", "mem_per_cpu", "mem_per_gpu", "memory",
     "name", "nice", "nodelist", "output", "partition", "qos", "reservation", "retry", "time",
     "time_min")
)  # fmt: skip


def _drop_requests(node: ast.stmt, imported: dict[str, Import]) -> None:
    """Take away what a task of ours asks of the scheduler."""
    for decorator in getattr(node, "decorator_list", ()):
        root = root_of(decorator)
        if isinstance(decorator, ast.Call) and imported.get(str(root), (1, ""))[:2] == (0, "slurm"):
            kept = [one for one in decorator.keywords if one.arg not in _REQUESTS]
            decorator.keywords = kept
            if not kept and not decorator.args:
                at = node.decorator_list.index(decorator)  # type: ignore[attr-defined]
                node.decorator_list[at] = decorator.func  # type: ignore[attr-defined]


def _is_skipped(node: ast.stmt) -> bool:
    """What never runs in a job: a docstring, imports for type checkers, a script's main part."""
    if isinstance(node, ast.If) and not node.orelse:
        test = ast.unparse(node.test)
        return bool(re.fullmatch(r"(\w+\.)?TYPE_CHECKING|__name__ == '__main__'", test))
    return isinstance(node, ast.Pass) or is_text(node)


def _aliases(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[Statement, str, Import]]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            place: Import = (0, alias.name, ())
            name = alias.asname or alias.name.partition(".")[0]
        else:
            place = (node.level, node.module or "", (alias.name,))
            name = alias.asname or alias.name
        found = Statement(node.lineno, brings=True, imports=[place], loose=True)
        found.outer.update(alias.name.split("."), place[1].split("."))
        found.digest = found.documented = combine("import", repr(place), name)
        found.unseen = _renamed(alias)
        if alias.name == "*" or place[1] == "__future__":
            found.acts = True
            yield found, "", place
        else:
            found.binds.add(name)
            yield found, name, place


def _statement(node: ast.stmt) -> Statement:
    found = Statement(node.lineno)
    reader = _Reader(found)
    reader.read(node)
    found.evaluated = read_evaluated(node)
    found.digest = combine("statement", *reader.tokens)
    found.documented = combine("statement", *reader.tokens, "doc", *reader.docs)
    for name in sorted(TEXT_READERS & (found.names | found.outer)):
        found.unseen = f"{name} reads how code is written"
    found.dynamic = not DYNAMIC.isdisjoint(found.names | found.outer)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        found.binds.add(node.name)
        found.defines[node.name] = not node.decorator_list
        judge_function(found, node)
        found.loose = True
        # A module's own `__getattr__` is called by Python.
        found.acts |= node.name.startswith("__")
    elif isinstance(node, ast.ClassDef):
        found.binds.add(node.name)
        judge_class(found, node)
        found.loose = found.is_class = True
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        judge_assignment(found, node)
    elif not _is_type_alias(node):
        found.acts = found.computed = True
        found.binds.update(bound_in(node))
    return found


def _is_type_alias(node: ast.stmt) -> bool:
    return type(node).__name__ == "TypeAlias"


class _Reader:
    """Writes a node as texts, and notes what it names on the way."""

    def __init__(self, found: Statement) -> None:
        self._found = found
        #: What is called where it is named.
        self._called: set[int] = set()
        self.tokens: list[str] = []
        self.docs: list[str] = []

    def read(self, node: ast.AST) -> None:
        """Read a node and all below it."""
        self.tokens.append(type(node).__name__)
        self._note(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if name in ("ctx", "type_comment", "kind"):
                continue
            if isinstance(value, ast.AST):
                self.read(value)
            elif isinstance(value, list):
                self._read_list(node, name, value)
            else:
                self.tokens.append(f"{type(value).__name__} {value!r}")
        self.tokens.append(")")

    def _read_list(self, node: ast.AST, name: str, values: list[ast.AST | str | None]) -> None:
        documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if name == "body" and isinstance(node, documented) and is_text(node.body[0]):
            self.docs.append(str(node.body[0].value.value))  # type: ignore[attr-defined]
            values = values[1:]
        self.tokens.append("[")
        for value in values:
            if isinstance(value, ast.AST):
                if not isinstance(value, ast.Pass):
                    self.read(value)
            else:
                self.tokens.append(f"{value!r}")
                if isinstance(value, str):  # of `global` and `nonlocal`
                    self._found.names.add(value)
        self.tokens.append("]")

    def _note(self, node: ast.AST) -> None:
        found = self._found
        if isinstance(node, (ast.Name, ast.Attribute)):
            if id(node) not in self._called:
                found.unseen = found.unseen or _passed_on(node)
            if isinstance(node, ast.Name):
                found.names.add(node.id)
            else:
                found.outer.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            found.outer.add(node.arg)
        elif isinstance(node, ast.Constant):
            texts = set(names_in(node.value))
            found.texts |= texts
            found.outer |= texts
        elif isinstance(node, ast.Import):
            found.imports += [(0, alias.name, ()) for alias in node.names]
            found.outer.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            found.imports.append((node.level, node.module or "", names))
            found.outer.update(names)
            for alias in node.names:
                found.unseen = found.unseen or _renamed(alias)
        elif isinstance(node, ast.MatchClass):
            found.outer.update(node.kwd_attrs)
        elif isinstance(node, ast.Call):
            self._called.add(id(node.func))
            found.unseen = found.unseen or _unseen(node, found)


def _unseen(call: ast.Call, found: Statement) -> str:
    """What a call brings in that stands nowhere."""
    is_name = isinstance(call.func, ast.Name)
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name in LOADERS:
        return f"{name} brings in code by its place"
    if name in ("eval", "exec"):
        return f"{name} runs a text" if is_name else ""
    if name == "reload" and (is_name or root_of(call.func) == "importlib"):
        return "reload runs a module once more"
    if name in RUNNERS:
        first = call.args[0] if call.args else None
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            return f"{name} of a name that only the running program knows"
        found.imports.append(import_of(first.value))
    return ""


def _renamed(alias: ast.alias) -> str:
    """What an import gives another name, so that its calls are not seen."""
    known = RUNNERS | LOADERS | TEXT_READERS
    if alias.name in known and alias.asname not in (None, alias.name):
        return f"{alias.name} goes by another name"
    return ""


def _passed_on(node: ast.Name | ast.Attribute) -> str:
    """What is handed to others, or gets another name, and may be called there."""
    if not isinstance(node.ctx, ast.Load):
        return ""
    if isinstance(node, ast.Name):
        found = node.id in RUNNERS or (node.id in LOADERS and node.id != "entry_points")
        return f"{node.id} is handed on" if found else ""
    found = node.attr in RUNNERS | LOADERS and node.attr not in ("eval", "exec", "entry_points")
    return f"{node.attr} is handed on" if found else ""
