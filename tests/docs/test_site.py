"""The documentation as a whole: the site builds strictly, and nothing is left out of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from pages import PAGES, ROOT

import slurm

MKDOCS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def _leaves(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav if isinstance(nav, list) else nav.values()  # type: ignore[attr-defined]
    return [leaf for each in inner for leaf in _leaves(each)]


def test_the_site_builds_strictly_and_needs_no_other_host(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("index.html", "start.html", "examples/first_tasks.py.html", "llms.txt"):
        assert (tmp_path / name).exists(), name
    told = re.findall(r"\]\(([^)#:]+)", (tmp_path / "llms.txt").read_text())
    assert len(told) > 30
    assert [name for name in told if not (tmp_path / name).exists()] == []
    loads = re.compile(r"<(?:script|img|iframe)[^>]* src=.https?:|<link[^>]*stylesheet[^>]*https?:")
    for page in tmp_path.rglob("*.html"):
        assert loads.search(page.read_text()) is None, page


def test_every_page_is_in_the_navigation_and_in_llms_txt() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES if "docs" in path.parts}
    listed = _leaves(MKDOCS["nav"])
    outside = {f"{name}.md" for name in ("examples/index", "contributing", "changes", "report")}
    outside.add("conduct.md")
    assert sorted(listed) == sorted({*pages, *outside})
    told = (ROOT / "llms.txt").read_text()
    assert [page for page in sorted(pages) if f"(docs/{page})" not in told] == []


def test_every_public_name_is_in_the_reference_or_among_the_errors() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    errors = (ROOT / "docs" / "errors.md").read_text()
    documented = set(re.findall(r"^::: slurm\.[\w.]*?(\w+)$", reference, re.MULTILINE))
    documented |= set(re.findall(r"^### SLURM-E\d+ (\w+)$", errors, re.MULTILINE))
    assert set(slurm.__all__) - documented == {"RemoteTraceback"}, "it is a cause, never raised"


def test_every_example_is_in_the_index() -> None:
    index = (ROOT / "examples" / "README.md").read_text()
    files = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert files - set(re.findall(r"\]\((\w+\.py)\)", index)) == set()


def test_the_pictures_are_up_to_date_and_used() -> None:
    done = subprocess.run(
        [sys.executable, "docs/diagrams.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {name for p in PAGES for name in re.findall(r"images/([\w-]+\.svg)", p.read_text())}
    assert {path.name for path in (ROOT / "docs" / "images").glob("*.svg")} == shown


def test_the_architecture_names_no_module_that_is_gone() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "slurm"
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py|(?:[a-z_]+/)+)`", text)
    assert len(named) > 20
    assert [n for n in named if not (source / n).exists() and not (ROOT / n).exists()] == []
