"""What is wrong in Slurm's configuration files, said before a daemon sees them.

A slurmctld that runs in the foreground ends when `scontrol reconfigure` meets a bad file, and no
release has an option that only tests one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from slurm.errors import OptionError, nearest
from slurm.model.hostlist import expand_hostlist
from slurm.model.units import parse_duration
from slurm.stack.confkeys import keys, why_not
from slurm.stack.versions import at_least


class Problem(NamedTuple):
    """One thing that is wrong: file, line, words, and what to do."""

    file: str
    line: int
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what} ({self.fix})"


class Line(NamedTuple):
    """One line of a file: its number, its key, the key's value, and further words on it."""

    number: int
    key: str
    value: str
    words: tuple[tuple[str, str], ...] = ()

    def get(self, key: str) -> str:
        """A further word's value, or nothing."""
        return next((value for word, value in self.words if word.lower() == key.lower()), "")


CHECKED = ("slurm.conf", "slurmdbd.conf", "cgroup.conf", "gres.conf", "oci.conf")

# Values that came or went with a release: (key, value) -> since, until.
_VALUES: dict[tuple[str, str], tuple[str, str]] = {
    ("authtype", "auth/slurm"): ("23.11", ""),
    ("credtype", "cred/slurm"): ("23.11", ""),
    ("selecttype", "select/cons_res"): ("", "23.11"),
    ("selecttype", "select/linear"): ("", ""),
    ("accountingstoragetype", "accounting_storage/none"): ("", "23.11"),
    ("jobacctgathertype", "jobacct_gather/none"): ("", "23.11"),
    ("taskplugin", "task/none"): ("", "23.11"),
    ("jobcomptype", "jobcomp/none"): ("", "23.11"),
    ("switchtype", "switch/none"): ("", "23.11"),
    ("preempttype", "preempt/none"): ("", "23.11"),
    ("metricstype", "metrics/openmetrics"): ("25.11", ""),
    ("namespacetype", "namespace/tmpfs"): ("25.11", ""),
    ("topologyplugin", "topology/flat"): ("25.05", ""),
    ("cgroupplugin", "disabled"): ("24.05", ""),
    ("autodetect", "nvidia"): ("24.11", ""),
    ("autodetect", "full"): ("26.05", ""),
}
_BOOLEAN = ("yes", "no", "true", "false", "up", "down", "1", "0")
_TIMES = ("maxtime", "defaulttime")
_NOT_A_TIME = ("none", "unlimited", "infinite", "-1")


def check_files(files: Mapping[str, str], version: str) -> list[Problem]:
    """Everything that a release would refuse in these files, by file name; others are ignored."""
    problems: list[Problem] = []
    parsed: dict[str, list[Line]] = {}
    for name in CHECKED:
        if name in files:
            lines, wrong = parse(name, files[name])
            parsed[name] = lines
            problems += wrong
            problems += _lines(name, lines, version)
    if "slurm.conf" in parsed:
        problems += _slurm(parsed["slurm.conf"])
        problems += _together(parsed, version)
    if "slurmdbd.conf" in parsed:
        problems += _required("slurmdbd.conf", parsed["slurmdbd.conf"], ("DbdHost", "StorageType"))
    return sorted(problems)


def parse(file: str, text: str) -> tuple[list[Line], list[Problem]]:
    """The lines of a file without comments; a backslash at the end joins the next line."""
    found: list[Line] = []
    problems: list[Problem] = []
    pending, first = "", 0
    for number, raw in enumerate([*text.split("\n"), ""], start=1):
        line = re.sub(r"(?<!\\)#.*", "", raw).strip()
        first = first or number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        whole, at, pending, first = (pending + line).strip(), first, "", 0
        if not whole or whole.lower().startswith("include "):
            continue
        words = _words(whole)
        if words is None:
            fix = "write KEY=VALUE, with quotes around a value that has blanks"
            problems.append(Problem(file, at, f"{whole[:60]!r} is not KEY=VALUE", fix))
            continue
        (key, value), *rest = words
        found.append(Line(at, key, value, tuple(rest)))
    return found, problems


_WORD = re.compile(r'\s*([A-Za-z0-9_]+)\s*=\s*("[^"]*"|[^\s"]*)(?=\s|$)')


def _words(text: str) -> list[tuple[str, str]] | None:
    at, words = 0, []
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            return None
        words.append((match[1], match[2].strip('"')))
        at = match.end()
    return words


def _lines(file: str, lines: list[Line], version: str) -> Iterator[Problem]:
    """Each line by itself: known key, right kind of value, once."""
    seen: dict[str, int] = {}
    for line in lines:
        kinds = keys(file)
        table = file
        word = line.key.lower()
        if file == "slurm.conf" and word in ("nodename", "partitionname", "nodeset", "downnodes"):
            table = kinds[word][0]
        once = table == file and file in ("slurm.conf", "slurmdbd.conf", "cgroup.conf")
        if once and word in seen and word != "slurmctldhost":
            what = f"{line.key} stands in line {seen[word]} already"
            yield Problem(file, line.number, what, "Slurm takes the first: remove one")
        seen.setdefault(word, line.number)
        for key, value in ((line.key, line.value), *line.words):
            objection = why_not(table, key, version)
            if objection:
                yield Problem(file, line.number, *objection)
            else:
                yield from _value(file, line.number, table, key, value, version)


def _value(
    file: str, number: int, table: str, key: str, value: str, version: str
) -> Iterator[Problem]:
    name, span = keys(table)[key.lower()]
    if not value:
        yield Problem(file, number, f"{name} has no value", "give it one, or remove it")
    elif span.kind == "number" and not re.fullmatch(
        r"(?i)\d+|unlimited|infinite|0x[0-9a-f]+", value
    ):
        yield Problem(file, number, f"{name}={value} is not a number", "write a whole number")
    elif span.kind == "float" and not re.fullmatch(r"\d+(\.\d+)?", value):
        yield Problem(file, number, f"{name}={value} is not a number", "write a number")
    elif span.kind == "flag" and value.lower() not in _BOOLEAN:
        yield Problem(file, number, f"{name}={value} is neither yes nor no", "write yes or no")
    for each in value.split(","):
        since, until = _VALUES.get((key.lower(), each.lower()), ("", ""))
        if since and not at_least(version, since):
            what = f"{name}={each} came with Slurm {since}, and this is {version}"
            yield Problem(file, number, what, f"remove it, or take Slurm {since} or later")
        elif until and at_least(version, until):
            what = f"{name}={each} is gone since Slurm {until}, and this is {version}"
            yield Problem(file, number, what, "remove the line")
    if key.lower() in _TIMES and value.lower() not in _NOT_A_TIME:
        try:
            parse_duration(value)
        except OptionError:
            fix = "minutes, HH:MM:SS, D-HH:MM:SS or UNLIMITED"
            yield Problem(file, number, f"{name}={value} is not a time", fix)


def _required(file: str, lines: list[Line], names: tuple[str, ...]) -> Iterator[Problem]:
    there = {line.key.lower() for line in lines}
    for name in names:
        if name.lower() not in there:
            yield Problem(file, 1, f"{name} is missing", f"add {name}=...")


def _slurm(lines: list[Line]) -> Iterator[Problem]:
    """slurm.conf as a whole: controllers, nodes and partitions fit."""
    yield from _required("slurm.conf", lines, ("ClusterName", "SlurmctldHost", "PartitionName"))
    nodes: dict[str, int] = {}
    places: dict[tuple[str, str], str] = {}
    default = 0
    for line in (line for line in lines if line.key.lower() == "nodename"):
        for name in _names(line):
            if name in nodes:
                what = f"node {name} stands in line {nodes[name]} already"
                yield Problem("slurm.conf", line.number, what, "give each node one line")
            nodes[name] = line.number
        place = (line.get("NodeAddr"), line.get("Port"))
        if place[0] and place in places and "[" not in place[1]:
            what = f"{line.value} has the address and port of {places[place]}"
            yield Problem("slurm.conf", line.number, what, "give each node its own")
        places[place] = line.value
    sets = [line.value for line in lines if line.key.lower() == "nodeset"]
    for line in (line for line in lines if line.key.lower() == "partitionname"):
        yield from _partition_nodes(line, [*nodes, *sets])
        if line.get("Default").lower() in ("yes", "true") and line.value != "DEFAULT":
            if default:
                what = f"{line.value} is a second default partition, after line {default}"
                yield Problem("slurm.conf", line.number, what, "keep one Default=YES")
            default = line.number
    if not nodes and not any(line.key.lower() == "maxnodecount" for line in lines):
        yield Problem("slurm.conf", 1, "there is no NodeName", "add a node, or MaxNodeCount")


def _names(line: Line) -> list[str]:
    if line.value.upper() == "DEFAULT":
        return []
    try:
        return expand_hostlist(line.value)
    except ValueError:
        return [line.value]


def _partition_nodes(line: Line, known: list[str]) -> Iterator[Problem]:
    text = line.get("Nodes")
    if not text or text.upper() == "ALL" or line.value.upper() == "DEFAULT":
        return
    try:
        wanted = expand_hostlist(text)
    except ValueError as error:
        yield Problem("slurm.conf", line.number, str(error), "write names such as n[1-4]")
        return
    for name in wanted:
        if name not in known:
            close = nearest(name, known)
            fix = f"did you mean {close}?" if close else "add the node"
            what = f"partition {line.value} has {name}, which is no node"
            yield Problem("slurm.conf", line.number, what, fix)


def _together(parsed: dict[str, list[Line]], version: str) -> Iterator[Problem]:
    """Keys that need each other, within slurm.conf and across files."""
    lines = parsed["slurm.conf"]
    value = _getter(lines)
    cgroup = _getter(parsed.get("cgroup.conf", []))
    if "auth/jwt" in value("AuthAltTypes") and "jwt_key=" not in value("AuthAltParameters"):
        fix = "add AuthAltParameters=jwt_key=/path"
        yield _at(lines, "AuthAltTypes", "auth/jwt has no key", fix)
    if value("AccountingStorageEnforce") and "slurmdbd" not in value("AccountingStorageType"):
        fix = "add AccountingStorageType=accounting_storage/slurmdbd"
        yield _at(lines, "AccountingStorageEnforce", "there is no slurmdbd to enforce it", fix)
    if cgroup("CgroupPlugin") == "disabled":
        for key in ("ProctrackType", "TaskPlugin", "JobAcctGatherType"):
            if "cgroup" in value(key):
                what = f"{key}={value(key)} needs cgroups, and cgroup.conf disables them"
                yield _at(lines, key, what, "use linuxproc, or enable cgroups")
    if "task/cgroup" in value("TaskPlugin") and "cgroup" not in value("ProctrackType"):
        what = "task/cgroup needs proctrack/cgroup"
        yield _at(lines, "TaskPlugin", what, "add ProctrackType=proctrack/cgroup")
    yield from _gres(lines, parsed.get("gres.conf", []), value("GresTypes"))


def _getter(lines: list[Line]) -> Callable[[str], str]:
    values = {line.key.lower(): line.value for line in reversed(lines)}
    return lambda key: values.get(key.lower(), "")


def _at(lines: list[Line], key: str, what: str, fix: str) -> Problem:
    number = next((line.number for line in lines if line.key.lower() == key.lower()), 1)
    return Problem("slurm.conf", number, what, fix)


def _gres(lines: list[Line], gres: list[Line], types: str) -> Iterator[Problem]:
    known = {word.strip() for word in types.split(",")}
    files: dict[str, int] = {}
    detected = {name for x in gres if x.get("AutoDetect") not in ("", "off") for name in _names(x)}
    for line in gres:
        if line.key.lower() == "nodename" and line.get("File"):
            for name in _names(line):
                files[name] = files.get(name, 0) + len(_device_files(line.get("File")))
    for line in (line for line in lines if line.key.lower() == "nodename"):
        for kind in re.findall(r"(?:^|,)([A-Za-z_]+)", line.get("Gres")):
            if kind not in known:
                what = f"{line.value} has Gres={line.get('Gres')}, and GresTypes has no {kind}"
                yield Problem("slurm.conf", line.number, what, f"add GresTypes={kind}")
        count = sum(int(n) for n in re.findall(r"gpu(?::[^:,]+)?:(\d+)", line.get("Gres")))
        for name in _names(line):
            if name in files and name not in detected and files[name] != count:
                what = f"{name} has {count} GPUs here and {files[name]} device files in gres.conf"
                yield Problem("slurm.conf", line.number, what, "make the numbers equal")


def _device_files(text: str) -> list[str]:
    try:
        return expand_hostlist(text.replace("/", "."))
    except ValueError:
        return [text]
