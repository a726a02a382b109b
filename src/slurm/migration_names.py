"""Which names of a program of slurm-sdk 0.4 hold something of it, and which hold others' things."""

from __future__ import annotations

import re
import sys

import libcst as cst

#: Names that programs give to jobs, arrays, clusters and contexts.
_SPEAKING = re.compile(r"(^|_)(jobs?|arrays?|cluster|ctx|context)_?\d*$", re.IGNORECASE)
_TYPES = {"ArrayJob", "Cluster", "Job", "JobContext", "WorkflowContext"}
_MAKERS = {"Cluster", "from_args", "from_backend", "from_env", "from_file"}
#: Methods of clusters and tasks that give a task, a job or an array.
_GIVERS = {"after", "get_job", "get_jobs", "map", "submit", "with_options"}


class Names(cst.CSTVisitor):
    """One look at a module, before it is changed."""

    def __init__(self) -> None:
        super().__init__()
        #: What the package itself is called.
        self.package: set[str] = set()
        #: Names from the package, by what they are called in this program.
        self.imported: dict[str, str] = {}
        #: Names from other packages, and those that hold what the standard library made.
        self.foreign: set[str] = set()
        self.theirs: set[str] = set()
        #: Names that hold clusters, tasks, jobs and arrays.
        self.ours: set[str] = set()
        #: Dictionaries that are given to a maker with two stars.
        self.starred: set[str] = set()
        self._standard: set[str] = set()
        self._mixed: set[str] = set()

    def visit_Module(self, node: cst.Module) -> None:
        """Another look: what was taken for others' may be known as ours by now."""
        self._mixed.clear()

    # ---- imports --------------------------------------------------------------------------------

    def visit_Import(self, node: cst.Import) -> None:
        """`import pandas as pd` makes `pd` somebody else's."""
        for one in node.names:
            whole = code(one.name)
            self._import(one.evaluated_alias or whole.partition(".")[0], whole)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        """`from redis import Cluster` makes `Cluster` somebody else's."""
        if isinstance(node.names, cst.ImportStar):
            return
        module = code(node.module) if node.module else ""
        for one in node.names:
            known, name = code(one.name), one.evaluated_alias or code(one.name)
            if module.partition(".")[0] == "slurm":
                self.imported[name] = known
            elif not node.relative:
                self._import(name, module)

    def _import(self, name: str, module: str) -> None:
        first = module.partition(".")[0]
        (self.package if first == "slurm" else self.foreign).add(name)
        if first in sys.stdlib_module_names:
            self._standard.add(name)

    # ---- what holds what ------------------------------------------------------------------------

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """A decorated function is a task."""
        for decorator in node.decorators:
            if called(decorator.decorator) in ("task", "workflow"):
                self.ours.add(node.name.value)

    def visit_Param(self, node: cst.Param) -> None:
        """A parameter may say what it is."""
        if node.annotation is not None:
            self._annotated(node.name.value, node.annotation)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        """`job: Job[int] = ...`."""
        if isinstance(node.target, cst.Name):
            self._annotated(node.target.value, node.annotation)
            if node.value is not None:
                self._holds(node.target, node.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        """`job = train(1)`."""
        for target in node.targets:
            self._holds(target.target, node.value)

    def visit_WithItem(self, node: cst.WithItem) -> None:
        """`with Cluster() as cluster`."""
        if node.asname is not None:
            self._holds(node.asname.name, node.item)

    def visit_For(self, node: cst.For) -> None:
        """`for job in jobs`."""
        self._holds(node.target, node.iter)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        """`[job.tail() for job in jobs]`."""
        self._holds(node.target, node.iter)

    def visit_Call(self, node: cst.Call) -> None:
        """`Cluster(**kwargs)` says that `kwargs` holds arguments of a cluster."""
        if called(node) in _MAKERS:
            self.starred |= {code(one.value) for one in node.args if one.star == "**"}

    def _annotated(self, name: str, annotation: cst.Annotation) -> None:
        if set(re.findall(r"\w+", code(annotation.annotation))) & _TYPES:
            self.ours.add(name)

    def _holds(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if not isinstance(target, cst.Name):
            return
        if self._makes(value):
            self.ours.add(target.value)
        elif isinstance(value, cst.Call):
            self._mixed.add(target.value)
            if root(value) in self._standard | self.theirs:
                self.theirs.add(target.value)

    def _makes(self, value: cst.BaseExpression) -> bool:
        """Whether an expression gives a cluster, a task, a job, or several of them."""
        if isinstance(value, (cst.List, cst.Tuple)):
            return any(self._makes(one.value) for one in value.elements)
        if isinstance(value, cst.ListComp):
            return self._makes(value.elt)
        if isinstance(value, (cst.Name, cst.Subscript)):
            return root(value) in self.ours
        if not isinstance(value, cst.Call):
            return False
        if isinstance(value.func, cst.Name):
            return value.func.value in self.ours or self.is_maker(value)
        if isinstance(value.func, cst.Call):  # cluster.submit(task)(...)
            return self._makes(value.func)
        of_ours = called(value) in _GIVERS and root(value) in self.ours
        return of_ours or self.is_maker(value)

    # ---- questions ------------------------------------------------------------------------------

    def is_maker(self, call: cst.Call) -> bool:
        """Whether a call makes a cluster of this package, and not of another with such a name."""
        if called(call) not in _MAKERS:
            return False
        if isinstance(call.func, cst.Name):
            return call.func.value not in self.foreign
        first = root(call)
        return first in self.package or (first not in self.foreign and "Cluster" in code(call.func))

    def is_decorator(self, call: cst.Call) -> bool:
        """Whether a call is `task(...)` or `workflow(...)` of this package."""
        first = root(call)
        return first in self.package or (
            isinstance(call.func, cst.Name) and first not in self.foreign
        )

    def whose(self, base: cst.BaseExpression) -> str:
        """`ours`, `theirs`, or `` where nothing in the program says it."""
        first = root(base)
        if first in self.ours - self._mixed:
            return "ours"
        if first in self.theirs or first in self._standard:
            return "theirs"
        last = base.attr.value if isinstance(base, cst.Attribute) else first
        return "ours" if _SPEAKING.search(last) else ""


def code(node: cst.CSTNode) -> str:
    """The text of a node."""
    return cst.Module([]).code_for_node(node)


def called(node: cst.CSTNode) -> str:
    """The last name of what is called, or of an expression."""
    func = node.func if isinstance(node, cst.Call) else node
    if isinstance(func, cst.Attribute):
        return func.attr.value
    return func.value if isinstance(func, cst.Name) else ""


def root(node: cst.BaseExpression) -> str:
    """The first name of an expression: `a` of `a.b(1)[2].c`."""
    while not isinstance(node, cst.Name):
        if isinstance(node, cst.Call):
            node = node.func
        elif isinstance(node, (cst.Attribute, cst.Subscript)):
            node = node.value
        else:
            return ""
    return node.value
