"""Workflows: a job that submits jobs, what it returns, where its children lie, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import ArrayJob, Cluster, Job, JobContext, WorkflowContext, task, workflow

WAIT = 90


@task
def square(x: int) -> int:
    return x * x


@task
def total(values: list[int]) -> int:
    return sum(values)


@task
def slow(seconds: float, mark: str = "") -> float:
    time.sleep(seconds)
    if mark:
        Path(mark).touch()
    return seconds


@task
def fail(text: str) -> None:
    raise ValueError(text)


@workflow(time="5min")
def sum_of_squares(n: int) -> int:
    return total(square.map(range(n))).result()  # type: ignore[arg-type]


@workflow
def squares_of(numbers: list[int]) -> Any:
    return square.map(numbers)


@workflow
def nothing_and_something() -> Any:
    return {"none": square.map([]), "packed": square.map([], pack=3), "one": square(3)}


def test_an_array_of_no_calls_can_be_returned(cluster: Cluster) -> None:
    job, both = squares_of([]), nothing_and_something()
    assert job.result(WAIT) == []
    assert cluster.attach(job.run).result(WAIT) == []
    assert both.result(WAIT) == {"none": [], "packed": [], "one": 9}


# ---- submitting from inside ---------------------------------------------------------------------


def test_a_workflow_runs_as_a_job_and_submits_its_children_from_there(cluster: Cluster) -> None:
    job = sum_of_squares(4)
    assert isinstance(job, Job)
    assert job.result(WAIT) == 14
    children = sorted(p.name for p in Path(job.path, "tasks").iterdir())
    assert children == ["square", "total"]
    (run,) = Path(job.path, "tasks", "square").iterdir()
    assert (run / "metadata.json").exists()
    assert "sbatch" not in job.stderr()


def test_a_workflow_that_returns_jobs_ends_and_resolves_to_their_values(cluster: Cluster) -> None:
    @dataclass
    class Report:
        best: Any
        all: Any

    @workflow
    def returns_jobs() -> Any:
        squares = square.map(range(3))
        return {"report": Report(total(squares), squares), "late": [slow(1.5)], "plain": 7}  # type: ignore[arg-type]

    job = returns_jobs()
    value = job.result(WAIT)
    assert value["report"].best == 5
    assert value["report"].all == [0, 1, 4]
    assert value["late"] == [1.5]
    assert value["plain"] == 7
    assert job.state == "COMPLETED"
    assert job.succeeded


def test_no_allocation_is_held_while_returned_jobs_run(cluster: Cluster) -> None:
    @workflow
    def hands_over() -> Any:
        return slow(4)

    job = hands_over()
    deadline = time.monotonic() + WAIT
    while job.returned is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job.returned is not None
    assert not job.done()
    assert job.state == "RUNNING"
    assert "returned" in job.reason
    names = [row.name for row in cluster.queue() if row.state == "RUNNING"]
    assert "hands_over" not in names
    assert job.result(WAIT) == 4


def test_the_error_of_a_returned_job_is_the_error_of_the_workflow(cluster: Cluster) -> None:
    @workflow
    def returns_failure() -> Any:
        return [square(2), fail("the child's own words")]

    job = returns_failure()
    with pytest.raises(ValueError, match="the child's own words"):
        job.result(WAIT)
    assert job.state == "FAILED"
    assert not job.succeeded


def test_an_attached_workflow_waits_for_what_it_returned(cluster: Cluster) -> None:
    @workflow
    def returns_job() -> Any:
        return slow(1)

    run = returns_job().run
    assert cluster.attach(run).result(WAIT) == 1


def test_a_job_that_takes_a_workflows_value_gets_the_values_of_what_it_returned(
    cluster: Cluster,
) -> None:
    @workflow
    def returns_late() -> Any:
        return {"a": slow(2), "b": square.map([2, 3])}

    @task
    def look(value: Any) -> Any:
        return value

    assert look(returns_late()).result(WAIT) == {"a": 2, "b": [4, 9]}


@pytest.mark.full
def test_a_job_behind_a_workflow_holds_no_allocation_while_returned_jobs_run(
    cluster: Cluster,
) -> None:
    @workflow
    def returns_late() -> Any:
        return slow(6)

    @task
    def behind() -> str:
        return "at last"

    first = returns_late()
    job = behind.after(first)()
    seen: set[str] = set()
    deadline = time.monotonic() + WAIT
    while not job.done() and time.monotonic() < deadline:
        seen.add(" ".join(sorted(r.name for r in cluster.queue() if r.state == "RUNNING")))
        time.sleep(0.2)
    assert job.result(WAIT) == "at last"
    assert "slow" in seen  # it ran alone: neither the workflow nor the job behind it held a CPU
    assert first.done()


def test_a_job_after_a_failed_returned_job_ends_as_upstream_failed(cluster: Cluster) -> None:
    @workflow
    def returns_failure() -> Any:
        return fail("no")

    with pytest.raises(slurm.UpstreamFailed):
        total(returns_failure()).result(WAIT)  # type: ignore[arg-type]


def test_nested_workflows_lie_inside_each_other(cluster: Cluster) -> None:
    @workflow
    def inner(n: int, ctx: WorkflowContext) -> Any:
        return {"total": total(square.map(range(n))), "parent": ctx.parent_id}  # type: ignore[arg-type]

    @workflow
    def outer(ctx: WorkflowContext) -> Any:
        assert ctx.parent_id is None
        return [inner(2), inner(3)]  # type: ignore[call-arg]

    job = outer()  # type: ignore[call-arg]
    assert job.result(WAIT) == [
        {"total": 1, "parent": job.id},
        {"total": 5, "parent": job.id},
    ]
    assert len(list(Path(job.path).glob("tasks/inner/*/tasks/total/*/metadata.json"))) == 2


def test_workflows_can_be_mapped(cluster: Cluster) -> None:
    @workflow
    def one(n: int, ctx: WorkflowContext) -> Any:
        (ctx.shared_dir / "mine").write_text(str(n))
        return [square(n), str(ctx.shared_dir.name)]

    array = one.map([1, 2, 3])
    assert isinstance(array, ArrayJob)
    assert array.results(WAIT) == [[1, "0"], [4, "1"], [9, "2"]]


def test_an_async_workflow_awaits_its_children(cluster: Cluster) -> None:
    @workflow
    async def awaits() -> int:
        first = await square(3)
        return first + await square(4)

    assert awaits().result(WAIT) == 25


def test_a_workflow_takes_options_and_conditions_as_a_task_does(cluster: Cluster) -> None:
    assert sum_of_squares.options["requeue"] is True
    changed = sum_of_squares.with_options(time="1h", requeue=None)
    assert isinstance(changed, slurm.Workflow)
    assert changed.options["time"] == 3600
    job = changed.after(square(1))(2)
    assert job.result(WAIT) == 1


# ---- the context --------------------------------------------------------------------------------


def test_the_context_knows_directories_results_and_ids(cluster: Cluster) -> None:
    @task
    def read(path: str) -> str:
        return Path(path).read_text()

    @workflow
    def asks(ctx: WorkflowContext) -> Any:
        (ctx.shared_dir / "note").write_text("shared")
        text = read(str(ctx.shared_dir / "note"))
        square.map([1, 2])
        square(5)
        return {
            "text": text.result(),
            "squares": ctx.results("square"),
            "newest": ctx.result("square"),
            "ids": len(ctx.child_ids),
            "runs": len(list(ctx.task_dir("square").iterdir())),
            "job": ctx.job_id,
            "run": str(ctx.run_dir),
        }

    job = asks()  # type: ignore[call-arg]
    value = job.result(WAIT)
    assert value["text"] == "shared"
    assert value["squares"] == [1, 4, 25]
    assert value["newest"] == 25
    assert (value["ids"], value["runs"]) == (4, 2)
    assert value["job"] == job.id
    assert value["run"] == job.path


def test_a_name_that_was_not_submitted_is_refused_with_the_nearest(cluster: Cluster) -> None:
    @workflow
    def asks(ctx: WorkflowContext) -> Any:
        square(1)
        return ctx.result("sqare")

    with pytest.raises(slurm.UsageError, match="did you mean 'square'"):
        asks().result(WAIT)  # type: ignore[call-arg]


# ---- a cluster inside a job ---------------------------------------------------------------------


def test_a_cluster_inside_a_job_is_the_jobs_own_with_the_submitters_defaults(
    tmp_path: Path,
) -> None:
    @task
    def submits() -> Any:
        with Cluster() as inside:
            child = square(3)
            assert child.result() == 9
            return inside.base, inside.backend.kind, dict(inside.defaults), child.run

    base = tmp_path / "jobs"
    with Cluster("embedded", job_base_dir=base, time="7min", mem="300M", cpus_per_task=1):
        found_base, kind, defaults, run = submits().result(WAIT)
    assert found_base == str(base)
    assert kind == "embedded"
    assert defaults == {"time": 420, "mem": 300, "cpus_per_task": 1}
    assert "/" not in run  # a plain task has no runs below its own


def test_an_option_of_the_cluster_inside_goes_before_the_submitters(cluster: Cluster) -> None:
    @task
    def asks() -> Any:
        return dict(Cluster(time="3min").defaults)["time"], str(Cluster("debug").directory)

    assert asks().result(WAIT) == (180, "~/slurm_jobs")


def test_a_workflow_runs_on_a_python_with_nothing_installed(
    cluster: Cluster, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    command = [sys.executable, "-m", "venv", "--without-pip", str(bare)]
    subprocess.run(command, check=True, timeout=WAIT)
    python = str(bare / "bin" / "python")

    @task
    def cube(x: int) -> int:
        return x**3

    @workflow(python=python)
    def on_bare_python(ctx: WorkflowContext) -> Any:
        children = cube.map([1, 2])
        return sys.prefix, children, cube(3).result(), len(ctx.child_ids)

    assert on_bare_python().result(WAIT) == (str(bare), [1, 8], 27, 3)  # type: ignore[call-arg]


def test_a_call_that_is_attached_twice_is_known_to_both(cluster: Cluster) -> None:
    job = slow(1.5)
    twins = [cluster.attach(job.run), cluster.attach(job.run)]
    assert [twin.result(WAIT) for twin in twins] == [1.5, 1.5]
    assert job.result(WAIT) == 1.5
    failed = fail("both are told")
    twin = cluster.attach(failed.run)
    for one in (failed, twin):
        with pytest.raises(ValueError, match="both are told"):
            one.result(WAIT)
        assert one.state == "FAILED"
    asleep = slow(30)
    twin = cluster.attach(asleep.run)
    assert twin.cancel()
    for one in (asleep, twin):
        with pytest.raises(slurm.JobCancelled):
            one.result(WAIT)
        assert one.cancelled()


def test_a_workflow_may_open_its_cluster_by_itself(cluster: Cluster) -> None:
    @workflow
    def opens() -> Any:
        with Cluster(time="4min") as inside:
            job = square(2)
            return job.result(), job.run.count("/tasks/"), inside.defaults["time"]

    assert opens().result(WAIT) == (4, 1, 240)


# ---- in this process ----------------------------------------------------------------------------


def test_local_runs_the_orchestrator_here_and_its_children_as_jobs(cluster: Cluster) -> None:
    pids: list[int] = []

    @workflow
    def here(n: int, ctx: WorkflowContext) -> Any:
        pids.append(os.getpid())
        return [square(n), ctx.shared_dir.is_dir(), ctx.results("square")]

    assert here.local(5) == [25, True, [25]]  # type: ignore[call-arg]
    assert pids == [os.getpid()]
    assert len(list(Path(cluster.base).glob("here-*/tasks/square/*/metadata.json"))) == 1


def test_a_workflow_runs_under_the_debugger(tmp_path: Path) -> None:
    @workflow
    def debugged(n: int, ctx: WorkflowContext) -> Any:
        return {"one": square(n), "all": square.map([1, 2]), "dir": ctx.shared_dir.is_dir()}

    with Cluster("debug", job_base_dir=tmp_path):
        job = debugged(3)  # type: ignore[call-arg]
    assert job.result() == {"one": 9, "all": [1, 4], "dir": True}


# ---- refusals -----------------------------------------------------------------------------------


def test_a_task_is_not_made_a_workflow_by_mistake() -> None:
    with pytest.raises(slurm.UsageError, match=r"workflow\(\) takes a function"):
        workflow(square)


def test_a_task_that_asks_for_a_workflows_context_is_refused(cluster: Cluster) -> None:
    @task
    def asks(ctx: WorkflowContext) -> None: ...

    with pytest.raises(slurm.UsageError, match="ctx of asks is a WorkflowContext"):
        asks()  # type: ignore[call-arg]


def test_a_child_that_waits_for_its_own_workflow_is_a_circular_dependency(
    cluster: Cluster,
) -> None:
    @workflow
    def circle(ctx: WorkflowContext) -> Any:
        from slurm.cluster import active_cluster

        itself = active_cluster("circle").attach(str(ctx.run_dir))
        return square.after(itself)(1)

    with pytest.raises(slurm.UsageError, match="circular dependency"):
        circle().result(WAIT)  # type: ignore[call-arg]


def test_a_task_that_returns_a_job_is_told_to_be_a_workflow(cluster: Cluster) -> None:
    @task
    def returns_job() -> Any:
        with Cluster():
            return square(1)

    with pytest.raises(slurm.UnpicklableResult, match="belongs to this process"):
        returns_job().result(WAIT)


def test_a_plain_task_may_take_a_job_context_and_submit(cluster: Cluster) -> None:
    @workflow
    def with_plain_context(ctx: JobContext) -> Any:
        return ctx.job_id, square(2)

    job = with_plain_context()  # type: ignore[call-arg]
    assert job.result(WAIT) == (job.id, 4)


# ---- cancelling ---------------------------------------------------------------------------------


@workflow
def starts_slow_ones(mark: str, ready: str) -> Any:
    inner = slow_inside(mark + ".inner")
    first = slow(20, mark)
    Path(ready).touch()
    return [inner.result(), first.result()]


@workflow
def slow_inside(mark: str) -> Any:
    return slow.map([(20, mark), (20, mark)])


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def _children(cluster: Cluster, name: str) -> list[str]:
    return [row.state for row in cluster.queue() if row.name == name]


def test_cancelling_a_workflow_cancels_its_children_and_theirs(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = starts_slow_ones(str(tmp_path / "mark"), str(tmp_path / "ready"))
    _wait_for(tmp_path / "ready")
    deadline = time.monotonic() + WAIT
    while len(_children(cluster, "slow")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job.cancel()
    with pytest.raises(slurm.JobCancelled):
        job.result(WAIT)
    while _children(cluster, "slow") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _children(cluster, "slow") == []
    assert not list(tmp_path.glob("mark*"))


@pytest.mark.full
def test_the_children_of_a_cancelled_workflow_can_be_kept(cluster: Cluster, tmp_path: Path) -> None:
    @workflow
    def starts() -> Any:
        child = slow(3, str(tmp_path / "mark"))
        assert child.id
        (tmp_path / "ready").touch()
        return child.result()

    job = starts()
    _wait_for(tmp_path / "ready")
    assert job.cancel(children=False)
    with pytest.raises(slurm.JobCancelled):
        job.result(WAIT)
    _wait_for(tmp_path / "mark")


def test_a_workflow_that_has_ended_can_still_be_cancelled_with_what_it_returned(
    cluster: Cluster, tmp_path: Path
) -> None:
    @workflow
    def hands_over() -> Any:
        return slow(20, str(tmp_path / "mark"))

    job = hands_over()
    deadline = time.monotonic() + WAIT
    while job.returned is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job.cancel()
    with pytest.raises(slurm.JobCancelled):
        job.result(WAIT)
    assert not (tmp_path / "mark").exists()


# ---- the graph ----------------------------------------------------------------------------------


@workflow
def drawn() -> Any:
    squares = square.map(range(2))
    return [total(squares), sum_of_squares(2)]  # type: ignore[arg-type]


def test_slurm_graph_shows_all_that_a_workflow_submitted(cluster: Cluster) -> None:
    job = drawn()
    job.result(WAIT)
    answer = subprocess.run(
        [sys.executable, "-c", "from slurm.cli import main; main()", "graph", job.path],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=True,
    )
    lines = answer.stdout.splitlines()
    assert len(lines) == 6
    assert lines[0].split()[:2] == ["drawn", "COMPLETED"]
    assert any("total" in line and "after square x 2" in line for line in lines)
    assert all("COMPLETED" in line for line in lines)


def test_the_graph_asks_the_scheduler_about_what_files_do_not_tell(cluster: Cluster) -> None:
    from slurm.graph import read_graph

    failed = fail("no")
    long = slow(300)
    held = square.after(long)(1)
    held.cancel()
    with pytest.raises(slurm.JobCancelled):
        held.result(WAIT)
    states = {node.name: node.state for node in read_graph(cluster, held.run).nodes.values()}
    assert states["square"] == "CANCELLED"
    assert states["slow"] in ("RUNNING", "PENDING")
    long.cancel()
    failed.exception(WAIT)
    assert read_graph(cluster, failed.run).root.state == "FAILED"
