"""`stack.json`: what was decided for a cluster in containers, and what is being done to it.

It is written before each step, so that whoever comes after an interruption goes on from there.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm.config import stack_file, stack_names
from slurm.errors import StackError, nearest
from slurm.stack.plan import Plan, container_plan
from slurm.stack.read import FILE_NAME, parse_topology, read_topology
from slurm.stack.site import Site
from slurm.stack.topology import Topology

_FILE = "stack.json"
#: Where a topology has the port on the host of each service that is published.
PUBLISHED = {
    "login": ("login", "port"),
    "slurmrestd": ("rest", "port"),
    "prometheus": ("monitoring", "prometheus_port"),
    "grafana": ("monitoring", "grafana_port"),
}
_FORMAT = 1


@dataclass
class Record:
    """One cluster: its directory, what was found where it runs, the release that it has.

    `ports` are those on the host by service, each as it was asked for and as it is, which differ
    where another program has it. `doing` names the step that an interruption left unfinished,
    `proven` is the cluster.toml with which the cluster did its work last, `told` the version of
    Slurm's files that its daemons have read.
    """

    directory: Path
    name: str
    engine: str
    version: str
    site: Site
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    doing: str = ""
    proven: str = ""
    told: str = ""

    def save(self) -> None:
        """Write the file anew, in one step."""
        import msgspec

        document = {"format": _FORMAT, **msgspec.to_builtins(self, enc_hook=str)}
        _put(self.directory / _FILE, _text(document))

    def step(self, doing: str) -> None:
        """Say on disk what comes next."""
        self.doing = doing
        self.save()

    def done(self) -> None:
        """The cluster does its work, and it is as its cluster.toml says."""
        self.proven = (self.directory / FILE_NAME).read_text(encoding="utf-8")
        self.step("")

    def ask_for(self, text: str) -> None:
        """Write cluster.toml anew, whole or not at all."""
        _put(self.directory / FILE_NAME, text)

    def topology(self, text: str | None = None) -> Topology:
        """What the cluster's own cluster.toml asks for, or a new one, with what was decided."""
        where = self.directory / FILE_NAME
        asked = read_topology(where) if text is None else parse_topology(text, str(where))
        for service, (table, key) in PUBLISHED.items():
            part = getattr(asked, table)
            now = replace(part, **{key: self.port(service, getattr(part, key))})
            asked = replace(asked, **{table: now})
        return replace(asked, name=self.name, engine=self.engine, version=self.version)

    def port(self, service: str, asked: int) -> int:
        """A service's port on the host, where the topology asks for that one."""
        before, now = self.ports.get(service, (asked, asked))
        return now if before == asked else asked

    def plan(self, text: str | None = None) -> Plan:
        """The plan of this cluster as it should be now, or with another cluster.toml."""
        return container_plan(self.topology(text), self.site)

    def register(self, arguments: dict[str, object]) -> None:
        """Let `Cluster.from_stack` and the commands find this cluster by its name."""
        register(self.name, self.directory, self.engine, arguments)

    def forget(self) -> None:
        """The opposite of `register`."""
        forget(self.name, self.directory)
        (self.directory / _FILE).unlink(missing_ok=True)


def load(directory: Path) -> Record | None:
    """The record of a directory, None where no cluster in containers was made there."""
    path = directory / _FILE
    try:
        document = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise StackError(f"{path} cannot be read: {error}") from error
    if document.get("format") != _FORMAT:
        raise StackError(
            f"{path} was written by another version of this package",
            hint="use that version, or another directory",
        )
    import msgspec

    return msgspec.convert(document, Record, dec_hook=lambda _, text: Path(text))


def register(name: str, directory: Path, engine: str, arguments: dict[str, object]) -> None:
    """Let a cluster be found by its name; `arguments` are those of `Cluster` for it."""
    index = stack_file(name)
    index.parent.mkdir(parents=True, exist_ok=True)
    _put(index, _text({"dir": str(directory), "engine": engine, "cluster": arguments}))


def forget(name: str, directory: Path) -> None:
    """The opposite of `register`, if the name is this directory's."""
    if directory_of(name) == directory:
        stack_file(name).unlink(missing_ok=True)


def directory_of(name: str) -> Path | None:
    """The directory of the cluster of that name, if there is one."""
    try:
        return Path(json.loads(stack_file(name).read_text())["dir"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise StackError(f"{stack_file(name)} cannot be read: {error}") from error


def default_directory(name: str) -> Path:
    """Where a cluster lies for which no directory was named."""
    return stack_file(name).with_suffix("")


def find(name: str | None) -> Path:
    """The directory of a cluster by name; without a name, of the only one there is."""
    known = stack_names()
    if name is None and len(known) == 1:
        name = known[0]
    found = directory_of(name) if name else None
    if found is not None:
        return found
    close = nearest(name, known) if name else None
    raise StackError(
        f"there is no cluster {name!r}" if name else f"which of {len(known)} clusters?",
        evidence=[f"clusters here: {', '.join(known) or 'none'}"],
        hint=f"did you mean {close!r}?" if close else "name one, or its directory with --dir",
    )


def _text(document: object) -> str:
    return json.dumps(document, indent=1) + "\n"


def _put(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
