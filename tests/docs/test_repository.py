"""What a newcomer and CI rely on: make runs every tier, and CI runs the README's own command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def _dry_run(target: str) -> str:
    """The commands that make would run."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_every_folder_with_tests_belongs_to_a_tier_of_make_test() -> None:
    commands = _dry_run("test")
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    tops = {folder.relative_to(ROOT / "tests").parts[:1] for folder in folders}
    assert tops
    for top in tops:
        assert top, "a test lies in tests/ itself, where no tier finds it"
        assert re.search(rf"\btests/{top[0]}\b", commands), f"no tier runs tests/{top[0]}"


def test_make_test_runs_lint_and_types_as_well() -> None:
    commands = _dry_run("test")
    for tool in ("ruff check .", "ruff format --check .", "bin/mypy"):
        assert tool in commands


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [
        line for line in script.read_text().splitlines() if line and not line.startswith("#")
    ]
    assert commands[-1] == "exec make test"
    assert len(commands) == 3, "only `set` and `cd` stand before it"
    assert "`make test`" in (ROOT / "README.md").read_text()


def test_missing_programs_are_named_with_the_command_that_installs_them(tmp_path: Path) -> None:
    # A machine without apt-get, and without the folders in which daemons lie.
    (tmp_path / "hack").mkdir()
    (tmp_path / "src/slurm").mkdir(parents=True)
    table = (ROOT / "src/slurm/programs.py").read_text()
    less = re.sub(r"^_PLACES = .*$", "_PLACES = ()", table, flags=re.MULTILINE)
    (tmp_path / "src/slurm/programs.py").write_text(less.replace('"/usr', '"/nowhere'))
    copy = tmp_path / "hack" / "setup-packages"
    copy.write_text((ROOT / "hack" / "setup-packages").read_text())
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(copy), "bindfs"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "catatonit is not installed: podman starts no container" in done.stderr
    command = re.search(r"apt-get install --no-install-recommends (.*)", done.stderr)
    assert command is not None
    assert {"slurmctld", "catatonit", "iptables", "bindfs"} <= set(command[1].split())
