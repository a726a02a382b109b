"""The threat model: each row of docs/security.md names a test that is there and tries an attack."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

from pages import ROOT

PAGE = ROOT / "docs" / "security.md"


def rows() -> list[list[str]]:
    """The rows of the table that names tests."""
    text = PAGE.read_text().partition("## Who may attack whom")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 4 and row[0] not in ("who", "---")]


def collected(tier: str, files: set[str]) -> set[str]:
    """The attacks that pytest finds in these files of a tier."""
    paths = [str(ROOT / "tests" / file) for file in sorted(files)]
    options = ["--collect-only", "-q", "-m", "attack", "--full", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    found = re.findall(r"^tests/(\S+?::\w+)", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, f"{tier}: {done.stdout}{done.stderr}"
    return set(found)


def test_each_promise_of_the_threat_model_names_a_test_that_tries_the_attack() -> None:
    named = {row[3].strip("`"): row for row in rows()}
    assert len(named) >= 12
    tiers: dict[str, set[str]] = defaultdict(set)
    for test, row in named.items():
        assert re.fullmatch(r"\w+/test_\w+\.py::test_\w+", test), row
        assert all(row), row
        tiers[test.partition("/")[0]].add(test.partition("::")[0])
    there = set().union(*(collected(tier, files) for tier, files in tiers.items()))
    assert set(named) <= there, f"not there, or not marked attack: {set(named) - there}"
