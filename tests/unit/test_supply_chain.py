"""What is fetched from elsewhere to build, test and publish is pinned to its content."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.attack

TOP = Path(__file__).resolve().parents[2]
LOCKS = sorted((TOP / "requirements").glob("*.txt"))
WORKFLOWS = sorted((TOP / ".github" / "workflows").glob("*.yml"))
#: Installations of things that are compared with peers, each in an environment of its own.
NOT_OURS = {"hack/submitit-suite"}
#: What pip and uv say where they fetch nothing, or only what has a hash.
HELD = ("--require-hashes", "--no-deps", "-c requirements/dev.txt")


def requirements(text: str) -> list[tuple[str, str]]:
    """Each requirement of a lock, and the lines that go with it."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line) for line in lines]


def recipes() -> list[tuple[str, str]]:
    """Each line of the build, the images and the tools, continued ones as one, with its file."""
    listed = subprocess.run(
        ["git", "ls-files", "Makefile", "deploy", "hack", ".github"],
        cwd=TOP, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    found = []
    for name in listed:
        joined = re.sub(r"\\\n\s*", " ", (TOP / name).read_text(encoding="utf-8"))
        found += [(name, part) for line in joined.splitlines() for part in line.split("&&")]
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_line_of_a_lock_has_a_version_and_hashes(lock: Path) -> None:
    found = requirements(lock.read_text())
    assert found
    loose = [
        name
        for name, line in found
        if not re.fullmatch(r"[A-Za-z0-9._-]+==[^=]+", name)
        or not re.search(r"--hash=sha256:[0-9a-f]{64}", line)
    ]
    assert loose == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_a_commit_with_its_version(workflow: Path) -> None:
    used = re.findall(r"uses:\s*(.*)", workflow.read_text())
    assert used
    pinned = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\b")
    assert [one for one in used if not pinned.match(one)] == []


def test_every_installation_compares_hashes() -> None:
    installs = [
        (name, line.strip())
        for name, line in recipes()
        if re.search(r"\bpip install\b|pip\", \"install|-m pip install", line)
        and name not in NOT_OURS
        and not line.lstrip().startswith(("#", "Needs"))
    ]
    assert len(installs) >= 6
    loose = [
        (name, line)
        for name, line in installs
        if not any(word in line for word in HELD)
        # A list of words that goes on below: the file itself has to say it.
        and not ('"install"' in line and "--require-hashes" in (TOP / name).read_text())
        and not ('"install"' in line and "requirements/dev.txt" in (TOP / name).read_text())
    ]
    assert loose == []


def test_what_builds_the_package_is_pinned() -> None:
    builds = [line for _, line in recipes() if re.search(r"uv build|pip wheel", line)]
    assert builds
    for line in builds:
        assert "--no-build-isolation" in line or (
            "--require-hashes" in line and "--build-constraints requirements/build.txt" in line
        ), line
    named = re.search(r"requires = \[(.*)\]", (TOP / "pyproject.toml").read_text())
    assert named is not None
    wanted = set(re.findall(r'"([a-z-]+)', named[1]))
    have = {
        name.partition("==")[0]
        for name, _ in requirements((TOP / "requirements/build.txt").read_text())
    }
    assert wanted <= have


def test_no_tool_is_run_from_a_name_that_moves() -> None:
    """`go run x@latest`, `curl | sh` and `npx` fetch what is there just then."""
    moving = re.compile(r"@latest\b|curl [^|]*\|\s*(?:ba)?sh|\bnpx\b")
    assert [(name, line) for name, line in recipes() if moving.search(line)] == []
