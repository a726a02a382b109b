"""Pages and examples run as a new user would run them: an empty home, a scheduler of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def scheduler_dir() -> Iterator[Path]:
    """The embedded scheduler's directory; short, because a unix socket's path is limited."""
    from slurm.api.embedded import EmbeddedScheduler

    directory = Path(tempfile.mkdtemp(prefix="sdk-docs-", dir="/tmp"))
    yield directory
    EmbeddedScheduler({"SLURM_SDK_EMBEDDED_DIR": str(directory)}).stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def newcomer(_clean_environment: None, scheduler_dir: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has never used the SDK."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        **os.environ,
        "HOME": str(home),
        "SLURM_SDK_EMBEDDED_DIR": str(scheduler_dir),
        "SLURM_SDK_EMBEDDED_KILL_WAIT": "2",
        # Two ranks and two CPUs are what the examples ask for, also on a smaller machine.
        "SLURM_SDK_EMBEDDED_CPUS": "4",
    }
