"""What a client spends on a job does not grow with the number of jobs: CPU time, generously."""

from __future__ import annotations

import time
from pathlib import Path

from slurm import Cluster, rundir, task
from slurm.runner import bundle


@task(begin="now+1hour")
def waiting(i: int) -> int:
    return i


def submitted(cluster: Cluster, count: int) -> float:
    """The CPU time of this thread for one submission."""
    began = time.thread_time()
    jobs = [waiting(n) for n in range(count)]
    taken = (time.thread_time() - began) / count
    for job in jobs:
        job.cancel()
    return taken


def test_a_submission_costs_the_same_however_many_runs_there_are(
    cluster: Cluster, tmp_path: Path
) -> None:
    submitted(cluster, 5)
    before = min(submitted(cluster, 10) for _ in range(3))
    for number in range(20_000):
        (tmp_path / "jobs" / f"waiting-20260101-000000-{number:06x}").mkdir(mode=0o700)
    assert min(submitted(cluster, 10) for _ in range(3)) < 1.5 * before + 0.002


def test_what_lies_in_a_base_directory_is_known_by_name(cluster: Cluster) -> None:
    named = {getattr(rundir, name) for name in dir(rundir) if name.startswith("BASE_")}
    assert named - {rundir.BASE_FOLDERS} == set(rundir.BASE_FOLDERS)
    assert bundle.IMAGES in rundir.BASE_FOLDERS
    waiting(1).cancel()
    found = {path.name for path in Path(cluster.base).iterdir() if path.name.startswith(".")}
    assert found <= set(rundir.BASE_FOLDERS)


def test_a_question_about_thousands_of_jobs_is_cheap(cluster: Cluster) -> None:
    array = waiting.map(range(2_000))
    try:
        taken = []
        for _ in range(3):
            began = time.thread_time()
            cluster._watcher.poll_now()
            taken.append(time.thread_time() - began)
    finally:
        array.cancel()
    assert min(taken) / 2_000 < 60e-6
