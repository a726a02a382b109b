"""The parts of a long map that go out later, by a scheduler that is only stood in for."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.api import one_job
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.runner import advance

SCRIPT = b"#!/bin/sh\n"


class Slow:
    """A scheduler whose answer takes a moment; it knows what it was given, and may refuse."""

    kind = "none"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.given: list[str] = []
        self.cancelled: list[str] = []
        self.errors: list[AgentError] = []
        self._lock = threading.Lock()

    def submit(self, script: str, env: dict[str, str], cwd: str) -> str:
        time.sleep(self.seconds)
        if self.errors:
            raise self.errors.pop()
        with self._lock:
            self.given.append(Path(script).name)
            return str(10 + len(self.given))

    def status(self, jobs: list[str]) -> list[Any]:
        return []

    def cancel(self, jobs: list[str]) -> None:
        self.cancelled += jobs


def long_map(scheduler: Slow, base: Path, script: bytes = SCRIPT) -> Agent:
    """A map of two parts, of which the first is out."""
    agent = Agent(scheduler, str(base))
    agent.prepare_base()
    files = {rundir.script_name(n): script for n in (0, 1)}
    agent.submit("run", {**files, rundir.NEXT: SCRIPT}, 2, 1, {}, "/", [])
    scheduler.given.clear()
    return agent


def both(act: Any) -> list[Any]:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(act())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_two_who_submit_the_next_part_at_once_submit_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs for a part: one of them runs, and the run may know the other's id."""
    scheduler = Slow()
    agent = long_map(scheduler, tmp_path)
    scheduler.seconds = 1.0
    monkeypatch.setattr(one_job, "PATIENCE", 0.4)  # the answer takes longer: nobody takes over
    told = both(lambda: agent.advance("run"))
    assert scheduler.given == [Path(rundir.script_name(1)).name]
    ours = Path(tmp_path, "run", rundir.id_name(1)).read_text()
    assert [one for one in told if one is not None] in ([ours], [ours, ours])


def test_a_part_whose_submitter_died_is_submitted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_job, "PATIENCE", 0.3)
    scheduler = Slow()
    agent = long_map(scheduler, tmp_path)
    Path(tmp_path, "run", rundir.intent_name(1)).write_text("never heard of again")
    assert agent.advance("run") is not None
    assert scheduler.given == [Path(rundir.script_name(1)).name]


def test_who_asks_often_leaves_no_more_small_jobs(tmp_path: Path) -> None:
    """The small job of a run that waits for another one's ids is followed by one, not by many."""
    scheduler = Slow()
    agent = Agent(scheduler, str(tmp_path))
    agent.prepare_base()
    parts = b'{"parts": [[0, 0, 3], [1, 3, 3]]}'
    about = {rundir.SCRIPT: SCRIPT, rundir.NEXT: SCRIPT, rundir.METADATA: parts}
    files = {**about, rundir.script_name(1): SCRIPT}
    agent.submit("map", files, 2, 1, {}, "/", [])
    token = rundir.ids_token("map", "0-5")
    waiting = f"#!/bin/sh\n#SBATCH --dependency=afterany:{token}\n".encode()
    agent.submit("later", {**about, rundir.SCRIPT: waiting}, 1, 1, {}, "/", [])
    scheduler.given.clear()
    for _ in range(5):  # an open client asks after each poll
        assert agent.advance("later") is None
    assert scheduler.given == []
    assert agent.advance("later", 0) is None  # and this is the small job itself
    assert scheduler.given == [Path(rundir.pump_name(0)).name]


@pytest.mark.parametrize("kind", ["limit", "unreachable", "timeout"])
def test_the_small_job_tries_again_where_the_scheduler_has_no_room_for_a_while(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may be gone: what the small job gives up is never submitted."""
    monkeypatch.setattr(one_job, "PATIENCE", 0.2)
    scheduler = Slow()
    long_map(scheduler, tmp_path)
    scheduler.errors = [AgentError(kind, "no room", []) for _ in "12"]
    monkeypatch.setenv("SLURM_SDK_BASE", str(tmp_path))
    monkeypatch.setattr(advance, "scheduler", lambda: scheduler)
    monkeypatch.setattr(advance, "PAUSE", 0.1)
    assert advance.main(["advance.py", str(tmp_path / "run"), "1"]) == 0
    assert scheduler.given == [Path(rundir.script_name(1)).name]


def test_the_small_job_gives_up_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Slow()
    long_map(scheduler, tmp_path)
    scheduler.errors = [AgentError("refused", "no such partition", [])]
    monkeypatch.setenv("SLURM_SDK_BASE", str(tmp_path))
    monkeypatch.setattr(advance, "scheduler", lambda: scheduler)
    assert advance.main(["advance.py", str(tmp_path / "run"), "1"]) == 1
    assert scheduler.given == []
