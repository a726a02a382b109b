"""Every test in this folder finds the session's real Slurm under SLURM_CONF."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slurm.stack import RunningCluster


@pytest.fixture(autouse=True)
def _on_slurm(slurm_cluster: RunningCluster) -> None:
    """Asking for the cluster is what this fixture is for."""
