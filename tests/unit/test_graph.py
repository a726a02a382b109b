"""The graph of a run: states and times out of events, and its three forms."""

from __future__ import annotations

import xml.etree.ElementTree
from typing import Any

import pytest

from slurm import OptionError
from slurm.graph import Graph, duration, layers, node_of, render


def described(
    run: str,
    events: str = "",
    *,
    parts: list[list[int]] | None = None,
    upstream: tuple[str, ...] = (),
    parent: str | None = None,
    submitted: float = 0.0,
    name: str | None = None,
) -> dict[str, Any]:
    metadata = {
        "task": name or run,
        "parts": parts,
        "upstream": list(upstream),
        "parent": [parent, 0] if parent else None,
        "submitted": submitted,
    }
    return {"run": run, "metadata": metadata, "ids": [(0, "7")], "events": [events.encode()]}


def event(kind: str, index: int = 0, attempt: int = 0, **fields: int) -> str:
    more = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{kind} job=7 index={index} rank=- attempt={attempt} {more}\n"


def test_a_run_without_events_is_pending() -> None:
    node = node_of(described("a"))
    assert (node.state, node.seconds, node.summary) == ("PENDING", None, "PENDING")


def test_a_run_that_ended_shows_its_state_and_how_long_it_took() -> None:
    node = node_of(described("a", event("begin", time=100) + event("exit", time=165, code=0)))
    assert (node.state, node.summary) == ("COMPLETED", "COMPLETED 1m05s")


def test_the_newest_attempt_decides() -> None:
    events = event("begin", time=1) + event("exit", time=2, code=143)
    assert node_of(described("a", events)).state == "FAILED"
    again = events + event("begin", attempt=1, time=3)
    assert node_of(described("a", again)).state == "RUNNING"
    done = again + event("exit", attempt=1, time=9, code=0)
    assert node_of(described("a", done)).summary == "COMPLETED 8s"


def test_a_map_is_one_node_that_counts_its_calls() -> None:
    events = event("begin", time=1) + event("exit", time=2, code=0) + event("begin", 1, time=2)
    node = node_of(described("a", events, parts=[[0, 0, 3]]))
    assert node.title == "a x 3"
    assert node.state == "RUNNING"
    assert node.summary == "1 COMPLETED, 1 PENDING, 1 RUNNING"


def test_a_map_with_a_failed_call_has_failed() -> None:
    events = "".join(event("begin", i, time=1) + event("exit", i, time=2, code=i) for i in range(2))
    assert node_of(described("a", events, parts=[[0, 0, 2]])).state == "FAILED"


@pytest.fixture
def graph() -> Graph:
    done = event("begin", time=1) + event("exit", time=2, code=0)
    nodes = [
        node_of(described("wf", done)),
        node_of(described("b", upstream=("a",), parent="wf", submitted=2, name='say "<b>"')),
        node_of(described("a", done, parent="wf", submitted=1)),
        node_of(described("c", parent="b", submitted=3)),
    ]
    return Graph({node.run: node for node in nodes})


def test_the_text_is_a_tree_in_the_order_of_submission(graph: Graph) -> None:
    lines = render(graph, "text").splitlines()
    assert [line.split()[0] for line in lines] == ["wf", "├─", "└─", "└─"]
    assert lines[2].endswith("job 7  after a")
    assert lines[3].startswith("   └─ c")


def test_mermaid_quotes_names_and_nests_workflows(graph: Graph) -> None:
    text = render(graph, "mermaid")
    assert text.startswith("flowchart LR\n  subgraph n0")
    assert "#quot;" in text
    assert "n2 --> n1" in text
    assert text.count("subgraph") == text.count("end\n") == 2


def test_the_drawing_is_well_formed_and_has_a_box_for_each_run(graph: Graph) -> None:
    drawing = xml.etree.ElementTree.fromstring(render(graph, "svg"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawing.findall(f"{space}g")) == 4
    assert len(drawing.findall(f"{space}path")) == 3


def test_columns_follow_what_waits_for_what(graph: Graph) -> None:
    assert layers(graph) == [["wf"], ["a"], ["b"], ["c"]]


def test_a_circle_in_edited_files_does_not_hang() -> None:
    nodes = [node_of(described("a", upstream=("b",))), node_of(described("b", upstream=("a",)))]
    assert render(Graph({node.run: node for node in nodes}), "svg")


def test_an_unknown_form_is_refused_with_the_nearest(graph: Graph) -> None:
    with pytest.raises(OptionError, match="did you mean mermaid"):
        render(graph, "mermade")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (61, "1m01s"), (3720, "1h02m")])
def test_durations_are_short(seconds: int, text: str) -> None:
    assert duration(seconds) == text
