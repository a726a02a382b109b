"""Ctrl-C, and other things that end a thread's work half way, at the worst moment."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import BaseCallback, Cluster, task, watcher
from slurm.callbacks import flush
from slurm.callbacks.contexts import CompletedContext, RunBeginContext
from slurm.job import Job
from waiting import until


@pytest.fixture(autouse=True)
def _hears_ctrl_c() -> Iterator[None]:
    """What a shell starts in the background does not hear it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@task(mem="50M", time="5min")
def add(a: int, b: int) -> int:
    return a + b


def test_ctrl_c_while_the_end_of_a_job_is_told_loses_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`done()` looks at the run directory: what it found there is told whatever comes between."""
    assert add(1, 1).result(60) == 2
    monkeypatch.setattr(watcher, "FASTEST", 20.0)  # who asks is first to find out
    monkeypatch.setattr(watcher, "SLOWEST", 20.0)
    told: list[str] = []
    settle = Job.settle

    def interrupted(job: Job[Any], *words: Any) -> None:
        if not told:
            told.append(threading.current_thread().name)
            os.kill(os.getpid(), signal.SIGINT)
        settle(job, *words)

    job = add(2, 3)
    monkeypatch.setattr(Job, "settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        until("the job is over", job.done)
        until("the signal came", lambda: False, seconds=5)
    assert told != ["slurm-watcher"]
    assert job.result(20) == 5


@pytest.mark.parametrize("nth", [1, 2])
def test_a_watcher_whose_thread_did_not_start_gets_one_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    start, count = threading.Thread.start, [0]

    def starts(thread: threading.Thread) -> None:
        if thread.name == "slurm-watcher":
            count[0] += 1
            if count[0] == nth:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(watcher, "_watchers", {})
    monkeypatch.setattr(threading.Thread, "start", starts)
    with Cluster("embedded", job_base_dir=tmp_path / "jobs") as cluster:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            add(1, 1).result(60)
        assert add(2, 2).result(60) == 4
        threads = cluster._watcher._threads.values()
        assert [thread.is_alive() for thread in threads] == [True, True]


class Raises(BaseCallback):
    """Its hooks raise what no `except Exception` catches."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_completed(self, ctx: CompletedContext) -> None:
        self.heard.append(len(self.heard))
        raise [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError][len(self.heard) % 3]

    def on_run_begin(self, ctx: RunBeginContext) -> None:
        raise asyncio.CancelledError


def test_a_hook_that_raises_anything_hears_the_next_event_and_breaks_no_job(tmp_path: Path) -> None:
    callback = Raises()
    with Cluster("embedded", job_base_dir=tmp_path / "jobs", callbacks=[callback]):
        assert [add(n, n).result(60) for n in range(4)] == [0, 2, 4, 6]
    assert flush(30)
    assert callback.heard == [0, 1, 2, 3]


def test_a_program_whose_directory_was_deleted_submits(tmp_path: Path) -> None:
    """As at a prompt, where the working directory is on the import path as ""."""
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
os.rmdir(os.getcwd())
from slurm import Cluster
import test_interrupted
with Cluster("embedded", job_base_dir={str(tmp_path / "jobs")!r}):
    print(test_interrupted.add(20, 22).result(60))
"""
    gone = tmp_path / "gone"
    gone.mkdir()
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "42\n", done.stderr
