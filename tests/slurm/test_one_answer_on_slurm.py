"""One answer everywhere, on real Slurm: Python, the CLI and the dashboard about the same jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from answers import cancelled, count_of_all, dashboard, differing
from slurm import Cluster, Job, RunNotFound
from slurm.cli.doctor import checks
from slurm.cli.frame import Common
from states import bad, dies, flow, good, leaves, waits
from waiting import until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=tmp_path / "jobs") as cluster:
        yield cluster


@pytest.fixture
def finished(tmp_path: Path) -> Iterator[Path]:
    """A file whose coming ends what waits."""
    path = tmp_path / "end"
    yield path
    path.touch()


@pytest.mark.timeout(400)
@pytest.mark.full
def test_everybody_says_the_same_of_jobs_in_every_state(cluster: Cluster, finished: Path) -> None:
    end = str(finished)
    over: list[Job[Any]] = [*(good(n) for n in range(3)), leaves(3), dies(), flow(1), bad(1)]
    maps = [bad.map(range(6)), good.map(range(4))]
    running = [waits(end) for _ in range(4)]
    held = [good.with_options(hold=True)(n) for n in range(3)]
    throttled = waits.map([end, end, end, end], max_concurrent=1)
    behind = [good.after(running[0])(n) for n in range(2)]
    gone = [good.with_options(hold=True)(n) for n in range(2)]
    until("they run", lambda: all(job.state.value == "RUNNING" for job in running), 120)
    stopped = running.pop()
    for job in (*gone, stopped):
        job.cancel()
    ended = [*over, *gone, stopped]
    until("the short jobs end", lambda: all(job.done() for job in ended), 120)
    until("the maps end", lambda: all(array.done() for array in maps), 120)
    until("the first runs", lambda: throttled[0].state.value == "RUNNING", 60)
    single = [*ended, *running, *held, *behind]
    elements = [job for array in (*maps, throttled) for job in array]

    common = Common(job_base_dir=cluster.base)
    fresh = Cluster(job_base_dir=cluster.base)
    with dashboard("--job-base-dir", cluster.base) as seen:
        assert differing([*single, *elements], fresh, common, seen) == {}
        for array in (*maps, throttled):
            first, *others = count_of_all(array, fresh, common)
            assert others == [first, first], array
        for job in (over[0], over[4], stopped):
            assert cancelled(job.bare, common) == (0, 1)
        for job in (held[0], running[0]):
            assert cancelled(job.bare, common) == (1, 0)
        until("they are cancelled", lambda: held[0].done() and running[0].done(), 60)
        # The dashboard collects every few seconds.
        told = [held[0], running[0]]
        until("all say so", lambda: not differing(told, fresh, common, seen), 60)
    fresh.cancel([job for job in (*single, *elements) if not job.done()])


def test_slurm_does_not_answer_for_a_run_of_the_embedded_scheduler(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(tmp_path / "own"))
    there = Cluster("embedded", job_base_dir=cluster.base)
    waiting = there.submit(good, hold=True)(1)
    with pytest.raises(RunNotFound) as refused:
        cluster.get_job(waiting.bare)
    assert "no run of" in refused.value.message or waiting.run in refused.value.message
    # By its name it is found, and its own scheduler is asked.
    assert cluster.attach(waiting.run).state.value == "PENDING"
    assert cancelled(waiting.run, Common(job_base_dir=cluster.base)) == (1, 0)
    until("it is cancelled", waiting.done, 60)


def test_the_doctor_names_the_cluster_and_its_controller(cluster: Cluster) -> None:
    found = {check.name: check for check in checks(cluster, False)}
    assert "Slurm cluster " in found["scheduler"].text and " of " in found["scheduler"].text
