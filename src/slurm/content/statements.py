"""Reads source code as a list of statements: what each does, names, and needs to be harmless."""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm.content.code import DYNAMIC, LOADERS, RUNNERS, TEXT_READERS, import_of, names_in
from slurm.content.plain import combine

#: Functions of Python that read nothing and change nothing.
_MAKERS = frozenset(
    ("bool", "int", "float", "complex", "str", "bytes", "bytearray", "list", "tuple", "dict",
     "set", "frozenset", "range", "slice", "object", "len", "sorted", "min", "max", "sum", "abs",
     "round", "zip", "enumerate", "reversed", "type", "repr", "ord", "chr", "divmod", "pow",
     "isinstance", "issubclass", "hasattr", "property", "staticmethod", "classmethod", "super")
)  # fmt: skip
_BUILTINS = frozenset(dir(builtins))
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


@functools.lru_cache(maxsize=4096)
def read_statements(data: bytes) -> Source:
    """The statements of a source file; what is no Python raises SyntaxError."""
    statements: list[Statement] = []
    imported: dict[str, Import] = {}
    for node in ast.parse(data).body:
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
    return Source(tuple(statements), bound, imported)


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
        root = _root(decorator)
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
    return isinstance(node, ast.Pass) or _is_text(node)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


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
    found.digest = combine("statement", *reader.tokens)
    found.documented = combine("statement", *reader.tokens, "doc", *reader.docs)
    for name in sorted(TEXT_READERS & (found.names | found.outer)):
        found.unseen = f"{name} reads how code is written"
    found.dynamic = not DYNAMIC.isdisjoint(found.names | found.outer)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        found.binds.add(node.name)
        _judge_function(found, node)
        found.loose = True
        # A module's own `__getattr__` is called by Python.
        found.acts |= node.name.startswith("__")
    elif isinstance(node, ast.ClassDef):
        found.binds.add(node.name)
        _judge_class(found, node)
        found.loose = True
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        _judge_assignment(found, node)
    elif not _is_type_alias(node):
        found.acts = found.computed = True
        found.binds.update(_bound_in(node))
    return found


def _is_type_alias(node: ast.stmt) -> bool:
    return type(node).__name__ == "TypeAlias"


class _Reader:
    """Writes a node as texts, and notes what it names on the way."""

    def __init__(self, found: Statement) -> None:
        self._found = found
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
        if name == "body" and isinstance(node, documented) and _is_text(node.body[0]):
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
        if isinstance(node, ast.Name):
            found.names.add(node.id)
        elif isinstance(node, ast.Attribute):
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
        elif isinstance(node, ast.MatchClass):
            found.outer.update(node.kwd_attrs)
        elif isinstance(node, ast.Call):
            found.unseen = found.unseen or _unseen(node, found)


def _unseen(call: ast.Call, found: Statement) -> str:
    """What a call brings in that stands nowhere."""
    is_name = isinstance(call.func, ast.Name)
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name in LOADERS:
        return f"{name} brings in code by its place"
    if name in ("eval", "exec"):
        return f"{name} runs a text" if is_name else ""
    if name in RUNNERS:
        first = call.args[0] if call.args else None
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            return f"{name} of a name that only the running program knows"
        found.imports.append(import_of(first.value))
    return ""


# ---- what a statement does when the module is imported ---------------------------------------


def _judge_function(found: Statement, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    for decorator in node.decorator_list:
        _judge_called(found, decorator.func if isinstance(decorator, ast.Call) else decorator)
        if isinstance(decorator, ast.Call):
            _judge_given(found, decorator)
    arguments = node.args
    annotated = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    annotated += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    given = [*arguments.defaults, *arguments.kw_defaults, node.returns]
    for value in [*given, *(one.annotation for one in annotated)]:
        if value is not None:
            _judge(found, value)


def _judge_class(found: Statement, node: ast.ClassDef) -> None:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        found.acts |= not _root(called)
        found.bases.add(_root(called) or "")
    for base in [*node.bases, *(keyword.value for keyword in node.keywords)]:
        if not isinstance(base, ast.Constant):
            found.acts |= not _root(base)
            found.bases.add(_root(base) or "")
    for inner in node.body:
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _judge_function(found, inner)
        elif isinstance(inner, (ast.Assign, ast.AnnAssign)):
            if inner.value is not None:
                _judge(found, inner.value)
        elif not (isinstance(inner, ast.Pass) or _is_text(inner)):
            found.acts = True
    # What the class itself says of its own names is no business of the module.
    found.calls -= {n for one in node.body for n in _bound_in(one)}


def _judge_assignment(found: Statement, node: ast.Assign | ast.AnnAssign) -> None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        for part in parts:
            if isinstance(part, ast.Starred):
                part = part.value
            if isinstance(part, ast.Name):
                found.binds.add(part.id)
                found.acts |= part.id.startswith("__")
            else:
                found.acts = True
    if node.value is not None:
        found.loose = not any(isinstance(one, ast.Name) for one in ast.walk(node.value))
        _judge(found, node.value)
        found.asked = _asked(node.value)
        found.computed = bool(found.asked)


def _judge(found: Statement, value: ast.expr) -> None:
    """Note what an expression may do besides having a value."""
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Lambda):
            continue  # its body runs when it is called
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            found.acts = True
        if isinstance(node, ast.Call):
            _judge_called(found, node.func)
            _judge_given(found, node)
        waiting += ast.iter_child_nodes(node)


def _judge_called(found: Statement, called: ast.expr) -> None:
    root = _root(called)
    if root is None:
        found.acts = True
    elif root and not (isinstance(called, ast.Name) and root in _MAKERS):
        found.calls.add(root)


def _judge_given(found: Statement, call: ast.Call) -> None:
    for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
        found.handed.update(n.id for n in ast.walk(value) if isinstance(n, ast.Name))


def _root(node: ast.expr) -> str | None:
    """The name that an expression begins with; "" for a constant, None for anything else."""
    while True:
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            return ""
        else:
            return node.id if isinstance(node, ast.Name) else None


def _asked(value: ast.expr) -> set[str]:
    """What is called or looked up for a value; "" stands for what has no name."""
    found = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id in _MAKERS):
                found.add(_root(node.func) or "")
        elif isinstance(node, (ast.Attribute, ast.Await)):
            found.add(_root(node) or "" if isinstance(node, ast.Attribute) else "")
    return found


def _bound_in(node: ast.AST) -> set[str]:
    """The names that a statement binds, at any depth but not inside of functions."""
    found: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(one.name)
            continue
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            found.add(one.id)
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            found.update(a.asname or a.name.partition(".")[0] for a in one.names)
        elif isinstance(one, ast.ExceptHandler) and one.name:
            found.add(one.name)
        waiting += ast.iter_child_nodes(one)
    return found


def is_harmless_name(name: str) -> bool:
    """Whether a name that no module binds is one of Python's own that does nothing."""
    return name in _MAKERS or (name in _BUILTINS and name[:1].isupper())


def is_builtin(name: str) -> bool:
    """Whether a name is one of Python's own."""
    return name in _BUILTINS
