"""Stands in for tests/conftest.py on a login node: the tests run on the cluster that is there.

With MATRIX_REST=URL the client speaks to slurmrestd instead of running Slurm's commands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

_FROM_OUTSIDE = ("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_")
# How a node of the images finds its cluster.
_OF_THE_IMAGE = ("SLURM_SACK_KEY", "SLURM_CONF")
_OWN = "needs a cluster of its own"
# What works only where all nodes are this machine.
_NOT_HERE = {
    "test_a_runner_killed_from_outside_is_reported": "the process is on another machine",
    "test_a_batch_shell_killed_from_outside_is_reported": "the process is on another machine",
    "test_a_running_job_whose_node_falls_silent_is_reported": "the process is on another machine",
}
_NOT_OVER_REST = {
    "test_a_command_and_a_port_reach_into_a_job_through_a_step_of_it": "steps need srun",
    "test_the_doctor_proves_with_a_job_what_nodes_see": "the doctor counts Slurm's commands",
}
# What slurmrestd has no word for before 26.05; the refusal has a test in tests/unit.
_NOT_OVER_OLD_REST = {
    "test_a_requeued_pack_runs_only_what_has_no_outcome": "slurmrestd 24.11 cannot requeue",
}


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks of the tests."""
    config.addinivalue_line("markers", "full: more cases of a promise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what cannot work here."""
    reasons = dict(_NOT_HERE)
    if "MATRIX_REST" in os.environ:
        reasons |= _NOT_OVER_REST
        reasons |= _NOT_OVER_OLD_REST if os.environ["MATRIX_RELEASE"] < "26.05" else {}
    for item in items:
        if item.name in reasons:
            item.add_marker(pytest.mark.skip(reason=reasons[item.name]))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in list(os.environ):
        if key.startswith(_FROM_OUTSIDE) and key not in _OF_THE_IMAGE:
            monkeypatch.delenv(key)


@pytest.fixture(autouse=True, scope="session")
def _over_rest() -> Iterator[None]:
    """`Cluster()` is the cluster behind slurmrestd, where that is asked for."""
    url = os.environ.get("MATRIX_REST")
    if url is None:
        yield
        return
    import slurm.target
    from slurm.api.backend import Backend
    from slurm.api.connect import LocalBackend, RestSettings, connect
    from slurm.api.rest_scheduler import RestScheduler

    how = RestSettings(url, os.environ["MATRIX_TOKEN"])

    def by_rest(kind: str, base: str, *more: object) -> Backend:
        if kind != "local":
            return connect(kind, base, *more)  # type: ignore[arg-type]
        return LocalBackend(RestScheduler(*how), base, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm.target, "connect", by_rest)
        yield


@pytest.fixture(scope="session")
def slurm_cluster() -> SimpleNamespace:
    """What tests may ask of the session's cluster."""
    return SimpleNamespace(
        nodes=[f"n{n}" for n in range(1, 5)],
        env={},
        enforces_memory=os.environ.get("MATRIX_MEMORY") == "yes",
    )


@pytest.fixture
def fresh_slurm_cluster() -> None:
    """None of these here."""
    pytest.skip(_OWN)


@pytest.fixture(scope="session")
def own_slurm_cluster() -> None:
    """None of these here."""
    pytest.skip(_OWN)
