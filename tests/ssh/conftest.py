"""Every test in this folder goes through a real sshd on loopback; jobs run on the real Slurm."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm import Cluster

sys.path.insert(0, str(Path(__file__).parent))

from server import Sshd

from needed import need

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.stack import RunningCluster


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    need("sshd", "ssh", "ssh-keygen")


@pytest.fixture(autouse=True)
def control_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Control sockets of the test's own; the processes behind them end with it."""
    import subprocess

    folder = Path(tempfile.mkdtemp(prefix="ctl-", dir="/tmp"))
    monkeypatch.setenv("SLURM_SDK_SSH_DIR", str(folder))
    yield folder
    from slurm.api import ssh

    for backend in list(ssh._backends.values()):
        backend.close()
    ssh._backends.clear()
    for socket in folder.iterdir():
        words = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "x"]
        subprocess.run(words, capture_output=True, timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm_sshd(slurm_cluster: RunningCluster) -> Iterator[Sshd]:
    """A login node of the session's Slurm."""
    server = Sshd(env={"SLURM_CONF": os.environ["SLURM_CONF"]})
    yield server
    server.remove()


@pytest.fixture
def make_sshd() -> Iterator[Callable[..., Sshd]]:
    """Login nodes for one test alone."""
    with ExitStack() as stack:

        def make(**options: Any) -> Sshd:
            server = Sshd(**options)
            stack.callback(server.remove)
            return server

        yield make


@pytest.fixture
def cluster(
    slurm_sshd: Sshd, slurm_cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """The active cluster: the session's Slurm behind ssh; this process cannot reach it itself."""
    monkeypatch.delenv("SLURM_CONF")
    with Cluster(job_base_dir=str(tmp_path / "jobs"), **slurm_sshd.arguments()) as cluster:
        yield cluster
