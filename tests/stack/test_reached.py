"""How programs reach a cluster in containers: by its name, and through slurmrestd."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Lab

from slurm import Cluster
from slurm.api.rest_scheduler import RestScheduler
from slurm.errors import PythonMismatch
from slurm.stack import life

pytestmark = pytest.mark.timeout(900)

WORK = """\
import sys
from slurm import task

@task(time="5m", mem="100M")
def double(value):
    return value * 2, sys.version_info[:2]
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    lab = make_lab('version = "24.11"\n[rest]\nenabled = true\n')
    yield lab
    life.destroy(lab.directory, lab.said.append)


def test_a_function_of_ones_own_runs_on_the_pythons_of_the_cluster(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("their_work")
    with Cluster.from_stack(lab.name):
        assert work.double(4).result(timeout=120) == (8, (3, 13))
        assert [value for value, _ in work.double.map([1, 2]).results()] == [2, 4]
    del sys.modules["their_work"]


def test_one_that_must_travel_by_value_is_refused_with_both_versions(lab: Lab) -> None:
    def here(value: int) -> int:
        return value

    with (
        Cluster.from_stack(lab.name) as cluster,
        pytest.raises(PythonMismatch, match=r"is 3\.13 .*pickled on Python 3\.") as caught,
    ):
        cluster.submit(here)(4)
    assert 'packaging="source"' in str(caught.value.hint)


def test_slurmrestd_takes_a_job_and_tells_of_it(lab: Lab, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(lab.stack.fleet.must("scontrol", "token", "username=user", "lifespan=600"))
    url = f"http://127.0.0.1:{lab.record.ports['slurmrestd'][1]}"
    rest = RestScheduler(url, str(token))
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --array=0-1\n#SBATCH --mem=20M\nsleep 600\n")
    job = rest.submit(str(script), {"PATH": "/usr/bin:/bin"}, "/home/user")
    end = time.monotonic() + 120
    while [row.state for row in rest.queue()] != ["RUNNING", "RUNNING"]:
        assert time.monotonic() < end, rest.queue()
        time.sleep(0.5)
    assert {row.job_id for row in rest.queue()} == {f"{job}_0", f"{job}_1"}
    rest.cancel([f"{job}_0", f"{job}_1"])
    while rest.queue():
        assert time.monotonic() < end, rest.queue()
        time.sleep(0.5)
    assert {row.state for row in rest.status([])} == {"CANCELLED"}
