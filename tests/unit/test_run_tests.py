"""hack/run-tests: one hang does not eat a tier, and a failure has its second run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Each starts pytest twice, some with workers.
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "hack" / "run-tests"
GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): assert 0\n"
# Fails the first time that it is run.
FLAKE = """
from pathlib import Path
def test_flake():
    seen = Path(__file__).with_name("seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""
HANG = "import time\ndef test_hang(): time.sleep(60)\n"
HANG_ONCE = """
import time
from pathlib import Path
def test_hang():
    seen = Path(__file__).with_name("hung")
    if not seen.exists():
        seen.touch()
        time.sleep(60)
"""
SLOW = "import time\ndef test_slow(): time.sleep(3)\n"


def run_tests(folder: Path, *words: str, **files: str) -> tuple[int, str]:
    """The exit code of a tier with these files of tests, and what was printed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "-q", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
    )
    return done.returncode, done.stdout


def unsteady(folder: Path) -> list[str]:
    file = folder / "tests" / "unsteady.txt"
    return [line.split()[-1] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_test_that_passes_the_second_time_is_named_and_no_failure(
    workers: str, tmp_path: Path
) -> None:
    code, said = run_tests(tmp_path, workers, a=GOOD, b=FLAKE)
    assert code == 0, said
    assert "UNSTEADY: 1 failed among other tests" in said
    assert unsteady(tmp_path) == ["test_b.py::test_flake"]


def test_a_test_that_fails_twice_is_a_failure_and_the_flake_is_named_all_the_same(
    tmp_path: Path,
) -> None:
    code, said = run_tests(tmp_path, a=BAD, b=FLAKE)
    assert code == 1, said
    assert unsteady(tmp_path) == ["test_b.py::test_flake"]


def test_more_than_three_failures_are_not_run_again(tmp_path: Path) -> None:
    code, said = run_tests(tmp_path, **{f"x{n}": BAD for n in range(4)})
    assert code == 1
    assert "once more" not in said and unsteady(tmp_path) == []


def test_a_tier_without_failures_is_run_once(tmp_path: Path) -> None:
    code, said = run_tests(tmp_path, a=GOOD)
    assert (code, said.count("1 passed"), unsteady(tmp_path)) == (0, 1, [])


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_hang_ends_by_its_own_limit_and_the_others_are_run(workers: str, tmp_path: Path) -> None:
    files = {"a": HANG_ONCE, "b": GOOD, "c": FLAKE}
    code, said = run_tests(tmp_path, workers, "--session-timeout=120", "--timeout=5", **files)
    assert code == 0, said
    assert unsteady(tmp_path) == ["test_a.py::test_hang", "test_c.py::test_flake"]
    assert "STOPPED" not in said


def test_a_hang_that_stays_is_a_failure_after_a_quarter_of_the_tiers_time(tmp_path: Path) -> None:
    code, said = run_tests(tmp_path, "--session-timeout=8", a=HANG, b=GOOD)
    assert code == 1, said
    assert said.count("Timeout (>2.0s)") >= 2 and unsteady(tmp_path) == []


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_tier_whose_time_is_over_fails_and_still_runs_its_failure_again(
    workers: str, tmp_path: Path
) -> None:
    slow = {f"slow{n}": SLOW for n in range(8)}
    words = (workers, "--session-timeout=4", "--timeout=60")
    code, said = run_tests(tmp_path, *words, a=FLAKE, **slow)
    assert code == 1, said
    assert "STOPPED: the tier took more than its 4 s" in said
    assert unsteady(tmp_path) == ["test_a.py::test_flake"]


def test_a_file_that_cannot_be_collected_is_a_failure(tmp_path: Path) -> None:
    code, said = run_tests(tmp_path, a=GOOD, b="import no_such_module\n")
    assert code != 0, said


def test_no_tests_at_all_is_what_pytest_says_of_it(tmp_path: Path) -> None:
    code, _ = run_tests(tmp_path, a="")
    assert code == 5
