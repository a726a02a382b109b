"""`slurm graph RUN`: the jobs of a workflow, what waits for what, with states and times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.screen import Screen
from slurm.graph import Graph, read_graph, render


@dataclass(frozen=True)
class GraphNode:
    """One run of a graph."""

    run: Annotated[str, "Its name, relative to the base directory."]
    task: Annotated[str, "The task's name."]
    job_id: Annotated[str, "Its job, of a map its first array; empty: not submitted yet."]
    state: Annotated[str, "The state of the whole."]
    calls: Annotated[dict[str, int], "How many of its calls are in which state."]
    after: Annotated[list[str], "The runs that it waits for."]
    parent: Annotated[str | None, "The workflow that submitted it."]
    seconds: Annotated[int | None, "From the first begin to the last end; null: not over."]


@dataclass(frozen=True)
class GraphShown(Answer):
    """The graph of a run."""

    root: Annotated[str, "The run that was asked for."]
    nodes: Annotated[list[GraphNode], "All runs of the graph, the root first."]
    drawing: Annotated[str, "What the command prints without --json: text, Mermaid or SVG."]
    written: Annotated[str | None, "The file that the drawing was written to."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """The drawing, unless a file has it."""
        return [] if self.written else self.drawing.rstrip("\n").split("\n")


def graph(
    run: Run,
    *,
    format: Annotated[str, Parameter(help="text, mermaid or svg.")] = "text",
    output: Annotated[Path | None, Parameter(help="Write to this file.")] = None,
    common: Common = COMMON,
) -> GraphShown:
    """Draw the jobs of a workflow, what waits for what, with states and times."""
    found = read_graph(common.look(run), run)
    text = render(found, format)
    if output is not None:
        output.write_text(text)
    return GraphShown(found.root.run, _nodes(found), text, None if output is None else str(output))


def _nodes(found: Graph) -> list[GraphNode]:
    from collections import Counter

    return [
        GraphNode(
            node.run,
            node.name,
            node.job_id,
            node.state,
            dict(Counter(node.calls.values())),
            list(node.upstream),
            node.parent,
            node.seconds,
        )
        for node in found.nodes.values()
    ]
