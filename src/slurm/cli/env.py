"""`slurm env build | list | rm | gc`: what is packaged on a cluster, beforehand and afterwards."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from slurm.cli.frame import COMMON, Answer, Common
from slurm.cli.screen import Column, Screen, table
from slurm.errors import PackagingError, UsageError, nearest
from slurm.model.units import parse_duration
from slurm.packaging import Packaging, Request, check_packaging, choose, prepare, progress
from slurm.packaging.project import project_of
from slurm.packaging.retention import Stored, look, sweep

if TYPE_CHECKING:
    from slurm.cluster import Cluster

app = App(
    name="env",
    help="Prepare, list and remove the environments that jobs run in.",
    help_format="plaintext",
)


@dataclass(frozen=True)
class Built(Answer):
    """An environment that is ready on the cluster."""

    kind: Annotated[str, "`wheel`, `source` or `container`."]
    name: Annotated[str, "What it is known by on the cluster."]
    python: Annotated[str, "The Python that jobs start in it."]
    why: Annotated[str, "What it is made of."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """One sentence."""
        return screen.wrap(f"{self.name} is ready: {self.why}")


@dataclass(frozen=True)
class StoredRow:
    """One thing that is stored on the cluster."""

    kind: Annotated[str, "`environment`, `wheel`, `snapshot` or `sdk`."]
    name: Annotated[str, "Its name: what `slurm env rm` takes."]
    state: Annotated[str, "`ready`, `making`, `failed`, `unmade` or `left over`."]
    label: Annotated[str, "What it holds."]
    python: Annotated[str, "The version of its Python."]
    size: Annotated[int | None, "Bytes on disk."]
    idle: Annotated[float, "Seconds since it was last used."]


@dataclass(frozen=True)
class StoredList(Answer):
    """What is stored on a cluster for many runs."""

    items: Annotated[list[StoredRow], "Environments first, then wheels, snapshots, SDK copies."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """A table."""
        if not self.items:
            return ["nothing is stored there yet"]
        columns = (
            Column("KIND", spare=1),
            Column("NAME"),
            Column("STATE"),
            Column("WHAT", spare=2),
            Column("PYTHON", spare=4),
            Column("SIZE", right=True, spare=3),
            Column("IDLE", right=True),
        )
        rows = [
            (r.kind, r.name, r.state, r.label, r.python, _size(r.size), _age(r.idle))
            for r in self.items
        ]
        return table(columns, rows, screen)


@dataclass(frozen=True)
class Removed(Answer):
    """What was removed from the store."""

    dry_run: Annotated[bool, "Whether nothing was removed, only shown."]
    items: Annotated[list[StoredRow], "What went, or would go."]
    size: Annotated[int, "Bytes of all of them."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """What went, and how much that was."""
        verb = "would remove" if self.dry_run else "removed"
        told = [f"{verb} {row.kind} {row.name} {row.label}".rstrip() for row in self.items]
        return [*told, f"{verb} {len(self.items)} in all, {_size(self.size)}"]


@app.command
def build(
    project: Annotated[
        Path | None, Parameter(help="The folder of the pyproject.toml; here by default.")
    ] = None,
    *,
    packaging: Annotated[
        str | None, Parameter(help="wheel (the default), source, or container:IMAGE.")
    ] = None,
    extra: Annotated[
        list[str] | None, Parameter(negative="", help="An extra of the project; repeatable.")
    ] = None,
    python_version: Annotated[str | None, Parameter(help="Another Python: 3.12.")] = None,
    job: Annotated[
        bool, Parameter(negative="", help="Make it in a job instead of on the login node.")
    ] = False,
    verbose: Annotated[
        bool, Parameter(name=["--verbose", "-v"], negative="", help="Show what tools print.")
    ] = False,
    common: Common = COMMON,
) -> Built:
    """Make an environment ahead of time, so that the first job finds it ready."""
    cluster = common.connect()
    given = _packaging(cluster, packaging, project, extra, python_version)
    with progress.shown(verbose):
        prepared = prepare(Request(cluster, given, platform.python_version, cluster.defaults))
        if prepared.deliver is not None:
            prepared.deliver(cluster)
        environment = prepared.environment
        key = environment.details.get("environment")
        if job:
            cluster.submit(platform.python_version, packaging=given)().result()
        elif key:
            from slurm.packaging.environments import make

            make(cluster, str(key), str(environment.details.get("label")))
    return Built(
        environment.kind, str(key or environment.digest), environment.python, environment.why
    )


def _packaging(
    cluster: Cluster,
    text: str | None,
    project: Path | None,
    extra: Sequence[str] | None,
    version: str | None,
) -> Packaging:
    named = check_packaging(text, "--packaging") if text else None
    chosen = choose(named, cluster.packaging)
    kind = "wheel" if chosen.kind in ("auto", "none", "inherit") else chosen.kind
    where = str((project or Path()).resolve())
    by_kind: dict[str, dict[str, Any]] = {
        "wheel": {"project": where, "extras": extra, "python_version": version},
        "source": {"root": where},
        "container": {"context": where if project is not None else None},
    }
    own = check_packaging({"type": kind, **by_kind[kind]}, "slurm env build")
    if kind == "wheel" and not os.path.isfile(os.path.join(where, "pyproject.toml")):
        raise PackagingError(
            f"{where} has no pyproject.toml", hint="slurm env build PROJECT; or --packaging source"
        )
    if project is None and kind == "wheel":
        project_of(os.path.join(where, "-"))
    return choose(own, Packaging(kind, chosen.options, chosen.said_by))


@app.command(name="list")
def list_stored(
    *,
    every: Annotated[
        bool, Parameter(name="--all", negative="", help="Wheels, snapshots, SDK copies, too.")
    ] = False,
    common: Common = COMMON,
) -> StoredList:
    """List the environments on the cluster, and how they fare."""
    items, _ = look(common.connect())
    kept = items if every else [item for item in items if item.kind == "environment"]
    return StoredList([_row(item) for item in kept])


@app.command
def rm(
    names: Annotated[list[str], Parameter(help="Names as `slurm env list --all` shows them.")],
    *,
    force: Annotated[
        bool, Parameter(negative="", help="Also what jobs in the queue need.")
    ] = False,
    common: Common = COMMON,
) -> Removed:
    """Remove environments, wheels or snapshots by name, or by the begin of one."""
    cluster = common.connect()
    items, used = look(cluster)
    going = [_named(name, items) for name in names]
    for item in going:
        if not force and any(need.startswith(item.place) for need in used):
            raise UsageError(
                f"{item.kind} {item.name} is needed by a job in the queue",
                hint="wait for it, or remove it all the same: --force",
            )
    cluster.backend.store_remove([item.place for item in going])
    return _removed(going, False)


def _named(name: str, items: Sequence[Stored]) -> Stored:
    found = [item for item in items if item.name.startswith(name)]
    exact = [item for item in found if item.name == name] or found
    if len(exact) == 1:
        return exact[0]
    if exact:
        raise UsageError(
            f"{name!r} could be {', '.join(item.name for item in exact[:4])}",
            hint="write more of the name",
        )
    close = nearest(name, [item.name for item in items])
    raise UsageError(
        f"nothing named {name!r} is stored there",
        hint=f"did you mean {close!r}?" if close else "slurm env list --all",
    )


@app.command
def gc(
    *,
    older: Annotated[str, Parameter(help="What was not used for so long goes.")] = "30d",
    dry_run: Annotated[
        bool, Parameter(name=["--dry-run", "-n"], negative="", help="Only show it.")
    ] = False,
    common: Common = COMMON,
) -> Removed:
    """Remove what nothing uses any more: environments, wheels, snapshots, old SDK copies."""
    seconds = parse_duration(older, "--older")
    if seconds is None:
        raise UsageError(f"--older {older} has no end", hint="--older 30d")
    return _removed(sweep(common.connect(), float(seconds), dry_run), dry_run)


def _removed(items: Sequence[Stored], dry_run: bool) -> Removed:
    return Removed(dry_run, [_row(item) for item in items], sum(i.size or 0 for i in items))


def _row(item: Stored) -> StoredRow:
    return StoredRow(
        item.kind, item.name, item.state or "there", item.label, item.python, item.size, item.idle
    )


def _size(size: int | None) -> str:
    if size is None:
        return ""
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
