"""`cluster.toml` -> Topology: strict, and every refusal has file, line, key, value and fix."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slurm.errors import ConfigError, nearest
from slurm.model.units import brief
from slurm.stack.check import findings
from slurm.stack.kinds import Kind, Wrong
from slurm.stack.toml_lines import Way, key_lines
from slurm.stack.topology import Topology

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "cluster.toml"
# What people write first, and what it is called here.
_MEANT = {
    "slurm_version": "version",
    "cluster_name": "name",
    "clustername": "name",
    "realmemory": "memory",
    "mem": "memory",
    "gres": "gpus",
    "feature": "features",
    "maxtime": "max_time",
    "time": "max_time",
    "partition": "partitions",
    "node": "nodes",
    "user": "users",
    "account": "accounts",
    "slurmctld": "controller",
    "mysql": "database",
    "mariadb": "database",
}
_SECRETS = ("password", "pass", "storagepass", "munge_key", "jwt_key", "secret")


class Problem(NamedTuple):
    """One thing that is wrong: where, what, and what to write instead."""

    way: Way
    what: str
    fix: str


def read_topology(path: str | Path | None = None) -> Topology:
    """The topology of a file, of `cluster.toml` in a directory, or the default without any."""
    if path is None:
        return parse_topology("", FILE_NAME)
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / FILE_NAME
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{file}, line {line}: not UTF-8 text", hint="save the file as UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}",
            hint=f"name a {FILE_NAME}, or leave it out for a cluster of two nodes",
        ) from error
    return parse_topology(text, str(file))


def parse_topology(text: str, where: str = FILE_NAME) -> Topology:
    """The topology that a text stands for; `where` names it in messages."""
    try:
        # An editor on Windows ends lines with both.
        data = tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        raise _not_toml(str(error), text, where) from None
    problems: list[Problem] = []
    topology = _table(Topology, data, (), problems)
    if not problems:
        problems = [Problem(*finding) for finding in findings(topology)]
    if problems:
        raise _refusal(problems, text, where)
    assert isinstance(topology, Topology)
    return topology


def _not_toml(words: str, text: str, where: str) -> ConfigError:
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", words)
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    source = text.splitlines()
    return ConfigError(
        f"{where}, line {line}: not valid TOML: {words[: place.start()] if place else words}",
        evidence=[f"{line}: {source[line - 1].strip()[:100]}"] if line <= len(source) else [],
        hint="texts need quotes, tables look like [login], lists of tables like [[nodes]]",
    )


def _table(cls: type[Any], data: object, way: Way, problems: list[Problem]) -> Any:
    """One table as the value of its class; what is wrong in it is added to `problems`."""
    if not isinstance(data, Mapping):
        problems.append(Problem(way, f"must be a table, not {brief(data)}", f"write [{name(way)}]"))
        return None
    known = {field.name: field for field in dataclasses.fields(cls)}
    found: dict[str, Any] = {}
    for word, value in data.items():
        field = known.get(word)
        if field is None:
            problems.append(_unknown(cls, word, (*way, word), list(known)))
        else:
            found[word] = _value(field, value, (*way, word), problems)
    for word, field in known.items():
        if field.metadata.get("required") and word not in data:
            kind: Kind = field.metadata["kind"]
            what = f"{word} is missing: {field.metadata['doc']}"
            problems.append(Problem(way, what, f"add {word} = ..., {kind.words}"))
    return None if problems else cls(**found)


def _value(field: dataclasses.Field[Any], value: object, way: Way, problems: list[Problem]) -> Any:
    details = field.metadata
    if "table" in details:
        return _table(details["table"], value, way, problems)
    if "tables" in details:
        if not isinstance(value, list):
            what = f"must be a list of tables, not {brief(value)}"
            problems.append(Problem(way, what, f"write [[{name(way)}]] above its keys"))
            return ()
        cls = details["tables"]
        return tuple(_table(cls, item, (*way, n), problems) for n, item in enumerate(value))
    try:
        return details["kind"].read(value)
    except Wrong as wrong:
        problems.append(Problem(way, wrong.problem, wrong.fix))
        return None


def _unknown(cls: type[Any], word: str, way: Way, known: list[str]) -> Problem:
    if word.lower() in _SECRETS:
        return Problem(
            way,
            "no secret belongs into this file",
            "remove it: secrets are generated for each cluster, or read from its secrets folder",
        )
    meant = _MEANT.get(word.lower(), "")
    close = meant if meant in known else nearest(word.lower(), known)
    table = f"[{name(way[:-1])}]" if way[:-1] else "the top of the file"
    fix = f"did you mean {close}?" if close else f"{table} has {', '.join(known)}"
    return Problem(way, f"unknown key {brief(word)} in {table}", fix)


def name(way: Way) -> str:
    """`nodes[0].cpus` for a way into the file."""
    text = ""
    for part in way:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _refusal(problems: list[Problem], text: str, where: str) -> ConfigError:
    lines = key_lines(text.replace("\r\n", "\n"))
    source = text.splitlines()

    def line_of(way: Way) -> int:
        while way not in lines:
            way = way[:-1]
        return lines[way]

    ordered = sorted(problems, key=lambda problem: line_of(problem.way))
    first, *others = ordered
    at = line_of(first.way)
    shown = source[at - 1].strip() if at <= len(source) else ""
    evidence = [f"{at}: {shown[:100]}"] if shown else []
    evidence += [f"also line {line_of(p.way)}: {_sentence(p)}" for p in others[:9]]
    if len(others) > 9:
        evidence.append(f"and {len(others) - 9} more")
    return ConfigError(f"{where}, line {at}: {_sentence(first)}", hint=first.fix, evidence=evidence)


def _sentence(problem: Problem) -> str:
    return f"{name(problem.way)}: {problem.what}" if problem.way else problem.what
