"""Every file of examples/ runs as it is on the embedded scheduler and prints what it promises."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from promises import EXAMPLES, PROMISES, run_example


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_an_example_keeps_its_promise_on_the_embedded_scheduler(
    name: str, newcomer: dict[str, str], tmp_path: Path
) -> None:
    run_example(name, "embedded", newcomer, tmp_path)


def test_make_demo_shows_tasks_and_a_failing_jobs_error(
    newcomer: dict[str, str], tmp_path: Path
) -> None:
    printed = run_example("demo", None, newcomer, tmp_path)
    assert "SLURM-E301 JobFailed: crash" in printed
    assert "fix:" in printed


def test_every_example_is_run_short_and_says_what_it_is_for() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert {path.stem for path in files} == {*PROMISES, "demo"}
    for path in files:
        lines = path.read_text().splitlines()
        assert lines[0].startswith('"""')
        assert lines[0].endswith('."""')
        assert len(lines) < 60 or path.stem == "demo", f"{path.name} has {len(lines)} lines"


def test_a_failing_example_is_noticed(newcomer: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, subprocess.SubprocessError)):
        run_example("first_tasks", "embeded", newcomer, tmp_path)
