"""Rewrites a program of slurm-sdk 0.4: imports, arguments and methods with other names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm.errors import UsageError
from slurm.extras import needs_extra
from slurm.model import older

with needs_extra("migrate", "slurm migrate"):
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    from slurm.migration_names import Names, called, code

#: Modules whose names are imported from elsewhere.
MODULES = {
    "slurm.api.base": "slurm.api",
    "slurm.api.local": "slurm.api",
    "slurm.array_job": "slurm",
    "slurm.callbacks.callbacks": "slurm.callbacks",
    "slurm.callbacks.rich_logger": "slurm.callbacks",
    "slurm.decorators": "slurm",
    "slurm.packaging.base": "slurm.packaging",
    "slurm.runtime": "slurm",
    "slurm.task": "slurm",
}
#: Modules without a counterpart, and what to do.
GONE_MODULES = {
    "slurm.array_items": "it was the inside of slurm-sdk",
    "slurm.callbacks.debug": "use LoggerCallback",
    "slurm.examples": "copy what you need of it into your program",
    "slurm.logging": "call logging.basicConfig(level=logging.INFO)",
    "slurm.mcp_server": "run slurm mcp",
    "slurm.runner.context_manager": "it was the inside of slurm-sdk",
    "slurm.runner.initialization": "it was the inside of slurm-sdk",
    "slurm.runner.main": "it was the inside of slurm-sdk",
    "slurm.runner.placeholder": "it was the inside of slurm-sdk",
    "slurm.runner.result_saver": "it was the inside of slurm-sdk",
    "slurm.runner.workflow_builder": "it was the inside of slurm-sdk",
    "slurm.tui": "run slurm top",
    "slurm.ui": "it was the inside of slurm-sdk",
    "slurm.validation": "it was the inside of slurm-sdk",
}
#: Names that are imported under their old ones.
NAMES = {
    "SlurmTask": "Task",
    "SlurmfileEnvironmentNotFoundError": "ConfigError",
    "SlurmfileError": "ConfigError",
    "SlurmfileInvalidError": "ConfigError",
    "SlurmfileNotFoundError": "ConfigError",
    "SubmissionError": "SubmitError",
    "WorkflowTask": "Workflow",
}
#: Names and modules without a counterpart, and what to do.
GONE = {
    "BackendCommandError": "catch slurm.CommandRefused, or slurm.SlurmError",
    "BackendError": "catch slurm.SlurmError",
    "BackendTimeout": "catch slurm.SchedulerUnreachable",
    "DebugCallback": "use LoggerCallback",
    "DownloadError": "catch the function's own exception, or slurm.JobError",
    "ExecutionLocus": "each hook has one place; ctx.where names it",
    "PackagingConfig": "packaging= takes text or a dict",
    "build_job_context": "call JobContext.from_environment()",
    "current_job_context": "call JobContext.from_environment()",
    "parse_packaging_config": "packaging= takes text or a dict",
}
#: Methods with another name.
METHODS = {
    "get_cluster_info": "backend.partitions",
    "get_latest_task_result": "result",
    "get_queue": "queue",
    "get_jobs": "queue",
    "get_stderr": "stderr",
    "get_stdout": "stdout",
    "get_task_output_dir": "task_dir",
    "is_completed": "done",
    "is_running": "running",
    "list_task_runs": "jobs",
}
#: Methods that are attributes here.
ATTRIBUTES = {"get_script": "script", "is_successful": "snapshot().is_successful"}
#: Attributes without a counterpart: of what a hook is given, and of jobs and arrays.
_OF_HOOKS = {"packaging_strategy", "result_path", "task", "workflow_context"}
_OF_JOBS = {"array_dir", "dependencies", "pre_submission_id", "target_job_dir", "task_func"}
#: The same, with names that others have, too: told of what is known to be a job.
_OF_OURS = {
    "created_at", "elapsed_seconds", "finished_at", "result_path", "sbatch_options", "started_at",
    "stderr_path", "stdout_path",
}  # fmt: skip
#: Keys of a packaging table: their name here, "" for those to leave out.
PACKAGING = {
    "build_tool": "",
    "extra_index_url": "extra_index_urls",
    "mount_job_dir": "",
    "runtime": "engine",
    "upgrade_pip": "",
    "use_digest": "",
}
_BY_HAND = {
    "name": "write image='NAME:TAG'",
    "python_executable": "write python= of the table, or of the task",
    "srun_args": "srun_args= is an option of the task",
    "tag": "write image='NAME:TAG'",
}
_DECORATORS = ("task", "workflow")
#: What a hook asked its task for.
_TASK_NAME = re.compile(r"(ctx|context)\.task\.(?:(?:func|unwrapped)\.__name__|__name__|name)")
_IS_WORKFLOW = re.compile(r"isinstance\((ctx|context)\.task, (\w+)\)")


@dataclass
class Migrated:
    """A program after the edits, and what has to be done by hand: line and what to do."""

    text: str
    by_hand: list[tuple[int, str]] = field(default_factory=list)


def migrate(text: str) -> Migrated:
    """Apply every edit that needs no decision; the others are told with their line."""
    module = cst.parse_module(text)
    if not re.search(r"^\s*(?:from|import)\b.*\bslurm\b", text, re.MULTILINE):
        return Migrated(text)
    wrapper = MetadataWrapper(module)
    names = Names()
    for _ in range(2):  # what is used above may be defined below
        wrapper.module.visit(names)
    edits = _Edits(names)
    changed = wrapper.visit(edits)
    return Migrated(changed.code, sorted(set(edits.by_hand)))


def migrate_checked(text: str, name: str) -> Migrated:
    """The same; text that is no Python is refused with the line."""
    try:
        return migrate(text)
    except cst.ParserSyntaxError as error:
        raise UsageError(
            f"{name} is not valid Python: line {error.raw_line}: {error.message}",
            hint="correct the line, then run slurm migrate again",
        ) from error


def _expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


class _Edits(cst.CSTTransformer):
    """One pass over a module; every node is decided by its own form."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self._replaced: set[cst.CSTNode] = set()
        self.by_hand: list[tuple[int, str]] = []

    def _say(self, node: cst.CSTNode, what: str) -> None:
        place: Any = self.get_metadata(PositionProvider, node)
        self.by_hand.append((place.start.line, what))

    # ---- imports --------------------------------------------------------------------------------

    def visit_Import(self, node: cst.Import) -> None:
        """`import slurm.decorators` is left: what is used of it has another place."""
        for one in node.names:
            module = code(one.name)
            if module in MODULES and module != "slurm.task":
                self._say(node, f"{module} is gone: import its names from {MODULES[module]}")
            self._say_gone(node, module)

    def _say_gone(self, node: cst.CSTNode, module: str) -> None:
        what = next((w for m, w in GONE_MODULES.items() if f"{module}.".startswith(f"{m}.")), None)
        if what is not None:
            self._say(node, f"{module} is gone: {what}")

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom:
        """`from slurm.decorators import task` becomes `from slurm import task`."""
        if updated_node.module is None or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        module = code(updated_node.module)
        if module == "slurm.logging":
            return cst.ensure_type(
                cst.ensure_type(
                    cst.parse_statement("from logging import basicConfig as configure_logging"),
                    cst.SimpleStatementLine,
                ).body[0],
                cst.ImportFrom,
            )
        if module.partition(".")[0] != "slurm":
            return updated_node
        self._say_gone(original_node, module)
        names = [self._imported(original_node, one) for one in updated_node.names]
        place = MODULES.get(module, module)
        if any(code(one.name) == "JobContext" for one in names) and place == "slurm.workflow":
            place = "slurm"
        if module == "slurm.errors":
            place = "slurm"
        return updated_node.with_changes(
            module=cst.ensure_type(_expression(place), (cst.Name, cst.Attribute))  # type: ignore[arg-type]
            if place != module
            else updated_node.module,
            names=names,
        )

    def _imported(self, where: cst.CSTNode, name: cst.ImportAlias) -> cst.ImportAlias:
        known = code(name.name)
        if known in GONE:
            self._say(where, f"{known} is gone: {GONE[known]}")
        new = NAMES.get(known)
        if new is None:
            return name
        asname = name.asname or cst.AsName(cst.Name(known))
        return name.with_changes(name=cst.Name(new), asname=asname)

    # ---- calls ----------------------------------------------------------------------------------

    def leave_Expr(
        self, original_node: cst.Expr, updated_node: cst.Expr
    ) -> cst.Expr | cst.RemovalSentinel:
        """`Cluster.add_argparse_args(parser)` goes away."""
        value = updated_node.value
        if isinstance(value, cst.Call) and called(value) == "add_argparse_args":
            self._say(original_node, "options of the cluster come from the Slurmfile's profile")
            return cst.RemoveFromParent()
        return updated_node

    def visit_Attribute(self, node: cst.Attribute) -> None:
        """Attributes that are gone, or may be another object's, are told with their line."""
        if _TASK_NAME.fullmatch(code(node)):
            self._replaced.add(cst.ensure_type(_inner(node), cst.Attribute))
        of_hook = isinstance(node.value, cst.Name) and node.value.value in ("ctx", "context")
        whose = self._names.whose(node.value)
        if node in self._replaced or whose == "theirs":
            return
        of_jobs = _OF_JOBS | _OF_OURS if whose == "ours" else _OF_JOBS
        if node.attr.value in (_OF_HOOKS if of_hook else of_jobs):
            self._say(node, f"{code(node)}: see docs/from-slurm-sdk.md for what to write")

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """`ctx.task.func.__name__` of a hook is `ctx.name`."""
        found = _TASK_NAME.fullmatch(code(original_node))
        return _expression(f"{found[1]}.name") if found else updated_node

    def visit_Call(self, node: cst.Call) -> None:
        """`isinstance(ctx.task, WorkflowTask)` is rewritten as a whole."""
        if _IS_WORKFLOW.fullmatch(code(node)):
            self._replaced.add(node.args[0].value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Arguments of clusters, tasks and submissions, and methods with another name."""
        name = called(updated_node)
        asked = _IS_WORKFLOW.fullmatch(code(original_node))
        if asked and self._names.imported.get(asked[2]) == "WorkflowTask":
            return _expression(f"{asked[1]}.is_workflow")
        if self._names.imported.get(name) == "configure_logging" and not updated_node.args:
            return _with(updated_node, [_keyword("level", '"INFO"')])
        if isinstance(updated_node.func, cst.Attribute):
            made = self._method(original_node, updated_node, updated_node.func)
            if made is not updated_node:
                return made
        is_maker = self._names.is_maker(original_node)
        if name == "from_args" and is_maker:
            func = cst.ensure_type(updated_node.func, cst.Attribute)
            args = [one for one in updated_node.args[1:] if one.keyword or one.star]
            self._say(original_node, "from_env() reads the profile that $SLURM_ENV names")
            func = func.with_changes(attr=cst.Name("from_env"))
            updated_node = _with(updated_node.with_changes(func=func), args)
            name = "from_env"
        if is_maker or (name in ("with_options", "submit") and self._maybe_ours(updated_node)):
            return self._arguments(original_node, updated_node, name, is_maker)
        if name in _DECORATORS and self._names.is_decorator(original_node):
            return self._arguments(original_node, updated_node, name, False)
        return updated_node

    def _maybe_ours(self, call: cst.Call) -> bool:
        return (
            isinstance(call.func, cst.Attribute) and self._names.whose(call.func.value) != "theirs"
        )

    def _method(
        self, original: cst.Call, call: cst.Call, func: cst.Attribute
    ) -> cst.BaseExpression:
        """A method under its new name, where it is a job's or cluster's; else it is told."""
        name, base = func.attr.value, code(func.value)
        if name == "with_dependencies" and len(call.args) == 1:
            self._say(original, "an image is built when its task is first submitted")
            return func.value
        made: cst.BaseExpression = call
        if name in METHODS:
            made = call.with_changes(func=_expression(f"{base}.{METHODS[name]}"))
        elif name in ATTRIBUTES and not call.args:
            made = _expression(f"{base}.{ATTRIBUTES[name]}")
        elif name == "tail" and not _keywords(call) & {"follow"}:
            made = _with(call, [*call.args, _keyword("follow", "True")])
        whose = "theirs" if base == "self" else self._names.whose(func.value)
        if made is call or whose == "theirs":
            return call
        if whose == "ours":
            return made
        self._say(original, f"{code(call)}: if {base} is of slurm-sdk, write {code(made)}")
        return call

    def _arguments(self, original: cst.Call, call: cst.Call, name: str, is_maker: bool) -> cst.Call:
        args: list[cst.Arg] = []
        table: dict[str, str] = {}
        for arg in call.args:
            given = arg.keyword.value if arg.keyword else ""
            key = older.packaging_key(given)
            if key is not None and given != "packaging_config":
                self._packaging(original, table, key, code(arg.value))
            elif given in ("packaging", "default_packaging", "packaging_config"):
                table["type"] = code(arg.value)
            elif not is_maker:
                args.append(arg)
            elif given in older.RENAMED:
                args.append(arg.with_changes(keyword=cst.Name(older.RENAMED[given])))
            elif given == "env" and name == "from_env":
                args.insert(0, cst.Arg(arg.value))
            elif given == "overrides" and isinstance(arg.value, cst.Dict):
                args += self._overrides(original, arg.value)
            elif given in older.GONE or given == "password":
                what = older.GONE.get(given, "use a key, or slurm login HOST")
                self._say(original, f"{given}= is gone: {what}")
            else:
                args.append(arg)
        if table:
            args = _before_stars(args, _keyword("packaging", _packaging_text(table)))
        unchanged = [code(one.value) for one in args] == [code(one.value) for one in call.args]
        same = unchanged and [one.keyword and one.keyword.value for one in args] == [
            one.keyword and one.keyword.value for one in call.args
        ]
        return call if same else _with(call, args)

    def _packaging(self, where: cst.CSTNode, table: dict[str, str], key: str, value: str) -> None:
        if key in _BY_HAND:
            self._say(where, f"{key} of the packaging: {_BY_HAND[key]}")
            return
        new = PACKAGING.get(key, key)
        if new:
            table[new] = f"[{value}]" if new == "extra_index_urls" else value

    def _overrides(self, where: cst.CSTNode, given: cst.Dict) -> list[cst.Arg]:
        made = []
        for element in given.elements:
            key = getattr(element, "key", None)
            if not isinstance(key, cst.SimpleString):
                self._say(where, "overrides= is gone: give the arguments themselves")
                continue
            name = str(key.evaluated_value)
            made.append(_keyword(older.RENAMED.get(name, name), code(element.value)))
        return made

    # ---- tables of arguments --------------------------------------------------------------------

    def leave_AssignTarget(
        self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget
    ) -> cst.AssignTarget:
        """`kwargs["default_packaging_dockerfile"] = ...` puts a key into one table."""
        target = updated_node.target
        if not isinstance(target, cst.Subscript) or len(target.slice) != 1:
            return updated_node
        index = target.slice[0].slice
        if not isinstance(index, cst.Index) or not isinstance(index.value, cst.SimpleString):
            return updated_node
        name, base = str(index.value.evaluated_value), code(target.value)
        if name == "default_packaging":
            place = f'{base}.setdefault("packaging", {{}})["type"]'
        elif name.startswith("default_packaging_"):
            key = name.removeprefix("default_packaging_")
            place = f'{base}.setdefault("packaging", {{}})["{PACKAGING.get(key, key) or key}"]'
        elif name in older.RENAMED:
            if not name.startswith("default_") and base not in self._names.starred:
                return updated_node
            place = f'{base}["{older.RENAMED[name]}"]'
        else:
            return updated_node
        return updated_node.with_changes(target=_expression(place))


def _inner(node: cst.Attribute) -> cst.BaseExpression:
    """`ctx.task` of `ctx.task.func.__name__`."""
    inner: cst.BaseExpression = node
    while isinstance(inner, cst.Attribute) and inner.attr.value != "task":
        inner = inner.value
    return inner


def _keywords(call: cst.Call) -> set[str]:
    return {one.keyword.value for one in call.args if one.keyword}


def _keyword(name: str, value: str) -> cst.Arg:
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(_expression(value), keyword=cst.Name(name), equal=equal)


def _before_stars(args: Sequence[cst.Arg], more: cst.Arg) -> list[cst.Arg]:
    stars = [one for one in args if one.star == "**"]
    return [*(one for one in args if one.star != "**"), more, *stars]


def _packaging_text(table: dict[str, str]) -> str:
    if set(table) == {"type"}:
        return table["type"]
    kind = '"container"' if {"dockerfile", "image", "registry"} & set(table) else '"auto"'
    items = {"type": kind, **table}
    return "{" + ", ".join(f'"{key}": {value}' for key, value in items.items()) + "}"


def _with(call: cst.Call, args: Sequence[cst.Arg]) -> cst.Call:
    """The call with these arguments, in the layout of its first ones."""
    commas = [one.comma for one in call.args if isinstance(one.comma, cst.Comma)]
    between = commas[0] if commas else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    last = call.args[-1].comma if call.args else cst.MaybeSentinel.DEFAULT
    laid = [one.with_changes(comma=between) for one in args[:-1]]
    laid += [one.with_changes(comma=last) for one in args[-1:]]
    return call.with_changes(args=laid)
