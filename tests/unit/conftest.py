"""What the unit tests share: bounded property tests and a run directory made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from slurm import rundir

# Other work on the same machine makes single examples slow; that is no finding.
settings.register_profile(
    "unit", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An empty run directory in its base, as the agent makes it."""
    path = tmp_path / "base" / "add-20260101-000000-abcdef"
    (tmp_path / "base" / rundir.BASE_EVENTS).mkdir(parents=True, mode=0o700)
    os.mkdir(path, 0o700)
    for name in rundir.FOLDERS:
        os.mkdir(path / name, 0o700)
    return path
