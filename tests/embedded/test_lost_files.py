"""What was stored on the cluster and is gone is brought back, also in a live session."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, rundir, task, workflow
from slurm.api import whole
from slurm.packaging.sdk import sdk_hash
from waiting import until

sys.path.insert(0, str(Path(__file__).parents[1]))


@task
def double(n: int) -> int:
    return 2 * n


@pytest.fixture(autouse=True)
def _looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "PAUSE", 0.0)
    monkeypatch.setattr(whole, "SHARE", 0)


@pytest.mark.parametrize("name", ["slurm/runner/run.py", "slurm/runner/__main__.py"])
def test_a_file_of_the_sdk_that_was_cleaned_away_is_brought_back(
    cluster: Cluster, name: str
) -> None:
    assert double(1).result(60) == 2
    file = Path(cluster.base, rundir.BASE_SDK, sdk_hash(), name)
    file.unlink()
    # In this session, and in one that finds it so.
    assert double(2).result(60) == 4
    file.unlink()
    with Cluster("embedded", job_base_dir=cluster.base):
        assert double(3).result(60) == 6
    assert file.is_file()


def test_a_file_of_the_sdk_that_was_cut_short_is_brought_back(cluster: Cluster) -> None:
    assert double(1).result(60) == 2
    file = Path(cluster.base, rundir.BASE_SDK, sdk_hash(), "slurm/rundir/records.py")
    file.write_text("")
    assert double(2).result(60) == 4


def test_a_base_directory_that_was_deleted_is_made_again(cluster: Cluster) -> None:
    assert double(1).result(60) == 2
    shutil.rmtree(cluster.base)
    assert double(2).result(60) == 4
    assert double.map([3, 4]).results(60) == [6, 8]
    shutil.rmtree(cluster.base)
    assert double.map([3, 4], pack=2).results(60) == [6, 8]
    shutil.rmtree(cluster.base)
    with cluster.executor(1) as pool:
        assert pool.submit(double, 4).result(60) == 8


def test_a_snapshot_that_has_lost_a_file_is_sent_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "lost_helper.py").write_text("def f():\n    return 5\n")
    monkeypatch.syspath_prepend(str(folder))
    import lost_helper  # type: ignore[import-not-found]

    job = cluster.submit(lost_helper.f, packaging="source")()
    assert job.result(60) == 5
    found = list(Path(cluster.base, rundir.BASE_SNAPSHOTS).glob("*/lost_helper.py"))
    found[0].parent.chmod(0o700)
    found[0].unlink()
    assert cluster.submit(lost_helper.f, packaging="source")().result(60) == 5


def test_looking_costs_little(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    assert double(1).result(60) == 2
    path = str(Path(cluster.base, rundir.BASE_SDK, sdk_hash()))
    begun = time.process_time()
    for _ in range(20):
        assert whole.is_whole(path)
    assert (time.process_time() - begun) / 20 < 0.01
    monkeypatch.setattr(whole, "PAUSE", 10.0)
    assert whole.is_whole(path)
    begun = time.process_time()
    for _ in range(20):
        assert whole.is_whole(path)
    assert (time.process_time() - begun) / 20 < 0.001


@pytest.mark.parametrize("kind", ["retry", "workflow", "array"])
def test_a_job_whose_directory_is_gone_is_cancelled_all_the_same(
    kind: str, cluster: Cluster
) -> None:
    made: Any = {
        "retry": lambda: task(double.unwrapped, retry=1, hold=True)(1),
        "workflow": lambda: workflow(double.unwrapped, hold=True)(1),
        "array": lambda: task(double.unwrapped, retry=1, hold=True).map([1, 3]),
    }[kind]()
    shutil.rmtree(Path(cluster.base) / made.run)
    made.cancel()
    queue = cluster.backend.queue
    until("the queue is empty of it", lambda: not [r for r in queue() if made.run in r.work_dir])
