"""Submission by the agent, with a scheduler that is only stood in for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import rundir
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError

SOURCE = Path(str(slurm.__file__)).parent.parent


class Refusing:
    """A scheduler that takes nothing, and counts how often it is asked about jobs."""

    kind = "none"

    def __init__(self, kind: str) -> None:
        self.error = AgentError(kind, "no")
        self.asked = 0

    def submit(self, script: str, env: dict[str, str], cwd: str) -> str:
        raise self.error

    def status(self, jobs: list[str]) -> list[Any]:
        self.asked += 1
        return []


@pytest.mark.parametrize(("kind", "asked"), [("refused", 0), ("timeout", 1)])
def test_the_queue_is_searched_for_a_job_only_where_no_answer_came(
    kind: str, asked: int, tmp_path: Path
) -> None:
    scheduler = Refusing(kind)
    agent = Agent(scheduler, str(tmp_path))
    agent.prepare_base()
    with pytest.raises(AgentError, match="no"):
        agent.submit("run", {rundir.SCRIPT: b"#!/bin/sh\n"}, 1, 1, {}, "/", [])
    assert scheduler.asked == asked


def test_a_script_with_any_bytes_is_filled_in_whatever_the_locale(tmp_path: Path) -> None:
    template, script = tmp_path / "next.sh", tmp_path / "0.next.sh"
    template.write_bytes("cd /häuser\r\n# ".encode() + b"\xff\n# @previous@\n")
    program = (
        "import sys\n"
        "from slurm.api import run_files\n"
        "run_files.fill_in(sys.argv[1], {'@previous@': '7'}, sys.argv[2])\n"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(template), str(script)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **plain},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert script.read_bytes() == template.read_bytes().replace(b"@previous@", b"7")
