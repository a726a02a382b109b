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

#: Modules whose names are imported from elsewhere.
MODULES = {
    "slurm.array_job": "slurm",
    "slurm.callbacks.callbacks": "slurm.callbacks",
    "slurm.callbacks.rich_logger": "slurm.callbacks",
    "slurm.decorators": "slurm",
    "slurm.runtime": "slurm",
    "slurm.task": "slurm",
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
_MAKERS = ("Cluster", "from_env", "from_file", "from_args", "from_backend")
_DECORATORS = ("task", "workflow", "with_options", "submit")


@dataclass
class Migrated:
    """A program after the edits, and what has to be done by hand: line and what to do."""

    text: str
    by_hand: list[tuple[int, str]] = field(default_factory=list)


def migrate(text: str) -> Migrated:
    """Apply every edit that needs no decision; the others are told with their line."""
    module = cst.parse_module(text)
    if not re.search(r"^\s*(?:from|import) slurm\b", text, re.MULTILINE):
        return Migrated(text)
    wrapper = MetadataWrapper(module)
    edits = _Edits()
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


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


class _Edits(cst.CSTTransformer):
    """One pass over a module; every node is decided by its own form."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.by_hand: list[tuple[int, str]] = []

    def _say(self, node: cst.CSTNode, what: str) -> None:
        place: Any = self.get_metadata(PositionProvider, node)
        self.by_hand.append((place.start.line, what))

    # ---- imports --------------------------------------------------------------------------------

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom:
        """`from slurm.decorators import task` becomes `from slurm import task`."""
        if updated_node.module is None or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        module = _code(updated_node.module)
        if module == "slurm.logging":
            self._say(original_node, "configure_logging() is logging.basicConfig() here")
            return cst.ensure_type(
                cst.ensure_type(
                    cst.parse_statement("from logging import basicConfig as configure_logging"),
                    cst.SimpleStatementLine,
                ).body[0],
                cst.ImportFrom,
            )
        if module.partition(".")[0] != "slurm":
            return updated_node
        names = [self._imported(original_node, one) for one in updated_node.names]
        place = MODULES.get(module, module)
        if any(_code(one.name) == "JobContext" for one in names) and place == "slurm.workflow":
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
        known = _code(name.name)
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
        if isinstance(value, cst.Call) and _called(value) == "add_argparse_args":
            self._say(original_node, "options of the cluster come from the Slurmfile's profile")
            return cst.RemoveFromParent()
        return updated_node

    def visit_Attribute(self, node: cst.Attribute) -> None:
        """Attributes that are gone, or may be another object's, are told with their line."""
        of_hook = isinstance(node.value, cst.Name) and node.value.value in ("ctx", "context")
        if node.attr.value in (_OF_HOOKS if of_hook else _OF_JOBS):
            self._say(node, f"{_code(node)}: see docs/from-slurm-sdk.md for what to write")

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Arguments of clusters, tasks and submissions, and methods with another name."""
        name = _called(updated_node)
        func = updated_node.func
        if isinstance(func, cst.Attribute):
            base = _code(func.value)
            if name in METHODS and base != "self":
                return updated_node.with_changes(func=_expression(f"{base}.{METHODS[name]}"))
            if name in ATTRIBUTES and base != "self" and not updated_node.args:
                return _expression(f"{base}.{ATTRIBUTES[name]}")
            if name == "with_dependencies":
                self._say(original_node, "an image is built when its task is first submitted")
                return func.value
            if name == "tail" and not _keywords(updated_node) & {"follow"} and base != "self":
                return _with(updated_node, [*updated_node.args, _keyword("follow", "True")])
        if name == "from_args":
            func = cst.ensure_type(func, cst.Attribute).with_changes(attr=cst.Name("from_env"))
            args = [one for one in updated_node.args[1:] if one.keyword or one.star]
            self._say(original_node, "from_env() reads the profile that $SLURM_ENV names")
            updated_node = _with(updated_node.with_changes(func=func), args)
        if name in _MAKERS or name in _DECORATORS:
            return self._arguments(original_node, updated_node, name)
        return updated_node

    def _arguments(self, original: cst.Call, call: cst.Call, name: str) -> cst.Call:
        args: list[cst.Arg] = []
        table: dict[str, str] = {}
        for arg in call.args:
            given = arg.keyword.value if arg.keyword else ""
            key = older.packaging_key(given)
            if key is not None and given != "packaging_config":
                self._packaging(original, table, key, _code(arg.value))
            elif given in ("packaging", "default_packaging", "packaging_config"):
                table["type"] = _code(arg.value)
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
        unchanged = [_code(one.value) for one in args] == [_code(one.value) for one in call.args]
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
            made.append(_keyword(older.RENAMED.get(name, name), _code(element.value)))
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
        name, base = str(index.value.evaluated_value), _code(target.value)
        if name == "default_packaging":
            place = f'{base}.setdefault("packaging", {{}})["type"]'
        elif name.startswith("default_packaging_"):
            key = name.removeprefix("default_packaging_")
            place = f'{base}.setdefault("packaging", {{}})["{PACKAGING.get(key, key) or key}"]'
        elif name in older.RENAMED:
            place = f'{base}["{older.RENAMED[name]}"]'
        else:
            return updated_node
        return updated_node.with_changes(target=_expression(place))


def _called(call: cst.Call) -> str:
    func = call.func
    if isinstance(func, cst.Attribute):
        return func.attr.value
    return func.value if isinstance(func, cst.Name) else ""


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
