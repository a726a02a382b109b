"""What a client does for a job does not grow with the number of jobs: counted, or CPU time."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, Job, rundir, task
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


class Audited:
    """Counts what Python tells audit hooks about files, of one thread while it is asked to."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.counts: Counter[str] = Counter()
        sys.addaudithook(self._hear)  # there is no way to take one back

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self.thread != threading.get_ident():
            return
        # An open file that gets an object is no second file.
        if event.startswith("os.") or (event == "open" and isinstance(args[0], str)):
            self.counts[event] += 1

    def during(self, work: Callable[[], object]) -> Counter[str]:
        """What the work did."""
        self.counts.clear()
        self.thread = threading.get_ident()
        try:
            work()
        finally:
            self.thread = None
        return Counter(self.counts)


def test_a_submission_opens_and_renames_few_files(cluster: Cluster) -> None:
    waiting(0).cancel()
    audited = Audited()
    jobs: list[Job[int]] = []
    done = audited.during(lambda: jobs.extend(waiting(n) for n in range(10)))
    for job in jobs:
        job.cancel()
    # Eight files are written and six folders made; a few small ones are read.
    assert done["open"] <= 18 * len(jobs), done
    assert done["os.rename"] <= 4 * len(jobs), done
    assert done["os.mkdir"] <= 9 * len(jobs), done
    assert done["os.listdir"] + done["os.scandir"] <= 2 * len(jobs), done


def counted(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, verb: str) -> list[object]:
    """What a verb of the cluster's backend is asked from now on."""
    asked: list[object] = []
    does = getattr(cluster.backend, verb)

    def asking(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        return does(*args, **kwargs)

    monkeypatch.setattr(cluster.backend, verb, asking)
    return asked


def test_asking_each_of_many_jobs_whether_it_is_done_reads_their_run_a_few_times(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = waiting.map(range(2_000))
    try:
        reads = counted(monkeypatch, cluster, "read_run")
        assert not any(job.done() for job in array)
        assert len(reads) < 500
    finally:
        array.cancel()


@task
def quick(i: int) -> int:
    return i


def test_a_job_that_ends_while_the_scheduler_is_asked_causes_no_further_question(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, does = quick(7), cluster.backend.status

    def ends_meanwhile(jobs: Any) -> Any:
        answer = does(jobs)
        assert job.result(60) == 7
        return answer

    watcher = cluster._watcher
    monkeypatch.setattr(cluster.backend, "status", ends_meanwhile)
    watcher._poll()
    assert watcher.open_jobs == 0
    # Its records were given away with its value: judged without them, it would look lost.
    assert job.notes.asking == 0 and not watcher._eager
