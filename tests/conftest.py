"""What all tiers need: a clean environment, and a real Slurm for whoever asks for it."""

from __future__ import annotations

import os

# Before the first import of the SDK, and for the processes that tests start.
os.environ.setdefault("SLURM_SDK_CHECK_LOCKS", "1")

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import attacks

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

# On a busy machine an example may take any time, which says nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

_FROM_OUTSIDE = ("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_")
_ALWAYS = {"SLURM_SDK_CHECK_LOCKS"}
_CLUSTER_FIXTURES = {"slurm_cluster", "fresh_slurm_cluster", "preempting_cluster"}

# Waits for the end of the test session, whatever way it ends (SIGKILL too), then cleans up.
_GUARD = """
import shutil, sys
sys.stdin.read()
from slurm.errors import StackError
from slurm.stack import down
try:
    down(sys.argv[1])
except StackError:
    pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also the tests marked full")
    parser.addoption(
        "--attacks", type=int, metavar="N", help="a line for each attack, numbered from N"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: more cases of a promise; only in make test-full")
    config.addinivalue_line(
        "markers", "attack(what): a way in that was tried, and is closed; make attack"
    )
    if config.getoption("--attacks") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(attacks.Lines(config, config.getoption("--attacks")))
    config.addinivalue_line("markers", "packages: needs programs of packages; not in make check")
    config.addinivalue_line("markers", "slow: takes many seconds; not in make check")
    config.addinivalue_line("markers", "campaign: runs of many minutes; make faults, make soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` keeps one case of each promise; the others run where --full asks for them.

    A campaign runs only where it is asked for by name.
    """
    attacks.note(items)
    if "campaign" not in str(config.getoption("markexpr")):
        skip = pytest.mark.skip(reason="a long campaign: make faults, make soak")
        for item in items:
            if item.get_closest_marker("campaign"):
                item.add_marker(skip)
    if config.getoption("--full"):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=full)


@pytest.fixture(autouse=True)
def _clean_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the developer's own Slurm, or of another test's, changes what a test sees."""
    on_slurm = not _CLUSTER_FIXTURES.isdisjoint(request.fixturenames)
    for key in list(os.environ):
        kept = _ALWAYS | {"SLURM_CONF"} if on_slurm else _ALWAYS
        if key.startswith(_FROM_OUTSIDE) and key not in kept:
            monkeypatch.delenv(key)


@pytest.fixture(autouse=True)
def _locks_in_order() -> Iterator[None]:
    """A wrong order of locks fails the test, also where a thread goes on whatever happens."""
    from slurm import locks

    locks.wrong.clear()
    yield
    assert not locks.wrong


@contextmanager
def _cluster(**options: object) -> Iterator[RunningCluster]:
    """A cluster in a short temporary directory: the path of a unix socket holds 107 bytes."""
    from slurm.stack import up

    directory = Path(tempfile.mkdtemp(prefix="slurm-test-", dir="/tmp"))
    guard = subprocess.Popen(
        [sys.executable, "-c", _GUARD, str(directory)],
        stdin=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if not k.startswith(_FROM_OUTSIDE)},
        start_new_session=True,
    )
    try:
        cluster = up(directory, **options)  # type: ignore[arg-type]
        try:
            yield cluster
        finally:
            cluster.down()
    finally:
        guard.kill()
        guard.communicate()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def own_slurm_cluster() -> Callable[..., AbstractContextManager[RunningCluster]]:
    """Makes a cluster for a module of tests; takes the options of `slurm.stack.up`.

    Who asks for it sets SLURM_CONF, and takes it back.
    """
    return _cluster


@pytest.fixture(scope="session")
def slurm_files() -> dict[str, str]:
    """Further configuration files of the session's Slurm; a tier that needs some overrides this."""
    return {}


@pytest.fixture(scope="session")
def slurm_cluster(slurm_files: dict[str, str]) -> Iterator[RunningCluster]:
    """The session's real Slurm: four nodes with accounting; SLURM_CONF leads to it.

    Tests share it: leave nodes and daemons as they were. To break something, take a fresh one.
    """
    with _cluster(nodes=4, files=slurm_files) as cluster, pytest.MonkeyPatch.context() as patch:
        for key, value in cluster.env.items():
            patch.setenv(key, value)
        yield cluster


@pytest.fixture
def fresh_slurm_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., RunningCluster]]:
    """Makes clusters for one test alone, to be broken; takes the options of `slurm.stack.up`.

    SLURM_CONF leads to the cluster that was made last.
    """
    from contextlib import ExitStack

    with ExitStack() as running:

        def make(**options: object) -> RunningCluster:
            cluster = running.enter_context(_cluster(**options))
            for key, value in cluster.env.items():
                monkeypatch.setenv(key, value)
            return cluster

        yield make
