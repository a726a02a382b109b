"""`slurm mcp`: the verbs as tools for assistants, over the Model Context Protocol on stdio."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import json
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from slurm.cli import Verb, verbs
from slurm.cli.ended import Ended
from slurm.cli.frame import COMMON, Answer, Common, Form, error_as_dict
from slurm.cli.jsonrpc import Server, Tool
from slurm.errors import SlurmError, UsageError

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: What only looks; what unpickles a value, which is code; and what changes something. The last
#: two need a flag each.
LOOKS = ("ls", "show", "logs", "why", "eff", "graph", "queue", "nodes", "partitions")
VALUES = ("result",)
CHANGES = ("run", "rerun", "cancel")
#: What would not end, asks a person, or writes files here.
_LEFT_OUT = ("follow", "watch", "detach", "output", "common", "form")
#: What is given in their place, where a verb takes it: no call may keep the others waiting.
_GIVEN: dict[str, Any] = {"detach": True, "timeout": 10.0}
#: So many answers of a verb that gives one after the other.
_MOST = 1000

_ABOUT = (
    "Jobs on a Slurm cluster. A run is named by `last`, its name or a job id. Ask `why` for the "
    "reason that a job waits or has failed, before anything is submitted again."
)


def mcp(
    *,
    allow_changes: Annotated[
        bool, Parameter(negative="", help="Also offer tools that submit and cancel.")
    ] = False,
    allow_values: Annotated[
        bool, Parameter(negative="", help="Also offer `result`: to read a value runs its code.")
    ] = False,
    common: Common = COMMON,
) -> Ended:
    """Serve this program's verbs to an assistant: it is started by the assistant's program.

    Without --allow-changes and --allow-values the tools can only look, at runs of the configured
    base directory: no path is taken, no value unpickled, and no file outside of a run read.
    """
    from slurm import __version__

    # What a verb prints must not come between the messages.
    answers, sys.stdout = sys.stdout, sys.stderr
    names = (*LOOKS, *(VALUES if allow_values else ()), *(CHANGES if allow_changes else ()))
    named = ByName(**vars(common))
    tools = [tool_of(verb, named) for verb in verbs() if verb.name in names]
    try:
        Server("slurm", __version__, _ABOUT, tools).serve(sys.stdin, answers)
    finally:
        sys.stdout = answers
    return Ended()


@dataclass(frozen=True)
class ByName(Common):
    """The options of a verb whose runs are named by an assistant, which may repeat what it read.

    A path would choose the base directory, and with it whose files are read.
    """

    def connect(self, run: str | None = None) -> Cluster:
        """The configured cluster, for a run of it."""
        _refuse_path(run)
        return super().connect(None)

    def look(self, run: str | None = None) -> Cluster:
        """The same, to look: files outside of a run are not read."""
        _refuse_path(run)
        cluster = super().look(None)
        cluster._only_look(inside=True)
        return cluster


def _refuse_path(run: str | None) -> None:
    """Runs inside of workflows have names with slashes; what leads elsewhere is a path."""
    if run is None:
        return
    parts = run.split("/")
    if run.startswith(("/", "~")) or ".." in parts or "." in parts or "\\" in run:
        raise UsageError(
            f"{run!r} is a path, and this tool takes runs of the configured base directory only",
            hint="name it as slurm ls does, or by its job id; a person can: slurm show PATH",
        )


def tool_of(verb: Verb, common: Common) -> Tool:
    """A verb as a tool: its schema is made of the function's own signature."""
    module, _, name = verb.place.partition(":")
    function = getattr(importlib.import_module(f"slurm.cli.{module}"), name)
    hints = typing.get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in _LEFT_OUT or parameter.kind is parameter.VAR_KEYWORD:
            continue
        found = _schema(hints[parameter.name])
        if parameter.kind is parameter.VAR_POSITIONAL:
            found = {"type": "array", "items": found}
        elif parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = found
    takes_common = "common" in hints
    if takes_common:
        properties["cluster"] = {"type": "string", "description": "A profile of the Slurmfile."}
    schema = {"type": "object", "properties": properties, "required": required}
    call = _caller(function, common if takes_common else None)
    about = (inspect.getdoc(function) or verb.about).replace("\n", " ")
    return Tool(verb.name, about, schema, call, read_only=verb.name not in CHANGES)


def _caller(
    function: Callable[..., Any], common: Common | None
) -> Callable[[Mapping[str, Any]], tuple[Any, bool]]:
    parameters = inspect.signature(function).parameters
    star = next((p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    # Where a verb takes any number of words, what stands before them is given by position.
    before = list(parameters)[: list(parameters).index(star)] if star is not None else []

    def call(arguments: Mapping[str, Any]) -> tuple[Any, bool]:
        given = {name: value for name, value in _GIVEN.items() if name in parameters}
        given.update(arguments)
        if common is not None:
            cluster = given.pop("cluster", None) or common.cluster
            given["common"] = dataclasses.replace(common, cluster=cluster)
        elif "form" in parameters:
            given["form"] = Form()
        words = [given.pop(name) for name in before]
        words += given.pop(star, []) if star is not None else []
        try:
            return _plain(function(*words, **given))
        except SlurmError as error:
            return error_as_dict(error), True
        except Exception as error:  # noqa: BLE001 - one bad call must not end the server
            return f"{type(error).__name__}: {error}", True

    return call


def _plain(found: Any) -> tuple[Any, bool]:
    if isinstance(found, Iterator):
        return {
            "items": [json.loads(one.as_json()) for one in itertools.islice(found, _MOST)]
        }, False
    if isinstance(found, Answer):
        return json.loads(found.as_json()), False
    return {"exit_code": found}, False


_JSON = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of a parameter, with its help as the description."""
    notes = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Parameter)]
    kind = typing.get_args(hint)[0] if notes else hint
    about = next((note.help for note in notes if note.help), None)
    found = _schema_of(kind)
    return {**found, "description": about} if about else found


def _schema_of(kind: Any) -> dict[str, Any]:
    args = [one for one in typing.get_args(kind) if one is not type(None)]
    origin = typing.get_origin(kind)
    if kind in _JSON:
        return {"type": _JSON[kind]}
    if origin is typing.Annotated:
        return _schema(kind)
    if origin is typing.Literal:
        return {"type": "string", "enum": args}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema_of(args[0])}
    if origin in (typing.Union, types.UnionType) and len(args) == 1:
        return _schema_of(args[0])
    return {"type": "string"}
