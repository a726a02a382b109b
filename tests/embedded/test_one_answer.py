"""One answer everywhere: Python, ls, show, why, cancel and the dashboard about the same jobs."""

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
def finished(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A file whose coming ends what waits; nothing stays behind a test."""
    path = tmp_path / "end"
    yield path
    path.touch()
    left = cluster.backend.agent.scheduler  # type: ignore[attr-defined]
    left.cancel(sorted({row.job_id for row in left.queue()}))
    until("nothing is left", lambda: not left.queue(), 60)


@pytest.mark.timeout(280)
def test_everybody_says_the_same_of_forty_jobs_in_every_state(
    cluster: Cluster, finished: Path
) -> None:
    end = str(finished)
    over: list[Job[Any]] = [*(good(n) for n in range(5)), *(leaves(n) for n in (1, 3))]
    over += [dies(), flow(1), bad(1), bad(3), waits.with_options(time="3s")(end)]
    maps = [bad.map(range(6)), good.map(range(4))]
    running = [waits(end) for _ in range(6)]
    until("the short jobs end", lambda: all(job.done() for job in over), 120)
    until("they run", lambda: all(job.state.value == "RUNNING" for job in running), 60)
    half = bad.map([1, 0, 1], max_concurrent=1)
    until("the maps end", lambda: all(array.done() for array in [*maps, half]), 60)
    held = [good.with_options(hold=True)(n) for n in range(3)]
    throttled = waits.map([end, end, end, end], max_concurrent=1)
    large = [good.with_options(cpus_per_task=8)(n) for n in range(2)]
    behind = [good.after(running[0])(n) for n in range(2)]
    gone = [good.with_options(hold=True)(n) for n in range(2)]
    stopped = running.pop()
    for job in (*gone, stopped):
        job.cancel()
    until("they are cancelled", lambda: all(job.done() for job in (*gone, stopped)), 60)
    until("the first runs", lambda: throttled[0].state.value == "RUNNING", 60)
    single = [*over, *running, *held, *large, *behind, *gone, stopped]
    elements = [job for array in (*maps, half, throttled) for job in array]
    assert len(single) + len(elements) >= 40

    common = Common(cluster="embedded", job_base_dir=cluster.base)
    words = ("--cluster", "embedded", "--job-base-dir", cluster.base)
    fresh = Cluster("embedded", job_base_dir=cluster.base)
    with dashboard(*words) as seen:
        assert differing([*single, *elements], fresh, common, seen) == {}
        states = {str(job.state.value) for job in [*single, *elements]}
        assert states >= {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "PENDING", "RUNNING"}
        for array in (*maps, half, throttled):
            first, *others = count_of_all(array, fresh, common)
            assert others == [first, first], array

        # The queue of the dashboard counts the elements of an array that has not ended.
        throttled[0].cancel()
        until("the second runs", lambda: throttled[1].state.value == "RUNNING", 60)
        counted = "1 running, 2 waiting, 1 failed"
        until("the dashboard counts", lambda: counted in seen.page("/"), 60)

        # Cancelling knows as well which are over.
        for job in (over[0], over[5], stopped):
            assert cancelled(job.bare, common) == (0, 1)
        for job in (held[0], running[0], throttled[3]):
            assert cancelled(job.bare, common) == (1, 0)
        until(
            "they are cancelled",
            lambda: held[0].done() and running[0].done() and throttled[3].done(),
            60,
        )
        # The dashboard collects every few seconds.
        told = [held[0], running[0], throttled[3]]
        until("all say so", lambda: not differing(told, fresh, common, seen), 60)


def test_an_id_of_another_embedded_scheduler_is_refused_with_the_name_of_the_run(
    young_scheduler: Path,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    other_scheduler: Path,
) -> None:
    job = good(1)
    assert job.result(timeout=60) == 1
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(other_scheduler))
    there = Cluster("embedded", job_base_dir=cluster.base)
    with pytest.raises(RunNotFound, match=job.run):
        there.get_job(job.id)
    assert there.attach(job.run).result(timeout=60) == 1  # the files settle it
    with there:
        while int((mine := good(2)).bare) < int(job.bare):
            assert mine.result(timeout=60) == 2
    assert mine.result(timeout=60) == 2 and mine.bare == job.bare
    assert there.get_job(job.bare).run == mine.run


def test_the_debug_backend_has_a_doctor(tmp_path: Path) -> None:
    cluster = Cluster("debug", job_base_dir=tmp_path)
    found = {check.name: check for check in checks(cluster, True)}
    assert found["scheduler"].result == "ok" and "in this process" in found["scheduler"].text
    assert not list(tmp_path.iterdir())


def test_the_doctor_names_the_scheduler(cluster: Cluster) -> None:
    found: dict[str, Any] = {check.name: check for check in checks(cluster, False)}
    assert "the embedded scheduler of " in found["scheduler"].text
