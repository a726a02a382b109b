"""A real Slurm that tests may break; after each test it is mended for the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ssh"))

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


# ---- the report of the campaign -----------------------------------------------------------------


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each run, as soon as it is over."""
    for told in _told(report):
        word = "FAILED" if told["wrong"] else "ok"
        outcomes = ", ".join(f"{n} {kind}" for kind, n in told["outcomes"].items()) or "none"
        refused = ", ".join(f"{n} {kind}" for kind, n in told["refused"].items()) or "none"
        print(
            f"\n{word} seed {told['seed']} {told['seconds']} s: {told['plan']}"
            f" | {outcomes}; {told['executions']} executed; refused: {refused};"
            f" {told['open']} open when the client left, {told['missed']} faults without a victim,"
            f" {told['ghosts']} ghosts of Slurm's",
            *(f"  {line}" for line in told["wrong"]),
            sep="\n",
            flush=True,
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Runs, faults and outcomes by kind."""
    reports = [
        report
        for word in ("passed", "failed")
        for report in terminalreporter.stats.get(word, ())
        if isinstance(report, pytest.TestReport)
    ]
    runs = [told for report in reports for told in _told(report)]
    if not runs:
        return
    faults = Counter(hit for told in runs for hit in told["hit"])
    outcomes, refused = Counter[str](), Counter[str]()
    for told in runs:
        outcomes.update(told["outcomes"])
        refused.update(told["refused"])
    seconds = sum(told["seconds"] for told in runs)
    write = terminalreporter.write_line
    terminalreporter.section("campaign")
    write(f"{len(runs)} runs, {sum(bool(t['wrong']) for t in runs)} failed, {seconds:.0f} s in all")
    write(f"{sum(told['executions'] for told in runs)} executions of functions")
    for title, counted in (("faults", faults), ("outcomes", outcomes), ("refused", refused)):
        write(f"{title}: {counted.total()}")
        for kind, count in sorted(counted.items()):
            write(f"  {kind:24}{count:6}")


def _told(report: pytest.TestReport) -> list[dict[str, Any]]:
    if report.when != "call":
        return []
    return [told for name, told in report.user_properties if name == "campaign"]  # type: ignore[misc]
