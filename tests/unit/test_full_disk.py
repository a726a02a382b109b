"""A disk that fills up at any write: the job is accepted and told, or leaves no trace."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.runner import beat

FILES = {
    rundir.SCRIPT: b"#!/bin/bash\n",
    rundir.RETRY: b"{}",
    rundir.GUARD: f"afternotok:{rundir.PREVIOUS} {rundir.TOKEN}".encode(),
}


class Accepts:
    """A scheduler that takes every script, and notes which."""

    kind = "fake"

    def __init__(self) -> None:
        self.scripts: list[str] = []

    def submit(self, script: str, env: dict[str, str], cwd: str) -> str:
        self.scripts.append(os.path.basename(script))
        return "7"

    def status(self, job_ids: list[str]) -> list[Any]:
        return []


@pytest.mark.parametrize("writes", range(12))
def test_a_submission_on_a_disk_that_fills_up_is_a_job_or_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    left, real = [writes], rundir.write_atomically

    def write(*args: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*args, **options)

    monkeypatch.setattr(rundir, "write_atomically", write)
    scheduler = Accepts()
    agent = Agent(scheduler, str(tmp_path))
    try:
        ids = agent.submit("run", dict(FILES), 1, 1, {}, str(tmp_path), [])
    except AgentError as error:
        assert error.kind == "rundir" and "No space left" in error.message
        assert scheduler.scripts == [] and not (tmp_path / "run").exists()
        assert writes < 6
    else:
        assert ids == ["7"] and rundir.SCRIPT in scheduler.scripts


def test_a_node_beats_although_its_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / rundir.BEATS).mkdir()
    one = beat.Beat(str(tmp_path))
    one.beat()
    (path,) = (tmp_path / rundir.BEATS).iterdir()
    before = path.read_text()
    os.utime(path, (4e9, 4e9))
    one.beat()
    assert path.read_text() != before
