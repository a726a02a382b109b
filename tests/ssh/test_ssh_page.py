"""The page about ssh and the example, each run as one program through a real sshd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from server import Sshd

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pages import ROOT, blocks_of

LINE = 'Cluster(hostname="login.hpc.example.com"'


def _run_with(sshd: Sshd, text: str, line: str, folder: Path, *words: str) -> list[str]:
    """Run a program in which this line reaches the server, and give what it printed."""
    reach = {**sshd.arguments(), "job_base_dir": str(folder / "jobs")}
    arguments = ", ".join(f"{key}={value!r}" for key, value in reach.items())
    assert line in text
    (folder / "page.py").write_text(text.replace(line, f"Cluster({arguments}"))
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_CONF")}
    done = subprocess.run(
        [sys.executable, "page.py", *words],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_page_about_ssh_runs(slurm_sshd: Sshd, tmp_path: Path) -> None:
    blocks = [block.text for block in blocks_of(ROOT / "docs" / "ssh.md") if block.kind == "python"]
    assert _run_with(slurm_sshd, "\n".join(blocks), LINE, tmp_path) == [
        "[0, 1, 4, 9]",
        "[[0], [0, 1], [0, 1, 4]]",
        "3",
        "one two three",
    ]


@pytest.mark.full
def test_the_example_about_ssh_runs(slurm_sshd: Sshd, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "over_ssh.py").read_text()
    printed = _run_with(slurm_sshd, text, "Cluster(hostname=where", tmp_path, "login")
    assert printed == ["counted: 2 times 'the'", "longest word: laptop"]
