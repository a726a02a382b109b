"""The page about ssh, run as one program through a real sshd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from server import Sshd

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pages import ROOT, blocks_of

LINE = 'Cluster(hostname="login.hpc.example.com"'


def test_the_page_about_ssh_runs(slurm_sshd: Sshd, tmp_path: Path) -> None:
    blocks = [block.text for block in blocks_of(ROOT / "docs" / "ssh.md") if block.kind == "python"]
    reach = {**slurm_sshd.arguments(), "job_base_dir": str(tmp_path / "jobs")}
    words = ", ".join(f"{key}={value!r}" for key, value in reach.items())
    text = "\n".join(blocks)
    assert LINE in text
    (tmp_path / "page.py").write_text(text.replace(LINE, f"Cluster({words}"))
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_CONF")}
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[0, 1, 4, 9]",
        "[[0], [0, 1], [0, 1, 4]]",
        "3",
        "one two three",
    ]
