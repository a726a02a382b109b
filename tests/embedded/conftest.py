"""Every test in this folder has an embedded scheduler of the test session's own."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm import Cluster


@pytest.fixture(scope="session")
def scheduler_dir() -> Iterator[Path]:
    """The directory of the scheduler of all tests here."""
    yield from _directory()


def _directory() -> Iterator[Path]:
    """A private directory with a short name: the path of a unix socket holds 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="sdk-", dir="/tmp"))
    yield directory
    for pid_file in directory.glob("**/*.pid"):
        try:
            os.kill(int(pid_file.read_text()), signal.SIGTERM)
        except (OSError, ValueError):
            continue
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_scheduler(
    _clean_environment: None, scheduler_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(scheduler_dir))
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_IDLE_S", "30")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_KILL_WAIT", "2")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_CPUS", "8")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_MEMORY_MB", "8000")


@pytest.fixture
def other_scheduler() -> Iterator[Path]:
    """The directory of another scheduler, which ends with the test."""
    yield from _directory()


@pytest.fixture
def young_scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The scheduler of the test's cluster counts its jobs from one; asked for before `cluster`."""
    for path in _directory():
        monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(path))
        yield path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The active cluster: the embedded scheduler with a base directory of the test's own."""
    with Cluster("embedded", job_base_dir=tmp_path / "jobs") as cluster:
        yield cluster
