"""`slurm graph RUN`: the jobs of a workflow, what waits for what, with states and times."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from slurm import Cluster, rundir
from slurm.cli import DONE
from slurm.graph import read_graph, render

app = App(
    name="graph",
    help="Draw the jobs of a workflow, what waits for what, with states and times.",
    help_format="plaintext",
)


@app.default
def graph(
    run: Annotated[str, Parameter(help="A run: its name, its directory or its job id.")],
    *,
    format: Annotated[str, Parameter(help="text, mermaid or svg.")] = "text",
    output: Annotated[Path | None, Parameter(help="Write to this file.")] = None,
    base: Annotated[
        Path | None, Parameter(name="--job-base-dir", help="The directory of all runs.")
    ] = None,
    cluster: Annotated[
        str | None, Parameter(help="A profile of the Slurmfile, instead of --job-base-dir.")
    ] = None,
) -> int:
    """Draw the graph of a run."""
    text = render(read_graph(_cluster(run, base, cluster), run), format)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)
    return DONE


def _cluster(run: str, base: Path | None, profile: str | None) -> Cluster:
    """The cluster that the run belongs to; a directory tells it by itself."""
    if profile is not None:
        return Cluster.from_env(profile)
    path = Path(os.path.expanduser(run)).absolute()
    if path.is_dir() and base is None:
        base = next((p for p in path.parents if (p / rundir.BASE_IDS).is_dir()), None)
    plain = Cluster(job_base_dir=base)
    place = Path(os.path.expanduser(plain.directory))
    return Cluster(_scheduler_of(place, run), job_base_dir=place)


def _scheduler_of(base: Path, run: str) -> str:
    """Where the run was submitted to, as its own environment file says."""
    link = base / rundir.BASE_IDS / run.partition("_")[0]
    folder = link.resolve() if link.is_symlink() else base / os.path.expanduser(run)
    try:
        found = json.loads((folder / rundir.ENVIRONMENT).read_text())
        return str(found["cluster"]["scheduler"])
    except (OSError, ValueError, KeyError):
        return "local"
