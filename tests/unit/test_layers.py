"""Imports point down: from the command line to the model, and never back."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import slurm

SOURCE = Path(str(slurm.__file__)).parent

# From top to bottom; a module imports from its own layer and from those below.
LAYERS: list[set[str]] = [
    {"cli", "web", "bridge", "stack", "monitor", "submitit", "migration", "migration_names"},
    {
        "cluster", "task", "job", "workflow", "callbacks", "submission", "plan", "sending",
        "handles", "watcher", "debug",
        "config", "logs", "results", "array", "dependencies", "resubmission", "jobview",
        "donecalls", "waiters", "silence", "metadata", "active", "diagnosis", "reach",
        "inheritance", "journal", "returned", "graph", "allocation", "executor", "blocks", "batch",
        "packed", "packed_run", "cache", "content", "retry", "kept", "recall", "cachedmap",
        "runlist", "html", "inside", "postmortem", "pace", "watched", "target",
        "attaching", "cancelling", "current", "spool",
    },
    {"failure", "outcome", "evidence", "why", "efficiency", "cost"},
    {
        "packaging", "rendering", "prelude", "followups", "api", "context", "runner", "launch",
        "files",
    },
    {"rundir"},
    {
        "model", "errors", "attributes", "aside", "here", "locks", "cancelled", "importing",
        "extras", "programs", "shutdown", "threads",
    },
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
# What a key speaks of is read in the job as it was in the client.
SUBMITS["premises.py"] = {"content"}
# What looks for Pythons on a node looks as the agent does.
SUBMITS["install.py"] = {"api"}
# What a user wants to hear of in the job travels with the run.
SUBMITS["callbacks.py"] = {"callbacks"}


@cache
def _modules() -> dict[Path, ast.Module]:
    """All modules of the package, parsed once."""
    paths = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")
    return {path: ast.parse(path.read_text()) for path in paths}


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _layer(part: str) -> int | None:
    return next((n for n, names in enumerate(LAYERS) if part in names), None)


def _imports(path: Path) -> set[str]:
    """The parts of the package that a module imports when it runs, anywhere in it."""
    tree = _modules()[path]
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


def test_every_module_has_a_layer() -> None:
    without = {_part(path) for path in _modules() if _layer(_part(path)) is None}
    assert without == set(), "put them into LAYERS"


def test_a_module_imports_only_from_its_layer_and_below() -> None:
    wrong = []
    for path in _modules():
        own = _layer(_part(path)) or 0
        allowed = SUBMITS.get(path.name, set()) if _part(path) == "runner" else set()
        for part in sorted(_imports(path) - allowed):
            layer = _layer(part)
            if layer is not None and layer < own:
                wrong.append(f"{_name(path)} imports {part}")
    assert wrong == []


def test_the_runner_imports_nothing_of_the_client() -> None:
    runner = [path for path in _modules() if path.parent == SOURCE / "runner"]
    assert runner
    known = {path: BELOW_RUNNER | SUBMITS.get(path.name, set()) for path in runner}
    wrong = [
        f"{_name(path)} imports {part}" for path in runner for part in _imports(path) - known[path]
    ]
    assert wrong == []


def test_the_model_does_no_input_or_output() -> None:
    model = {path: tree for path, tree in _modules().items() if path.parent == SOURCE / "model"}
    assert model
    acts = {"subprocess", "socket", "shutil", "tempfile", "threading", "asyncio"}
    wrong = []
    for path, tree in model.items():
        for node in ast.walk(tree):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = acts & {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = acts & {str(node.module)}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = {"open", "print", "input"} & {node.func.id}
            wrong += [f"{_name(path)}:{node.lineno}: {name}" for name in names]  # type: ignore[attr-defined]
    assert wrong == []


NOT_ON_WINDOWS = {"fcntl", "pwd", "resource", "grp", "termios"}


def test_no_module_of_a_client_needs_a_unix_module_to_be_imported() -> None:
    wrong = []
    for path, tree in _modules().items():
        # What runs where the processes run is never imported by a client on Windows.
        if _part(path) == "stack" or "embedded" in path.parts or _name(path) == "web/helper.py":
            continue
        top = {a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names}
        top |= {str(n.module) for n in tree.body if isinstance(n, ast.ImportFrom)}
        wrong += [f"{_name(path)} imports {name}" for name in top & NOT_ON_WINDOWS]
    assert wrong == []


def test_only_the_run_directory_knows_its_file_names() -> None:
    """A name of a file that stands in another module would have to be changed twice."""
    names = {"metadata.json", "function.bin", "arguments.bin", ".slurm_environment.json"}
    found = []
    for path, tree in _modules().items():
        if path.parent == SOURCE / "rundir":
            continue
        docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        found += [
            f"{path.name}:{n.lineno}"
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and n.value in names and id(n) not in docs
        ]
    assert found == []


def test_the_first_line_of_a_module_says_what_it_is_for() -> None:
    docs = {path: ast.get_docstring(tree) or "" for path, tree in _modules().items()}
    first = {path: doc.partition("\n")[0].rstrip() for path, doc in docs.items()}
    assert [_name(path) for path, line in first.items() if not line.endswith((".", ":"))] == []
