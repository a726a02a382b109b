"""A real Slurm that tests may break; after each test it is mended for the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import BreakableSlurm

from slurm.stack import up

# Waits for the end of the test session, whatever way it ends, then cleans up.
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

# A prolog that fails on the nodes that a file names.
_PROLOG = """#!/bin/bash
[ -e "{flag}-$SLURMD_NODENAME" ] && exit 1
exit 0
"""


@pytest.fixture(scope="session")
def broken_before() -> Iterator[BreakableSlurm]:
    """The session's cluster for breaking."""
    directory = Path(tempfile.mkdtemp(prefix="slurm-faults-", dir="/tmp"))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    guard = subprocess.Popen(
        [sys.executable, "-c", _GUARD, str(directory)],
        stdin=subprocess.PIPE,
        env=clean,
        start_new_session=True,
    )
    flag = Path(f"{directory}-prolog-fails")
    try:
        cluster = up(
            directory,
            nodes=3,
            files={"prolog": _PROLOG.format(flag=flag)},
            extra_conf=[
                "EnforcePartLimits=ALL",
                f"Prolog={directory}/etc/prolog",
                "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
                "PartitionName=short Nodes=ALL MaxTime=10 State=UP",
            ],
        )
        try:
            yield BreakableSlurm(cluster, flag)
        finally:
            cluster.down()
    finally:
        guard.kill()
        guard.communicate()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def slurm(
    broken_before: BreakableSlurm, _clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BreakableSlurm]:
    """The cluster for breaking, whole at the start of each test; SLURM_CONF leads to it."""
    for key, value in broken_before.cluster.env.items():
        monkeypatch.setenv(key, value)
    yield broken_before
    broken_before.mend()
