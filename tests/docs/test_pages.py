"""Every code block of README and docs is run; what a page shows as output is what comes out."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import (
    PAGES,
    ROOT,
    blocks_of,
    missing_lines,
    name_of,
    on_a_laptop,
    program_of,
    run_page,
    write_files,
)

WITH_PYTHON = [page for page in PAGES if program_of(page, laptop=True)[1]]
SHELL_KINDS = ("bash", "sh", "console")
# What these show, other pages and the examples show as well.
LATER = {
    "docs/index.md",
    "docs/from-slurm-sdk.md",
    "docs/tutorials/many-small-tasks.md",
    "docs/tutorials/own-cluster.md",
    "docs/tutorials/pipeline.md",
}
# These pages need Slurm's packages: tests/slurm runs them.
ON_SLURM = {"local-cluster.md"}
WITH_SHELL = [
    page
    for page in PAGES
    if page.name not in ON_SLURM
    and any(b.kind in SHELL_KINDS and not b.excused for b in blocks_of(page))
]


def _cases(pages: list[Path]) -> list[object]:
    marks = {True: [pytest.mark.full], False: []}
    return [pytest.param(p, id=name_of(p), marks=marks[name_of(p) in LATER]) for p in pages]


@pytest.mark.parametrize("page", _cases(WITH_PYTHON))
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path, newcomer: dict[str, str], tmp_path: Path
) -> None:
    run_page(page, tmp_path, newcomer, laptop=True)


@pytest.mark.parametrize("page", _cases(WITH_SHELL))
def test_the_commands_of_a_page_run(page: Path, newcomer: dict[str, str], tmp_path: Path) -> None:
    write_files(page, tmp_path)
    env = on_a_laptop(newcomer, tmp_path / "home")
    for block, after in itertools.zip_longest(blocks_of(page), blocks_of(page)[1:]):
        if block.kind not in SHELL_KINDS or block.excused or block.text.startswith("make "):
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        where = f"{page.name}, line {block.line}:\n{done.stdout}"
        assert done.returncode == 0, where
        if after is not None and after.note.startswith("printed"):
            assert missing_lines(after.text, done.stdout) == [], where


def test_a_block_that_is_not_run_says_why() -> None:
    known = {"python", "text", "toml", "json", "mermaid", "", *SHELL_KINDS}
    for page in PAGES:
        for block in blocks_of(page):
            assert block.kind in known, f"{page.name}, line {block.line}: ```{block.kind}"
            assert "not run" not in block.note or len(block.excused) > 10, (page.name, block.line)


NOT_RUN = [
    (name_of(page), line.partition(" > ")[0])
    for page in PAGES
    for block in blocks_of(page)
    if block.kind in SHELL_KINDS and block.excused
    for line in block.text.splitlines()
    if line.startswith("slurm ") and not line.startswith("slurm --")
]


def test_slurm_commands_that_are_not_run_are_understood_at_least() -> None:
    from cyclopts import CycloptsError

    from slurm.cli import build_app

    assert len(NOT_RUN) > 20
    app, wrong = build_app(), []
    for page, line in NOT_RUN:
        words = shlex.split(line, comments=True)[1:]
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            wrong.append(f"{page}: {line}: {error}")
    assert wrong == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page.name, target)
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path) if path else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in heads}
                assert anchor in slugs, f"{page.name}: {link}"


def test_the_generated_tables_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/tables.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_installs_another_projects_package_from_an_index() -> None:
    """There the name is another project's: pages and hints name a clone, or what is missing."""
    wrong = re.compile(r"(?:pip|uv|pipx)(?: \w+)? (?:install|add) [\"']?slurm-sdk|slurm-sdk\[\w")
    code = (ROOT / "src").rglob("*.py")
    assert [path for path in (*PAGES, *code) if wrong.search(path.read_text())] == []
