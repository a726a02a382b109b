"""What pages name of the package is there, and files that pages show may be imported."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks_of, name_of

#: Files of Slurm, and keys of the bridge's configuration.
_OTHERS = re.compile(r"slurm\.(conf|allowPlainHttp|caFile|partition|url)\b")
#: Its left columns are names of another project: test_from_slurm_sdk_page reads it.
_OWN_TEST = {"docs/from-slurm-sdk.md"}
#: What user code may import from, apart from `slurm` itself.
DOORS = {
    "slurm.api": {"Backend", "LocalBackend"},
    "slurm.callbacks": {"BaseCallback", "LoggerCallback", "flush"},
    "slurm.config": {"find_slurmfile", "load_profile"},
    "slurm.packaging": {"check_packaging"},
    "slurm.packaging.container": {"Container", "Image", "build_image"},
    "slurm.rendering": {"Submission", "render_job_script"},
    "slurm.runner": set(),
}


def is_there(dotted: str) -> bool:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def named_in(page: Path) -> set[str]:
    text = page.read_text()
    names = set(re.findall(r"`(slurm(?:\.\w+)+)", text))
    names |= set(re.findall(r"^::: (slurm[\w.]+)", text, re.MULTILINE))
    for block in blocks_of(page):
        for node in ast.walk(ast.parse(block.text)) if block.kind == "python" else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {f"{node.module}.{one.name}" for one in node.names}
            elif isinstance(node, ast.Import):
                names |= {one.name for one in node.names}
    ours = {name for name in names if name.split(".")[0] == "slurm"}
    return {name for name in ours if not _OTHERS.match(name)}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if name_of(page) not in _OWN_TEST], ids=name_of
)
def test_every_name_of_the_package_on_a_page_is_there(page: Path) -> None:
    assert [name for name in sorted(named_in(page)) if not is_there(name)] == []


def test_pages_name_enough_for_this_to_say_something() -> None:
    assert len(set().union(*map(named_in, PAGES))) > 100
    assert not is_there("slurm.nothing") and not is_there("slurm.api.Nothing")


@pytest.mark.parametrize("module", DOORS)
def test_a_door_has_what_the_pages_say(module: str) -> None:
    found = importlib.import_module(module)
    assert {name for name in DOORS[module] if not hasattr(found, name)} == set()
    assert all(hasattr(found, name) for name in getattr(found, "__all__", ()))


def submits(node: ast.stmt) -> bool:
    """Whether a statement at the top of a file opens a cluster."""
    return isinstance(node, (ast.With, ast.AsyncWith)) and any(
        "Cluster" in ast.unparse(item) for item in node.items
    )


def files_shown() -> list[tuple[str, str]]:
    """Every Python file that a page has its reader write: its page and line, and its text."""
    found = []
    for page in PAGES:
        started = set(re.findall(r"python (\w+\.py)", page.read_text()))
        first = True
        for block in blocks_of(page):
            if block.kind != "python":
                continue
            file = re.match(r"file: (\S+\.py)", block.note)
            # `python first.py` without a block of that name is about the first program of the page.
            if file or (first and started - _files_of(page)):
                found.append((f"{name_of(page)}:{block.line}", block.text))
            first = False
    return found


def _files_of(page: Path) -> set[str]:
    notes = [re.match(r"file: (\S+\.py)", block.note) for block in blocks_of(page)]
    known = {note[1] for note in notes if note}
    return known | {path.name for path in (ROOT / "examples").rglob("*.py")}


def test_a_file_on_a_page_submits_only_as_a_program() -> None:
    shown = files_shown()
    assert len(shown) >= 5 and "README.md:27" in {place for place, _ in shown}
    wrong = [place for place, text in shown if any(map(submits, ast.parse(text).body))]
    assert wrong == []
