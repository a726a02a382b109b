"""A node that writes nothing any more is told apart from the others of a run."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from slurm.api.slurm_commands import JobStatus
from slurm.evidence import Evidence
from slurm.rundir import decode_events
from slurm.silence import SILENT, Beats
from slurm.watched import Notes

LATE = 1000.0 + SILENT + 1


def job(number: int, host: str, state: str = "RUNNING") -> Any:
    seen = Evidence()
    text = f"begin job=7 index={number} rank=- attempt=0 host={host} node={host} time=1\n"
    for event in decode_events(text.encode() if host else b"")[0]:
        seen.add(event)
    seen.status = JobStatus("7", state, "", host, None, None, None, None, None, 0, "", "f")
    about = {"id": f"7_{number}", "name": "f", "node": host, "evidence": seen}
    return SimpleNamespace(**about, notes=Notes(heard_at=1000.0))


def test_one_silent_node_of_two_is_noticed_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    beats, jobs = Beats(), [job(0, "n1"), job(1, "n2"), job(2, "n2")]
    beats.take([("n1-0a1b2c3d", "1"), ("n2-0a1b2c3d", "1")], 1000.0)
    beats.take([("n1-0a1b2c3d", "2"), ("n2-0a1b2c3d", "1")], LATE - 1)
    with caplog.at_level(logging.WARNING, logger="slurm"):
        beats.notice(jobs, LATE)
        beats.notice(jobs, LATE + 1)
    assert [one.notes.silent_since is None for one in jobs] == [True, False, False]
    (warning,) = caplog.messages
    assert "7_1" in warning and "1 more" in warning and "n2" in warning

    beats.take([("n2-0a1b2c3d", "2")], LATE + 2)
    beats.notice(jobs, LATE + 3)
    assert jobs[1].notes.silent_since is None


def test_jobs_that_wait_do_not_hide_one_that_is_silent() -> None:
    waiting, silent = job(0, "", "PENDING"), job(1, "n2")
    Beats().notice([waiting, silent], LATE)
    assert waiting.notes.silent_since is None and silent.notes.silent_since is not None


def test_a_job_that_runs_for_slurm_and_never_began_is_silent_too() -> None:
    lost = job(0, "")
    Beats().notice([lost], 1000.0 + SILENT - 1)
    assert lost.notes.silent_since is None
    Beats().notice([lost], LATE)
    assert lost.notes.silent_since is not None
