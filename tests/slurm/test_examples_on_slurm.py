"""README, the page about local clusters and every example, unchanged, on a real Slurm."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pages import ROOT, blocks_of, run_page
from promises import PROMISES, run_example

if TYPE_CHECKING:
    from slurm.stack import RunningCluster


@pytest.fixture
def newcomer(slurm_cluster: RunningCluster, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has never used the SDK, on a login node."""
    home = tmp_path / "home"
    home.mkdir()
    return {**os.environ, "HOME": str(home)}


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_an_example_keeps_its_promise_on_slurm(
    name: str, newcomer: dict[str, str], tmp_path: Path
) -> None:
    run_example(name, "local", newcomer, tmp_path)


def test_the_readme_runs_on_a_login_node_as_it_stands(
    newcomer: dict[str, str], tmp_path: Path
) -> None:
    run_page(ROOT / "README.md", tmp_path, newcomer, laptop=False)


@pytest.fixture
def cluster_dir() -> Iterator[Path]:
    """A short directory for a cluster of the page's own, taken down whatever happens."""
    from slurm.errors import StackError
    from slurm.stack import down

    directory = Path(tempfile.mkdtemp(prefix="sdk-page-", dir="/tmp"))
    yield directory
    with contextlib.suppress(StackError):  # the page took it down, or it never came up
        down(directory)
    shutil.rmtree(directory, ignore_errors=True)


def test_the_commands_about_a_local_cluster_bring_one_up_and_down(
    newcomer: dict[str, str], cluster_dir: Path, tmp_path: Path
) -> None:
    page = ROOT / "docs" / "local-cluster.md"
    shell = [b.text for b in blocks_of(page) if b.kind == "bash" and not b.excused]
    script = "\n".join(shell).replace("/tmp/demo-cluster", str(cluster_dir))
    assert script.count(str(cluster_dir)) >= 5
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**newcomer, "PATH": f"{Path(sys.executable).parent}:{newcomer['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "is up in" in done.stdout
    assert "\nn1\n" in done.stdout or "\nn2\n" in done.stdout, done.stdout
    assert "is down" in done.stdout
