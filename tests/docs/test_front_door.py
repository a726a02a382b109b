"""What a stranger finds on GitHub: workflows, templates, contacts, and the version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import slurm

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What a step does besides make: it prepares the machine.
PREPARES = ("apt-get ", "git config ")


def _commands(workflow: Path) -> list[tuple[str, str]]:
    """Each job of a workflow with one of its commands, its matrix filled in."""
    found = []
    for name, job in yaml.safe_load(workflow.read_text())["jobs"].items():
        tiers = job.get("strategy", {}).get("matrix", {}).get("tier", [""])
        steps = [step["run"] for step in job["steps"] if "run" in step]
        found += [(name, run.replace("$TIER", tier)) for run in steps for tier in tiers]
    return found


def _targets(command: str) -> set[str]:
    words = command.replace('"', "").split()[1:]
    return {word.removeprefix("full-") for word in words if "=" not in word}


def test_github_can_read_its_files() -> None:
    done = subprocess.run(
        [ROOT / "hack" / "lint-workflows"], capture_output=True, text=True, timeout=170
    )
    if done.returncode == 3 and not shutil.which("go"):
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_workflow_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    shutil.copytree(ROOT / "hack", tmp_path / "hack")
    shutil.copy(ROOT / "CITATION.cff", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    checker = Path(sys.executable).with_name("check-jsonschema")
    (tmp_path / ".venv" / "bin" / checker.name).symlink_to(checker)
    broken = tmp_path / ".github" / "workflows" / "check.yml"
    broken.write_text(broken.read_text().replace("runs-on:", "run-on:", 1))
    done = subprocess.run(
        [tmp_path / "hack" / "lint-workflows"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "run-on" in done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_make_and_nothing_else(workflow: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    for job, command in _commands(workflow):
        if not command.startswith(PREPARES):
            assert command.startswith("make "), (workflow.name, job, command)
            assert _targets(command) <= known, (workflow.name, job, command)


def test_every_tier_runs_every_night() -> None:
    tiers = set(re.findall(r"^(test-[a-z]+):", MAKEFILE, re.MULTILINE)) - {"test-full"}
    assert len(tiers) > 5
    nightly = next(path for path in WORKFLOWS if path.stem == "nightly")
    run = {target for _, command in _commands(nightly) for target in _targets(command)}
    assert tiers - run == set()


def test_the_pythons_of_the_workflow_are_those_of_the_package() -> None:
    check = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text())
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert check["jobs"]["python"]["strategy"]["matrix"]["python"] == stated
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_contributing_lists_every_placeholder_and_where_it_stands() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([A-Z-]+)` \| .* \| (`.*`) \|$", page, re.MULTILINE)
    listed = {word: set(re.findall(r"`([^`]+)`", files)) for word, files in rows}
    tracked = subprocess.run(
        ["git", "ls-files", "*.md", "*.yml", "*.toml", "*.cff"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    seen: dict[str, set[str]] = {}
    for name in tracked:
        if name == "CONTRIBUTING.md" or name.startswith("docs/") or not (ROOT / name).exists():
            continue
        for word in re.findall(r"(?<=/)OWNER(?=/)|\b[A-Z]+-CONTACT\b", (ROOT / name).read_text()):
            seen.setdefault(word, set()).add(name)
    assert listed == seen


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert f"## {slurm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "slurm-bridge" / "Chart.yaml").read_text())
    assert chart["appVersion"] == slurm.__version__


def test_the_newest_changes_stand_on_top_and_in_groups() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (\d+)\.(\d+)\.(\d+)", text, re.MULTILINE)
    numbers = [tuple(map(int, version)) for version in versions]
    assert numbers == sorted(numbers, reverse=True)
    groups = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert groups
    assert set(groups) <= {"Added", "Changed", "Fixed", "Removed", "Deprecated", "Security"}
    for section in text.split("\n## ")[1:]:
        inside = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert len(inside) == len(set(inside)), "a group stands twice: two branches added it"
