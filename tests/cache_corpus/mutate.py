"""Random packages, and each of their operators and constants changed: one change at a time."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from typing import Any

_OPERATORS: tuple[type[ast.operator], ...] = (ast.Add, ast.Sub, ast.Mult, ast.BitXor, ast.BitOr)
_COMPARISONS: tuple[type[ast.cmpop], ...] = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.NotEq)

_MAIN = """
if __name__ == "__main__":
    import sys
    from slurm import Cluster
    with Cluster("debug", job_base_dir=sys.argv[1]):
        job = f(7)
        print(job.result(), job.cached)
"""

#: Ways in which a function uses another one: what stands above, in it, and the call.
_USES = (
    ("from {module} import {name}", "", "{name}({x})"),
    ("from {module} import {name} as other_{name}", "", "other_{name}({x})"),
    ("import {module}", "", "{module}.{name}({x})"),
    ("", "from {module} import {name}", "{name}({x})"),
    ("", "import {module} as late", "late.{name}({x})"),
    ("from .{last} import {name}", "", "{name}({x})"),
    ("from . import {last}", "", "{last}.{name}({x})"),
    ("", "from . import {last} as near", "near.{name}({x})"),
    ("from {module} import *", "", "{name}({x})"),
    ("import {module}", "", 'getattr({module}, "{name}")({x})'),
    ("import importlib", "", 'importlib.import_module("{module}").{name}({x})'),
    ("import functools, {module}", "", "functools.partial({module}.{name})({x})"),
    ("import {module}\nTABLE_{name} = {{'k': {module}.{name}}}", "", "TABLE_{name}['k']({x})"),
)

#: Ways in which a function is written around the number that it computes.
_SHAPES = (
    "def {name}(x):\n    {inside}\n    return {body}\n",
    "def {name}(x, n={n}):\n    {inside}\n    return {body} + n\n",
    "import functools\n@functools.lru_cache\ndef {name}(x):\n    {inside}\n    return {body}\n",
    "N_{name} = {n}\ndef {name}(x):\n    {inside}\n    return {body} + N_{name}\n",
    "class C_{name}:\n    def __init__(self, x):\n        self.x = x\n    @property\n"
    "    def value(self):\n        x = self.x\n        {inside}\n        return {body}\n"
    "def {name}(x):\n    return C_{name}(x).value\n",
    "class B_{name}:\n    @staticmethod\n    def go(x):\n        {inside}\n        return {body}\n"
    "class C_{name}(B_{name}):\n    n = {n}\n"
    "def {name}(x):\n    return C_{name}.go(x) + C_{name}.n\n",
    "def make_{name}(n):\n    def inner(x):\n        {inside}\n        return {body} + n\n"
    "    return inner\n{name} = make_{name}({n})\n",
    "import functools\ndef around_{name}(g):\n    @functools.wraps(g)\n    def call(x):\n"
    "        return g(x) + {n}\n    return call\n@around_{name}\ndef {name}(x):\n    {inside}\n"
    "    return {body}\n",
    "import functools\n@functools.singledispatch\ndef {name}(x):\n    return {n}\n"
    "@{name}.register\ndef _(x: int):\n    {inside}\n    return {body}\n",
    "class O_{name}:\n    def __init__(self, n):\n        self.n = n\n"
    "    def __call__(self, x):\n        {inside}\n        return {body} + self.n\n"
    "{name} = O_{name}({n})\n",
    "import dataclasses\n@dataclasses.dataclass\nclass D_{name}:\n    n: int = {n}\n"
    "    def go(self, x):\n        {inside}\n        return {body} + self.n\n"
    "def {name}(x):\n    return D_{name}().go(x)\n",
    "def {name}(x):\n    {inside}\n    return sum(y for y in ({body}, {n}) if y < 10**9)\n",
)


def make_package(seed: int) -> dict[str, str]:
    """The files of a random program: a package whose functions call each other, and a task."""
    pick = random.Random(seed)
    modules = [f"m{number}" for number in range(pick.randint(2, 4))]
    texts = dict.fromkeys(modules, "")
    made: list[tuple[str, str]] = []
    # A module imports those before it only: in a circle some of the imports would fail.
    places = sorted(pick.choice(modules) for _ in range(pick.randint(3, 6)))
    for number, module in enumerate(places):
        name = f"g{number}"
        above, inside, call = ("", "pass", "x")
        callee = made[-1] if made else None
        if callee is not None:
            if callee[0] == module:
                call = f"{callee[1]}(x)"
            else:
                above, inside, call = _use(pick, *callee, "x")
        body = f"({call} {pick.choice('+-*')} {pick.randint(2, 9)} % {pick.randint(11, 99)})"
        shape = pick.choice(_SHAPES)
        deep = shape.split("{inside}")[0].rpartition("\n")[2]
        text = shape.format(
            name=name, body=body, n=pick.randint(2, 99), inside=inside.replace("\n", "\n" + deep)
        )
        texts[module] = f"{above}\n{texts[module]}{text}"
        made.append((module, name))
    module, name = made[-1]
    above, inside, call = _use(pick, module, name, "x", far=True)
    task = (
        f"from slurm import task\n{above}\n@task(cache=True)\ndef f(x):\n    {inside}\n"
        f"    return {call} + {pick.randint(2, 99)}\n"
    )
    files = {f"pkg/{module}.py": text for module, text in texts.items()}
    files["pkg/__init__.py"] = ""
    if pick.random() < 0.5:
        return {**files, "main.py": task + _MAIN}
    return {**files, "tasks.py": task, "main.py": "from tasks import f\n" + _MAIN}


def _use(
    pick: random.Random, module: str, name: str, x: str, far: bool = False
) -> tuple[str, str, str]:
    while True:
        use = pick.choice(_USES)
        if far and "{last}" in use[0] + use[1]:
            continue
        told = {"module": f"pkg.{module}", "last": module, "name": name, "x": x}
        above, inside, call = (part.format(**told) for part in use)
        return above, inside or "pass", call


def mutations(text: str) -> Iterator[str]:
    """All texts with one operator, comparison or constant changed."""
    count = sum(1 for node in ast.walk(ast.parse(text)) if _is_changeable(node))
    for number in range(count):
        tree = ast.parse(text)
        node = [one for one in ast.walk(tree) if _is_changeable(one)][number]
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, int)
            node.value = node.value + 1
        elif isinstance(node, ast.BinOp):
            node.op = _next(_OPERATORS, node.op)
        elif isinstance(node, ast.Compare):
            node.ops = [_next(_COMPARISONS, node.ops[0]), *node.ops[1:]]
        yield ast.unparse(tree)


def _is_changeable(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    return isinstance(node, (ast.BinOp, ast.Compare))


def _next(kinds: tuple[type, ...], one: object) -> Any:
    at = kinds.index(type(one)) if type(one) in kinds else -1
    return kinds[(at + 1) % len(kinds)]()


def all_mutations(seed: int) -> Iterator[tuple[dict[str, str], str, str]]:
    """Programs without an end: the files, the one that is changed, and its content then."""
    while True:
        files = make_package(seed)
        seed += 1
        changed = []
        for name in files:
            text = files[name].removesuffix(_MAIN) if name == "main.py" else files[name]
            tail = _MAIN if name == "main.py" else ""
            changed += [(name, other + "\n" + tail) for other in mutations(text)]
        for name, other in changed:
            yield files, name, other
