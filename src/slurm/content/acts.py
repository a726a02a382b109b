"""What a statement at the top of a module does besides binding names, as far as it stands there."""

from __future__ import annotations

import ast
import builtins
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.content.statements import Statement

#: Functions of Python that read nothing and change nothing.
_MAKERS = frozenset(
    ("bool", "int", "float", "complex", "str", "bytes", "bytearray", "list", "tuple", "dict",
     "set", "frozenset", "range", "slice", "object", "len", "sorted", "min", "max", "sum", "abs",
     "round", "zip", "enumerate", "reversed", "type", "repr", "ord", "chr", "divmod", "pow",
     "isinstance", "issubclass", "hasattr", "property", "staticmethod", "classmethod", "super")
)  # fmt: skip
#: Those that make tables.
_BUILDERS: dict[str, Any] = {
    "dict": dict, "frozenset": frozenset, "list": list, "set": set, "tuple": tuple,
}  # fmt: skip
_BUILTINS = frozenset(dir(builtins))


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is a text: a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def judge_function(
    found: Statement, node: ast.FunctionDef | ast.AsyncFunctionDef, above: str = ""
) -> None:
    """Note what a function does where it is defined: its decorators and defaults."""
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError):
        placed = tuple(map(ast.literal_eval, node.args.defaults))
        by_name = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        named = {one.arg: ast.literal_eval(value) for one, value in by_name if value is not None}
        found.defaults[f"{above}{node.name}"] = (placed or None, named or None)
    for decorator in node.decorator_list:
        _take(found, decorator)
        _judge_called(found, decorator.func if isinstance(decorator, ast.Call) else decorator)
        if isinstance(decorator, ast.Call):
            _judge_given(found, decorator)
    arguments = node.args
    annotated = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    annotated += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    defaults = [*arguments.defaults, *arguments.kw_defaults]
    for value in defaults:
        _take(found, value)
    given = [*defaults, node.returns]
    for value in [*given, *(one.annotation for one in annotated)]:
        if value is not None:
            _judge(found, value)


def judge_class(found: Statement, node: ast.ClassDef) -> None:
    """Note what a class does where it is defined: its bases and what stands in it."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        found.acts |= not root_of(called)
        found.bases.add(root_of(called) or "")
    for base in [*node.bases, *(keyword.value for keyword in node.keywords)]:
        if not isinstance(base, ast.Constant):
            found.acts |= not root_of(base)
            found.bases.add(root_of(base) or "")
    for inner in node.body:
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.defines[f"{node.name}.{inner.name}"] = not inner.decorator_list
            judge_function(found, inner, f"{node.name}.")
        elif isinstance(inner, (ast.Assign, ast.AnnAssign)):
            if inner.value is not None:
                _take(found, inner.value)
                _judge(found, inner.value)
                _note_field(found, inner)
        elif not (isinstance(inner, ast.Pass) or is_text(inner)):
            found.acts = True
    # What the class itself says of its own names is no business of the module.
    found.calls -= {n for one in node.body for n in bound_in(one)}


def _note_field(found: Statement, node: ast.Assign | ast.AnnAssign) -> None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if node.value is not None and len(targets) == 1 and isinstance(targets[0], ast.Name):
        with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError):
            found.fields[targets[0].id] = ast.literal_eval(node.value)


def judge_assignment(found: Statement, node: ast.Assign | ast.AnnAssign) -> None:
    """Note what is asked for the value that names get."""
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
        found.constant = _is_constant(node.value)
        found.effects = found.calls.copy()
        if len(found.binds) == 1 and all(isinstance(target, ast.Name) for target in targets):
            with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError):
                found.literal = (_literal_of(node.value),)


def _literal_of(value: ast.expr) -> Any:
    """The value that an expression says, also as `dict(a=3)`; ValueError where it says none."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        return ast.literal_eval(value)
    make = _BUILDERS.get(value.func.id)
    if make is None or any(keyword.arg is None for keyword in value.keywords):
        raise ValueError(value.func.id)
    given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in value.keywords}
    return make(*map(ast.literal_eval, value.args), **given)


def _take(found: Statement, value: ast.expr | None) -> None:
    """Note the names whose values are taken at once; the body of a lambda runs later."""
    if value is None or isinstance(value, ast.Lambda):
        return
    if isinstance(value, ast.Name):
        found.takes.add(value.id)
    for inner in ast.iter_child_nodes(value):
        if isinstance(inner, ast.expr):
            _take(found, inner)
        elif isinstance(inner, ast.keyword):
            _take(found, inner.value)


def _is_constant(value: ast.expr) -> bool:
    """Whether an expression has a value that nobody can change."""
    if isinstance(value, ast.Tuple):
        return all(map(_is_constant, value.elts))
    return isinstance(value.operand if isinstance(value, ast.UnaryOp) else value, ast.Constant)


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
    root = root_of(called)
    if root is None:
        found.acts = True
    elif root and not (isinstance(called, ast.Name) and root in _MAKERS):
        found.calls.add(root)


def _judge_given(found: Statement, call: ast.Call) -> None:
    for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
        found.handed.update(n.id for n in ast.walk(value) if isinstance(n, ast.Name))


def root_of(node: ast.expr) -> str | None:
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
                found.add(root_of(node.func) or "")
        elif isinstance(node, (ast.Attribute, ast.Await)):
            found.add(root_of(node) or "" if isinstance(node, ast.Attribute) else "")
    return found


def bound_in(node: ast.AST) -> set[str]:
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
