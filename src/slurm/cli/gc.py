"""`slurm gc`: remove what is not needed any more; what is there is shown first."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from slurm.cli.frame import COMMON, COUNT, Answer, Common
from slurm.cli.screen import Column, Screen, ago, size, table
from slurm.errors import UsageError
from slurm.model.units import parse_duration
from slurm.packaging.retention import sweep
from slurm.runlist import ListedRun, RunList

if TYPE_CHECKING:
    from slurm.cluster import Cluster


@dataclass(frozen=True)
class OldThing:
    """Something that is not needed any more."""

    what: Annotated[str, "A run's name, or that of what was packaged."]
    kind: Annotated[str, "run, environment, wheel, snapshot or sdk."]
    size: Annotated[int, "Bytes that it takes on the disk."]
    age: Annotated[float, "Seconds since it was used last."]
    kept: Annotated[str, "Why it was kept; empty where it was removed, or would be."]


@dataclass(frozen=True)
class Swept(Answer):
    """What was removed, or would be."""

    dry_run: Annotated[bool, "Whether nothing was removed."]
    things: Annotated[list[OldThing], "What is old enough."]
    freed: Annotated[int, "Bytes that are free now, or would be."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """A table and a sum."""
        columns = (
            Column("WHAT"),
            Column("SIZE", right=True),
            Column("AGE", right=True, spare=1),
            Column("KEPT BECAUSE", spare=2),
        )
        now = time.time()
        rows = [(t.what, size(t.size), ago(now - t.age, now), t.kept) for t in self.things]
        if rows:
            yield from table(columns, rows, screen)
        count = sum(not thing.kept for thing in self.things)
        verb = "would be removed" if self.dry_run else "removed"
        yield f"{count} {verb}, {size(self.freed)}" if self.things else "nothing is old enough"


def gc(
    *,
    older_than: Annotated[str, Parameter(help="Only what ended so long ago.")] = "30d",
    keep: Annotated[
        int, Parameter(help="How many of the newest runs of each task to keep.", validator=COUNT)
    ] = 1,
    task: Annotated[str | None, Parameter(help="Only runs of this task.")] = None,
    failed: Annotated[bool, Parameter(negative="", help="Only runs that failed.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Only show what would go.")] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Ask nothing.")] = False,
    common: Common = COMMON,
) -> Swept:
    """Remove old runs with their logs and results, and what was packaged for jobs and is unused.

    Without --yes a person is asked first; where none is, nothing is removed.
    """
    cluster = common.connect()
    age = 0 if older_than == "0" else parse_duration(older_than, "--older-than") or 0
    chosen = old_runs(_all_runs(cluster), time.time(), age, keep, task, failed)
    sizes = cluster.backend.run_sizes([run.run for run in chosen])
    others = list(_others(cluster, age, dry_run=True))
    total = sum(sizes.values()) + sum(thing.size for thing in others)
    if not dry_run and (chosen or others) and not yes:
        _ask(len(chosen) + len(others), total)
    kept = {} if dry_run else cluster.backend.remove_runs([run.run for run in chosen])
    if not dry_run:
        others = list(_others(cluster, age, dry_run=False))
    now = time.time()
    things = [
        OldThing(run.run, "run", sizes[run.run], now - _last(run), kept.get(run.run, ""))
        for run in chosen
    ]
    freed = sum(thing.size for thing in [*things, *others] if not thing.kept)
    return Swept(dry_run, [*things, *others], freed)


def _all_runs(cluster: Cluster) -> list[ListedRun]:
    return RunList(cluster.backend.target).look(cluster.backend, 0)[0]


def old_runs(
    runs: list[ListedRun], now: float, age: float, keep: int, task: str | None, failed: bool
) -> list[ListedRun]:
    """The runs that may go: over, old enough, and not among the newest of their task.

    One that a clock ahead of ours has dated is as old as nothing.
    """
    seen: dict[str, int] = {}
    found = []
    for run in runs:  # newest first
        seen[run.task] = seen.get(run.task, 0) + 1
        wanted = task in (None, run.task) and (not failed or run.done < run.jobs)
        ended = run.over or not run.states
        if wanted and ended and seen[run.task] > keep and max(0.0, now - _last(run)) >= age:
            found.append(run)
    return found


def _last(run: ListedRun) -> float:
    return run.ended or run.submitted


def _others(cluster: Cluster, age: float, dry_run: bool) -> Iterator[OldThing]:
    """Environments, wheels, snapshots and copies of the SDK that nothing has used for so long."""
    for one in sweep(cluster, age, dry_run):
        yield OldThing(one.label or one.name, one.kind, one.size or 0, one.idle, "")


def _ask(count: int, total: int) -> None:
    """Ask the person at the terminal; refuse where there is none."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"{count} runs ({size(total)}) would be removed, and nobody is there to be asked",
            hint="slurm gc --dry-run shows them; slurm gc --yes removes them",
        )
    print(f"remove {count} runs ({size(total)})? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was removed", hint="slurm gc --dry-run shows what would go")
