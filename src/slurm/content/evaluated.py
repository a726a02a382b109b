"""What a statement asks for while its module is imported: what runs later is not in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from slurm.content.acts import root_of


@dataclass
class Evaluated:
    """Names that are looked up when a statement runs, by how they are used."""

    #: All of them, and the attributes that are asked of anything.
    names: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    #: Those that are called, or whose attributes are.
    called: set[str] = field(default_factory=set)
    #: What decorates, and what classes are made of: it gets the code that stands below.
    makers: set[str] = field(default_factory=set)
    #: The attributes that the body of a class gives values to.
    fields: set[str] = field(default_factory=set)


def read_evaluated(node: ast.stmt) -> Evaluated:
    """What a statement at the top of a module asks for at once."""
    found = Evaluated()
    _read(found, node)
    if isinstance(node, ast.ClassDef):
        for inner in ast.walk(ast.Module(body=node.body, type_ignores=[])):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found.fields.add(inner.id)
    return found


def _read(found: Evaluated, node: ast.AST) -> None:
    if isinstance(node, ast.Lambda):
        _read(found, node.args)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        _read_definition(found, node)
        return
    if isinstance(node, ast.Name):
        found.names.add(node.id)
    elif isinstance(node, ast.Attribute):
        found.attributes.add(node.attr)
    elif isinstance(node, ast.Call):
        found.called.add(root_of(node.func) or "")
    elif isinstance(node, ast.Await):
        found.called.add(root_of(node.value) or "")
    for name, value in ast.iter_fields(node):
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST) and name not in ("annotation", "returns"):
                _read(found, inner)


def _read_definition(
    found: Evaluated, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> None:
    """Decorators, defaults, bases and the body of a class; not the body of a function."""
    made_by: list[ast.expr] = list(node.decorator_list)
    if isinstance(node, ast.ClassDef):
        made_by += [*node.bases, *(keyword.value for keyword in node.keywords)]
        for inner in node.body:
            _read(found, inner)
    else:
        _read(found, node.args)
    for maker in made_by:
        called = maker.func if isinstance(maker, ast.Call) else maker
        root = root_of(called)
        if root is None:  # as `(lambda f: f)` or the like
            _read(found, maker)
            continue
        found.makers.add(root)
        if isinstance(called, ast.Attribute):
            found.attributes.add(called.attr)
        if isinstance(maker, ast.Call):
            for given in [*maker.args, *(keyword.value for keyword in maker.keywords)]:
                _read(found, given)
