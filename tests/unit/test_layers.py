"""Imports point down: from the command line to the model, and never back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import slurm

SOURCE = Path(str(slurm.__file__)).parent

# From top to bottom; a module imports from its own layer and from those below.
LAYERS: list[set[str]] = [
    {"cli", "web", "bridge", "stack", "monitor", "submitit"},
    {
        "cluster", "task", "job", "workflow", "callbacks", "submission", "plan", "sending",
        "handles", "watcher", "debug",
        "config", "logs", "results", "array", "dependencies", "resubmission", "jobview",
        "donecalls", "silence", "metadata", "active", "diagnosis", "reach",
        "inheritance", "journal", "returned", "graph", "allocation", "executor", "blocks", "batch",
        "packed", "packed_run", "cache", "content", "retry", "kept", "recall", "cachedmap",
        "runlist", "html", "inside", "postmortem", "pace", "watched", "target",
        "attaching", "cancelling",
    },
    {"failure", "outcome", "evidence", "why", "efficiency", "cost"},
    {
        "packaging", "rendering", "prelude", "followups", "api", "context", "runner", "launch",
        "files",
    },
    {"rundir"},
    {"model", "errors", "cancelled", "importing", "extras", "programs", "shutdown"},
]  # fmt: skip
# What starts every job knows nothing of the client.
BELOW_RUNNER = {"runner", "rundir", "model", "errors", "context", "importing"}
# What submits from the job itself: a workflow, and the end of one part of a run the next one.
SUBMITS = {
    "workflow.py": {"cluster", "journal", "returned", "workflow"},
    "advance.py": {"api"},
    "retry.py": {"api"},
    "behind.py": {"api"},
}
# What looks for Pythons on a node looks as the agent does.
SUBMITS["install.py"] = {"api"}
# What a user wants to hear of in the job travels with the run.
SUBMITS["callbacks.py"] = {"callbacks"}


def _modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def _part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _layer(part: str) -> int | None:
    return next((n for n, names in enumerate(LAYERS) if part in names), None)


def _imports(path: Path) -> set[str]:
    """The parts of the package that a module imports when it runs, anywhere in it."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "slurm":
            # A public name stands for the module that it comes from.
            found |= {slurm._HOME.get(a.name, f"slurm.{a.name}") for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are written in full"
            found.add(node.module)
    return {name.split(".")[1] for name in found if name.startswith("slurm.")}


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_layer_and_below(path: Path) -> None:
    own = _layer(_part(path))
    assert own is not None, f"{_part(path)} has no layer: put it into LAYERS"
    allowed = SUBMITS.get(path.name, set()) if _part(path) == "runner" else set()
    up = [p for p in _imports(path) - allowed if (_layer(p) if _layer(p) is not None else 99) < own]
    assert up == []


@pytest.mark.parametrize("path", sorted((SOURCE / "runner").glob("*.py")), ids=lambda p: p.name)
def test_the_runner_imports_nothing_of_the_client(path: Path) -> None:
    assert _imports(path) - BELOW_RUNNER - SUBMITS.get(path.name, set()) == set()


@pytest.mark.parametrize("path", sorted((SOURCE / "model").glob("*.py")), ids=lambda p: p.name)
def test_the_model_does_no_input_or_output(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names & {"subprocess", "socket", "shutil", "tempfile", "threading", "asyncio"} == set()
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert [c.func.id for c in calls if c.func.id in ("open", "print", "input")] == []  # type: ignore[attr-defined]


NOT_ON_WINDOWS = {"fcntl", "pwd", "resource", "grp", "termios"}
# What runs where the processes run is never imported by a client on Windows.
_CLIENT = [p for p in _modules() if _part(p) != "stack" and "embedded" not in p.parts]


@pytest.mark.parametrize("path", _CLIENT, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_of_a_client_needs_a_unix_module_to_be_imported(path: Path) -> None:
    tree = ast.parse(path.read_text())
    top = {a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    top |= {str(n.module) for n in tree.body if isinstance(n, ast.ImportFrom)}
    assert top & NOT_ON_WINDOWS == set()


def test_only_the_run_directory_knows_its_file_names() -> None:
    """A name of a file that stands in another module would have to be changed twice."""
    names = {"metadata.json", "function.bin", "arguments.bin", ".slurm_environment.json"}
    found = []
    for path in _modules():
        if path.parent == SOURCE / "rundir":
            continue
        tree = ast.parse(path.read_text())
        docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        found += [
            f"{path.name}:{n.lineno}"
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and n.value in names and id(n) not in docs
        ]
    assert found == []


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_first_line_of_a_module_says_what_it_is_for(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc
    assert doc.splitlines()[0].rstrip().endswith((".", ":"))
