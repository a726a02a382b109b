"""What watching costs: many jobs in flight, many that die, and one that falls silent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, errors, pace, silence, task, watcher
from waiting import age, holds

SOON = 60
COUNT = 1000


def eventually(condition: Callable[[], Any], timeout: float = SOON) -> Any:
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


@pytest.mark.timeout(300)
def test_a_thousand_jobs_in_flight_cost_two_threads_and_two_questions_a_minute(
    tmp_path: Path,
) -> None:
    def never() -> int:
        return 1

    cluster = Cluster(job_base_dir=tmp_path / "base", hold=True, job_name="many")
    one = cluster.submit(task(never))()
    scheduler: Any = cluster.backend.agent.scheduler  # type: ignore[attr-defined]
    threads = threading.active_count()
    with ThreadPoolExecutor(4) as pool:
        jobs = [one, *pool.map(lambda _: cluster.submit(task(never))(), range(COUNT - 1))]
    try:
        assert len({job.id for job in jobs}) == COUNT
        eventually(lambda: threading.active_count() <= threads)
        # The questions that follow a submission are over after some seconds.
        age(time.time(), pace.FIRST_POLL + 2)
        calls, polls = scheduler.calls, cluster._watcher.polls
        holds("few questions", lambda: scheduler.calls - calls <= 1, pace.POLL / 3)
        assert cluster._watcher.polls - polls <= 1
        assert threading.active_count() <= threads
        assert cluster._watcher.open_jobs == COUNT
    finally:
        subprocess.run(["scancel", "--name=many"], check=True, timeout=SOON)
    calls = scheduler.calls
    jobs[0].cancel()
    for job in jobs:
        assert isinstance(_error(job), errors.JobCancelled)
    assert scheduler.calls - calls < 20
    assert cluster._watcher.open_jobs == 0


def _error(job: Any) -> BaseException:
    with pytest.raises(errors.SlurmError) as caught:
        job.result(SOON)
    return caught.value


def test_many_deaths_without_a_word_are_asked_about_together(tmp_path: Path) -> None:
    def die() -> None:
        os._exit(3)

    cluster = Cluster(job_base_dir=tmp_path / "base")
    jobs = [cluster.submit(task(die))() for _ in range(30)]
    assert {type(_error(job)) for job in jobs} == {errors.JobFailed}
    assert cluster._watcher.polls <= 15


def test_a_running_job_whose_node_falls_silent_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(silence, "SILENT", 3.0)
    monkeypatch.setattr(watcher, "SWEEP", 1.0)
    for name in ("FIRST_POLL", "POLL"):
        monkeypatch.setattr(pace, name, 1.0)
    go_on = tmp_path / "go on"

    def wait(path: str) -> str:
        while not os.path.exists(path):
            time.sleep(0.05)
        return "awake"

    with caplog.at_level(logging.WARNING, logger="slurm"):
        job = Cluster(job_base_dir=tmp_path / "base").submit(task(wait))(str(go_on))
        pid = int(eventually(lambda: _events(job.path).partition(" pid=")[2]).split()[0])
        # A node that hangs: for the scheduler the job runs on, but nothing is written any more.
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: job.reason.startswith("silent since"))
        assert job.state == "RUNNING"
        os.kill(pid, signal.SIGCONT)
    assert [r for r in caplog.records if f"job {job.id}" in r.getMessage()]
    go_on.touch()
    assert job.result(SOON) == "awake"
    assert not job.reason.startswith("silent since")


def _events(run: str) -> str:
    return "".join(p.read_text() for p in Path(run, "events").glob("*.txt"))
