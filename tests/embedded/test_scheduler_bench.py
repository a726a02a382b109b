"""The fixture of the scheduler's tests: a scheduler of its own for each test, real processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.api.embedded import EmbeddedScheduler
from slurm.api.slurm_commands import JobStatus

PATIENCE_S = 60.0


class Bench:
    """A scheduler in a directory of its own, and a work directory for its jobs."""

    def __init__(self, directory: Path) -> None:
        self.private = directory / "s"
        self.work = directory / "work"
        self.work.mkdir()
        self.scheduler = EmbeddedScheduler()

    def submit(self, body: str, *flags: str, first: str = "#!/bin/bash", **env: str) -> str:
        script = self.work / f"script-{time.monotonic_ns()}.sh"
        lines = [first, *(f"#SBATCH {flag}" for flag in flags), body, ""]
        script.write_text("\n".join(lines))
        return self.scheduler.submit(str(script), {**os.environ, **env}, str(self.work))

    def row(self, job_id: str) -> JobStatus:
        (row,) = self.scheduler.status([job_id])
        return row

    def state(self, job_id: str) -> str:
        return self.row(job_id).state

    def until(self, reached: Callable[[], object], what: str = "") -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, f"not reached: {what}; {self.scheduler.queue()}"
            time.sleep(0.01)

    def ended(self, *job_ids: str) -> list[JobStatus]:
        self.until(lambda: all(row.end for row in self.scheduler.status(job_ids)), "ended")
        return self.scheduler.status(job_ids)

    def has(self, name: str) -> bool:
        path = self.work / name
        return path.exists() and path.read_text() != ""

    def await_file(self, name: str) -> str:
        self.until(lambda: self.has(name), f"{name} written")
        return (self.work / name).read_text()

    def daemon(self) -> int:
        return int((self.private / "scheduler.pid").read_text())

    def kill_daemon(self) -> None:
        pid = self.daemon()
        os.kill(pid, 9)
        self.until(lambda: not alive(pid), "scheduler dead")

    def stop(self) -> None:
        pid = self.daemon()
        self.scheduler.stop()
        self.until(lambda: not alive(pid), "scheduler gone")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    directory = Path(tempfile.mkdtemp(prefix="slurm-emb-", dir="/tmp"))
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(directory / "s"))
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_CPUS", "4")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_MEMORY_MB", "4000")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_GPUS", "4")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_KILL_WAIT", "1")
    bench = Bench(directory)
    try:
        yield bench
    finally:
        bench.scheduler.cancel([row.job_id for row in bench.scheduler.queue()])
        bench.until(lambda: not bench.scheduler.queue(), "all gone")
        bench.stop()
        shutil.rmtree(directory, ignore_errors=True)
