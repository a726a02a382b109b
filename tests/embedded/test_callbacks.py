"""Callbacks: which hooks fire, where and in which order, and that they never break a job."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from slurm import BaseCallback, Cluster, UnpicklableArgument, task, workflow
from slurm.callbacks import BenchmarkCallback, JsonEventsCallback, LoggerCallback, flush
from slurm.callbacks.base import HOOKS, OLD_HOOKS
from slurm.errors import OptionError


class Recorder(BaseCallback):
    """Writes a line for each hook into a file, in whichever process it runs."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def note(self, hook: str, ctx: Any) -> None:
        told = {
            name: getattr(ctx, name, None) for name in ("name", "run", "index", "total", "done")
        }
        told.update(
            hook=hook, where=ctx.where, pid=os.getpid(), state=str(getattr(ctx, "state", ""))
        )
        with open(self.path, "a") as f:
            f.write(json.dumps(told) + "\n")


def _hook(name: str) -> Any:
    return lambda self, ctx: self.note(name, ctx)


for _name in HOOKS:
    if not _name.startswith("on_wait"):
        setattr(Recorder, _name, _hook(_name))


class Recorded:
    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self, **wanted: Any) -> list[dict[str, Any]]:
        assert flush(30)
        found = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [line for line in found if all(line[k] == v for k, v in wanted.items())]

    def hooks(self, **wanted: Any) -> list[str]:
        return [line["hook"] for line in self.lines(**wanted)]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "hooks.jsonl")


@pytest.fixture
def watched(tmp_path: Path) -> Any:
    with Cluster(
        "embedded", job_base_dir=tmp_path / "jobs", callbacks=[Recorder(tmp_path / "hooks.jsonl")]
    ) as cluster:
        yield cluster


@task
def square(x: int) -> int:
    return x * x


@task
def broken() -> None:
    raise ValueError("no")


@workflow
def pipeline() -> int:
    return square(3).result() + 1


def test_a_single_job_is_told_of_from_its_packaging_to_its_end(
    watched: Cluster, recorded: Recorded
) -> None:
    job = square(2)
    assert job.result() == 4
    assert recorded.hooks(pid=os.getpid())[:4] == [
        "on_packaging_begin",
        "on_packaging_end",
        "on_submit_begin",
        "on_submit_end",
    ]
    assert recorded.hooks(pid=os.getpid())[-2:] == ["on_status_change", "on_completed"]
    inside = [line for line in recorded.lines() if line["pid"] != os.getpid()]
    assert [line["hook"] for line in inside] == ["on_run_begin", "on_run_end"]
    assert {line["where"] for line in inside} == {"job"}


def test_each_element_of_an_array_is_told_of_and_the_whole_has_progress(
    watched: Cluster, recorded: Recorded
) -> None:
    assert square.map([1, 2, 3]).results() == [1, 4, 9]
    assert recorded.hooks().count("on_submit_end") == 1
    assert recorded.hooks().count("on_completed") == 3
    assert sorted(line["index"] for line in recorded.lines(hook="on_run_end")) == [0, 1, 2]
    last = recorded.lines(hook="on_array_progress")[-1]
    assert (last["done"], last["total"]) == (3, 3)


def test_the_steps_of_an_allocation_are_told_of(watched: Cluster, recorded: Recorded) -> None:
    with watched.allocate(time="5min"):
        assert square(3).result() == 9
    assert recorded.hooks(name="square").count("on_completed") == 1


def test_a_packed_map_tells_of_its_jobs_in_the_client_and_of_its_items_inside(
    watched: Cluster, recorded: Recorded
) -> None:
    array = square.map(range(5), pack=3)
    assert array.results() == [0, 1, 4, 9, 16]
    for job in array.members:
        job.wait()
    assert recorded.hooks().count("on_completed") == 2
    assert sorted(line["index"] for line in recorded.lines(hook="on_run_end")) == [0, 1, 2, 3, 4]
    last = recorded.lines(hook="on_array_progress")[-1]
    assert (last["done"], last["total"]) == (5, 5)


def test_a_workflow_tells_of_itself_and_of_its_children_from_its_own_process(
    watched: Cluster, recorded: Recorded
) -> None:
    job = pipeline()
    assert job.result() == 10
    inside = [line for line in recorded.lines() if line["pid"] != os.getpid()]
    hooks = [line["hook"] for line in inside if line["name"] == "pipeline"]
    assert hooks == ["on_run_begin", "on_workflow_begin", "on_workflow_end", "on_run_end"]
    child = [line["hook"] for line in inside if line["name"] == "square"]
    wanted = ["on_submit_end", "on_child_submitted", "on_run_begin", "on_run_end", "on_completed"]
    # Its run and its completion are told by two processes: only their own order is certain.
    assert set(wanted) <= set(child)
    assert child.index("on_submit_end") < child.index("on_child_submitted")
    assert child.index("on_run_begin") < child.index("on_run_end")


def test_calls_of_the_debug_backend_tell_the_same_hooks_in_this_process(
    tmp_path: Path, recorded: Recorded
) -> None:
    with Cluster("debug", callbacks=[Recorder(tmp_path / "hooks.jsonl")]):
        assert square(2).result() == 4
    assert recorded.hooks() == [
        "on_submit_begin",
        "on_submit_end",
        "on_run_begin",
        "on_run_end",
        "on_completed",
    ]


@pytest.mark.full
def test_a_collected_call_and_a_cached_value_are_told_of_too(
    watched: Cluster, recorded: Recorded
) -> None:
    with watched.batch():
        jobs = [square(n) for n in range(3)]
    assert [job.result() for job in jobs] == [0, 1, 4]
    assert recorded.hooks().count("on_completed") == 3
    cached = square.with_options(cache=True)
    assert cached(7).result() == 49
    again = cached(7)
    assert again.cached
    assert recorded.hooks().count("on_completed") == 5
    assert recorded.hooks().count("on_submit_end") == 2


class Raises(BaseCallback):
    def on_submit_end(self, ctx: Any) -> None:
        raise RuntimeError("in the client")

    def on_completed(self, ctx: Any) -> None:
        raise SystemExit(3)

    def on_run_begin(self, ctx: Any) -> None:
        raise RuntimeError("in the job")

    def on_run_end(self, ctx: Any) -> None:
        raise SystemExit(3)


def test_what_a_callback_raises_is_reported_once_and_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[Raises()]):
        jobs = [square(n) for n in range(3)]
        assert [job.result() for job in jobs] == [0, 1, 4]
        flush()
        log = jobs[0].stderr()
    reports = [r for r in caplog.records if "Raises.on_submit_end raised" in r.getMessage()]
    assert len(reports) == 1
    assert len([r for r in caplog.records if "Raises.on_completed" in r.getMessage()]) == 1
    assert log.count("Raises.on_run_begin raised") == 1
    assert "RuntimeError: in the job" in log


class Slow(BaseCallback):
    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.heard = 0

    def on_completed(self, ctx: Any) -> None:
        assert self.let_go.wait(60)
        self.heard += 1


def test_a_callback_that_hangs_delays_neither_results_nor_other_callbacks(tmp_path: Path) -> None:
    slow, quick = Slow(), BenchmarkCallback()
    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[slow, quick]):
        assert [square(n).result(60) for n in range(3)] == [0, 1, 4]
        assert slow.heard == 0
        for _ in range(200):
            if len(quick._jobs) == 3:
                break
            threading.Event().wait(0.05)
        assert len(quick._jobs) == 3
        slow.let_go.set()
        assert flush(60)
    assert slow.heard == 3


class Locked(BaseCallback):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def on_run_end(self, ctx: Any) -> None:
        """Runs in the job, where the lock cannot go."""


def test_a_callback_that_cannot_travel_but_has_to_is_refused_by_name(tmp_path: Path) -> None:
    with (
        Cluster("embedded", job_base_dir=tmp_path, callbacks=[Locked()]),
        pytest.raises(UnpicklableArgument, match="callback Locked has hooks that run in the job"),
    ):
        square(1)


def test_what_is_no_callback_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not a callback"):
        Cluster("embedded", callbacks=[print])  # type: ignore[list-item]
    with pytest.raises(OptionError) as found:
        Cluster("embedded", callbacks=[Recorder])  # type: ignore[list-item]
    assert "not the class" in str(found.value)


class Old(BaseCallback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_end_submit_job_ctx(self, ctx: Any) -> None:
        self.heard.append(f"submitted {ctx.job_id}")

    def on_job_status_update_ctx(self, ctx: Any) -> None:
        self.heard.append(ctx.status["JobState"])

    def on_completed_ctx(self, ctx: Any) -> None:
        self.heard.append(f"over {ctx.job_id}")


def test_hooks_under_the_names_of_slurm_sdk_are_called(tmp_path: Path) -> None:
    old = Old()
    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[old]):
        job = square(2)
        job.result()
    flush()
    assert old.heard[0] == f"submitted {job.id}"
    assert old.heard[-2:] == ["COMPLETED", f"over {job.id}"]
    assert set(OLD_HOOKS.values()) <= set(HOOKS)


@pytest.mark.full
def test_a_refused_submission_is_told_with_its_error(tmp_path: Path) -> None:
    heard: list[BaseException | None] = []

    class Refusals(BaseCallback):
        def on_submit_end(self, ctx: Any) -> None:
            heard.append(ctx.error)

    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[Refusals()]):
        with pytest.raises(Exception, match="1000"):
            square.with_options(cpus_per_task=1000)(2)
        flush()
    assert len(heard) == 1
    assert heard[0] is not None


@pytest.mark.full
def test_the_logger_says_what_happened_in_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "slurm.runs")
    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[LoggerCallback()]):
        job = square(2)
        job.result()
        bad = broken()
        bad.wait()
        flush()
    lines = [r.getMessage() for r in caplog.records if r.name == "slurm.runs"]
    assert f"square: submitted as job {job.id}, run {job.run}" in lines
    assert any(line.startswith(f"square: job {job.id} COMPLETED") for line in lines)
    assert any(line.startswith(f"broken: job {bad.id} FAILED") for line in lines)


@pytest.mark.full
def test_the_benchmark_counts_runs_jobs_and_failures(tmp_path: Path) -> None:
    benchmark = BenchmarkCallback()
    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[benchmark]):
        square.map([1, 2, 3]).results()
        broken().wait()
    rows = {row.name: row for row in benchmark.summary()}
    assert (rows["square"].runs, rows["square"].jobs, rows["square"].failed) == (1, 3, 0)
    assert rows["broken"].failed == 1
    assert rows["square"].submission > 0
    assert str(benchmark).splitlines()[0].split()[:3] == ["task", "runs", "jobs"]


def test_json_events_have_flat_numbers_for_trackers(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with Cluster("embedded", job_base_dir=tmp_path, callbacks=[JsonEventsCallback(path)]):
        square.with_options(mem="100M").map([1, 2]).results()
        flush()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"submitted", "progress", "completed"}
    assert lines[0]["params"]["mem"]
    for line in lines:
        assert all(isinstance(v, (int, float)) for v in line.get("metrics", {}).values())
        assert all(isinstance(v, str) for v in line.get("tags", {}).values())
    assert path.stat().st_mode & 0o077 == 0


def test_a_slurmfile_can_name_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Slurmfile.toml").write_text(
        '[default]\nbackend_type = "embedded"\nprogress = false\n'
        'callbacks = ["slurm.callbacks:LoggerCallback", '
        '{ target = "slurm.callbacks.JsonEventsCallback", kwargs = { path = "events.jsonl" } }]\n'
    )
    monkeypatch.chdir(tmp_path)
    cluster = Cluster.from_env()
    assert [type(one).__name__ for one in cluster.callbacks] == [
        "LoggerCallback",
        "JsonEventsCallback",
    ]
    (tmp_path / "Slurmfile.toml").write_text('[default]\ncallbacks = ["nowhere:Nothing"]\n')
    with pytest.raises(Exception, match="nowhere:Nothing cannot be made"):
        Cluster.from_env()
