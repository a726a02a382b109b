"""A workflow that is killed in any phase and requeued submits no child twice."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm import (
    Cluster,
    Job,
    SlurmError,
    TimeLimitReached,
    WorkflowContext,
    rundir,
    task,
    workflow,
)

WAIT = 120


@task
def count(name: str, folder: str) -> str:
    """Each run of this function leaves one line."""
    with open(Path(folder) / "runs", "a") as f:
        f.write(f"{name}\n")
    return name.upper()


@task
def join(words: list[str], folder: str) -> str:
    return count.local("".join(words), folder)


def die() -> None:
    """Be put back into the queue and killed with SIGKILL, here and now."""
    from slurm.runner.advance import scheduler

    job = os.environ["SLURM_JOB_ID"]
    scheduler().requeue([job])  # type: ignore[attr-defined]
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def before(owner: Any, name: str, number: int = 1) -> None:
    """Die when this method is called for the n-th time."""
    _dying(owner, name, number, first=False)


def after(owner: Any, name: str, number: int = 1) -> None:
    """Die when this method has been called for the n-th time."""
    _dying(owner, name, number, first=True)


def _dying(owner: Any, name: str, number: int, first: bool) -> None:
    calls: list[int] = []
    original = getattr(owner, name)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) < number:
            return original(*args, **kwargs)
        if first:
            original(*args, **kwargs)
        return die()

    setattr(owner, name, deadly)


def _agent() -> Any:
    from slurm.api.agent import Agent

    return Agent


def _journal() -> Any:
    from slurm.journal import Journal

    return Journal


def _files() -> Any:
    from slurm import rundir

    return rundir


def _scheduler() -> Any:
    from slurm.runner.advance import scheduler

    return type(scheduler())


#: Where it dies; those that are marked are more of the same.
PHASES: dict[str, Callable[[], None]] = {
    "before anything is noted": lambda: before(_journal(), "note"),
    "when the group is noted": lambda: before(_agent(), "submit"),
    "while the run directory is made": lambda: before(_files(), "write_atomically", 3),
    "when the intent is written": lambda: before(_scheduler(), "submit"),
    "when the scheduler has taken it": lambda: after(_scheduler(), "submit"),
    "when the id is written": lambda: after(_agent(), "submit"),
    "between two layers": lambda: before(_journal(), "note", 2),
    "when the second layer was taken": lambda: after(_scheduler(), "submit", 2),
    "while it waits": lambda: before(Job, "_await"),
    "when a map was taken": lambda: after(_scheduler(), "submit", 3),
    "before its value is recorded": lambda: before(_files(), "append_record"),
    "when its value is recorded": lambda: after(_files(), "append_record"),
}
_QUICK = ("when the group is noted", "when the intent is written", "between two layers")


@workflow(time="10min")
def doomed(phase: str, folder: str, ctx: WorkflowContext, waits: tuple[int, ...] = ()) -> Any:
    """What goes out together in the attempts that `waits` names does not in the others."""
    if ctx.attempt == 0:
        PHASES[phase]()
    first = count("a", folder)
    if ctx.attempt in waits:
        first.result()
    words = [first, count("b", folder), count("a", folder)]
    both = join(words, folder)  # type: ignore[arg-type]
    if ctx.attempt not in waits:
        words[0].result()
    mapped = count.map([("c", folder), ("d", folder), ("c", folder)])
    return [both, mapped, join(mapped, folder), ctx.attempt]  # type: ignore[arg-type]


def _check(job: Job[Any], folder: Path, attempt: int) -> None:
    assert job.result(WAIT) == ["ABA", ["C", "D", "C"], "CDC", attempt], job.stderr()
    runs = sorted((folder / "runs").read_text().split())
    assert runs == ["ABA", "CDC", "a", "a", "b", "c", "c", "d"]


@pytest.mark.parametrize(
    "phase",
    [pytest.param(p, marks=() if p in _QUICK else pytest.mark.full) for p in PHASES],
)
def test_no_child_runs_twice_and_none_is_lost_when_the_workflow_dies(
    phase: str, cluster: Cluster, tmp_path: Path
) -> None:
    job = doomed(phase, str(tmp_path))  # type: ignore[call-arg]
    _check(job, tmp_path, attempt=0 if phase == "when its value is recorded" else 1)


@pytest.mark.parametrize("waits", [pytest.param((0,), id="apart, then together"), (1,)])
@pytest.mark.parametrize(
    "phase",
    [
        "when the second layer was taken",
        pytest.param("when the group is noted", marks=pytest.mark.full),
        pytest.param("when the scheduler has taken it", marks=pytest.mark.full),
        pytest.param("between two layers", marks=pytest.mark.full),
        pytest.param("when a map was taken", marks=pytest.mark.full),
    ],
)
def test_calls_are_found_again_in_whatever_group_they_went_out(
    phase: str, waits: tuple[int, ...], cluster: Cluster, tmp_path: Path
) -> None:
    _check(doomed(phase, str(tmp_path), waits=waits), tmp_path, attempt=1)  # type: ignore[call-arg]


@pytest.mark.full
def test_what_a_sender_that_only_seemed_dead_submits_late_ends_by_itself(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A node that is cut off may go on: the run that was taken from it belongs to nobody."""
    plan = cluster.submit(count)
    late = plan.plan("late", str(tmp_path))
    assert cluster.backend.recall(late.submission.relative) is None
    run = Path(cluster.base, late.submission.relative)
    (run / "submit" / "0.claim").rename(tmp_path / "claim")
    run.joinpath("submit").rmdir()
    run.rmdir()
    original = rundir.write_atomically

    def slow(path: str, *args: Any, **kwargs: Any) -> None:
        if path.endswith("0.intent"):
            (tmp_path / "claim").rename(run / "submit" / "0.claim")
        original(path, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rundir, "write_atomically", slow)
        job = plan.send(late)[0]
    with pytest.raises(SlurmError):
        job.result(WAIT)
    assert not (tmp_path / "runs").exists()
    assert "belongs to job nobody" in job.stderr()


def test_a_child_that_failed_is_not_run_again_and_its_dependent_never_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task
    def fails() -> None:
        count.local("x", str(tmp_path))
        raise ValueError("as before")

    @workflow
    def tries(ctx: WorkflowContext) -> list[str]:
        child = fails()
        dependent = count.after(child)("y", str(tmp_path))
        ends = [str(child.exception()), type(dependent.exception()).__name__]
        if ctx.attempt == 0:
            die()
        return ends

    assert tries().result(WAIT) == ["as before", "UpstreamFailed"]  # type: ignore[call-arg]
    assert (tmp_path / "runs").read_text() == "x\n"


def test_arguments_are_known_again_whatever_their_order_in_memory(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Sets of text are ordered by a hash that Python changes with each process."""

    @task
    def size(words: set[str]) -> int:
        count.local("s", str(tmp_path))
        return len(words)

    @workflow
    def uses_a_set(ctx: WorkflowContext) -> int:
        found = size({f"word {n}" for n in range(50)}).result()
        if ctx.attempt == 0:
            die()
        return found

    assert uses_a_set().result(WAIT) == 50  # type: ignore[call-arg]
    assert (tmp_path / "runs").read_text() == "s\n"


class Adder:
    def __init__(self, plus: int) -> None:
        self.plus = plus

    def __call__(self, x: int, folder: str) -> int:
        count.local(f"object{self.plus}", folder)
        return x + self.plus


def add(x: int, y: int, folder: str) -> int:
    count.local(f"partial{x}", folder)
    return x + y


def test_calls_of_objects_partials_and_with_inner_classes_are_known_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Their addresses, and the ids that pickled classes get, change with each process."""
    where = str(tmp_path)

    @workflow
    def odd(ctx: WorkflowContext) -> list[Any]:
        class Point:
            def __init__(self, x: int) -> None:
                self.x = x

        @task
        def read(point: Any, folder: str) -> int:
            count.local(f"class{point.x}", folder)
            return int(point.x)

        calls = [
            task(Adder(1))(1, where),
            task(Adder(2))(1, where),
            task(functools.partial(add, 3))(1, where),
            task(functools.partial(add, 4))(1, where),
            read(Point(5), where),
            *read.map([(Point(6), where), (Point(7), where)]),
            *task(functools.partial(add, 8)).map([(1, where)]),
        ]
        values = [job.result() for job in calls]
        if ctx.attempt == 0:
            die()
        return values

    assert odd().result(WAIT) == [2, 3, 4, 5, 5, 6, 7, 9]  # type: ignore[call-arg]
    names = ["class5", "class6", "class7", "object1", "object2"]
    names += ["partial3", "partial4", "partial8"]
    assert sorted((tmp_path / "runs").read_text().split()) == names


def test_a_nested_workflow_that_dies_finds_its_own_children(
    cluster: Cluster, tmp_path: Path
) -> None:
    @workflow
    def inner(ctx: WorkflowContext) -> str:
        found = count("i", str(tmp_path)).result()
        if ctx.attempt == 0:
            die()
        return found

    @workflow
    def outer(ctx: WorkflowContext) -> Any:
        child = inner()  # type: ignore[call-arg]
        if ctx.attempt == 0:
            die()
        return [child, count("o", str(tmp_path))]

    assert outer().result(WAIT) == ["I", "O"]  # type: ignore[call-arg]
    assert sorted((tmp_path / "runs").read_text().split()) == ["i", "o"]


def test_a_workflow_whose_time_is_up_while_it_waits_goes_on_in_its_next_attempt(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task
    def long(folder: str) -> str:
        time.sleep(8)
        return count.local("long", folder)

    @workflow(time="6s")
    def waits() -> Any:
        return [long(str(tmp_path)).result(), count("after", str(tmp_path))]

    job = waits()
    assert job.result(WAIT) == ["LONG", "AFTER"]
    assert job.attempt >= 1
    assert (tmp_path / "runs").read_text().split() == ["long", "after"]


def test_a_workflow_that_waits_for_nobody_ends_at_its_limit(cluster: Cluster) -> None:
    @workflow(time="3s")
    def busy() -> None:
        time.sleep(30)

    with pytest.raises(TimeLimitReached):
        busy().result(WAIT)
