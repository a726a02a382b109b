"""Allocations: one job held open, in which calls run as steps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm import (
    Allocation,
    Cluster,
    JobCancelled,
    JobContext,
    JobFailed,
    OptionError,
    TimeLimitReached,
    UpstreamFailed,
    UsageError,
    task,
    workflow,
)


@task
def add(a: int, b: int) -> int:
    return a + b


@task
def where(ctx: JobContext) -> tuple[int, int, str | None, str]:
    return ctx.rank, ctx.world_size, ctx.step_id, os.environ["OMP_NUM_THREADS"]


@task
def times(seconds: float) -> tuple[float, float]:
    begun = time.time()
    time.sleep(seconds)
    return begun, time.time()


@task
def refuse(text: str) -> None:
    raise ValueError(text)


@task
def die() -> None:
    os.kill(os.getpid(), 9)


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def test_calls_in_an_allocation_are_steps_of_one_job(cluster: Cluster) -> None:
    with cluster.allocate(time="5min") as allocation:
        first, second = add(1, 2), add(3, 4)
    assert (first.result(60), second.result(60)) == (3, 7)
    assert allocation.job is not None
    assert [first.id, second.id] == [f"{allocation.job.id}.1", f"{allocation.job.id}.2"]
    assert allocation.job.result(60) == {"steps": 2, "failed": 0}


def test_a_step_has_a_run_directory_below_that_of_its_allocation(cluster: Cluster) -> None:
    with cluster.allocate() as allocation:
        job = add(1, 1)
        assert job.result(60) == 2
    assert allocation.job is not None
    assert Path(job.path).parent == Path(allocation.job.path) / "tasks" / "add"


def test_a_step_gets_the_ranks_and_cpus_that_it_asks_for(cluster: Cluster) -> None:
    with cluster.allocate(nodes=2, ntasks_per_node=2) as allocation:
        plain = where()
        wide = allocation.submit(where, nodes=2, all_ranks=True)()
        threaded = allocation.submit(where, cpus_per_task=2)()
        assert plain.result(60)[:2] == (0, 1)
        assert plain.result()[3] == "1"
        assert [rank[:2] for rank in wide.result(60)] == [(0, 2), (1, 2)]
        assert threaded.result(60)[3] == "2"


def test_steps_run_side_by_side_where_there_is_room(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2):
        one, other = times(4.0), times(4.0)
    assert overlap(one.result(60), other.result(60))


def test_a_step_waits_until_there_is_room_for_it(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2) as allocation:
        one = allocation.submit(times, cpus_per_task=2)(0.5)
        other = allocation.submit(times, cpus_per_task=2)(0.1)
    assert not overlap(one.result(60), other.result(60))


def test_an_exception_of_a_step_comes_back_as_it_is(cluster: Cluster) -> None:
    with cluster.allocate(), pytest.raises(ValueError, match="not today"):
        refuse("not today").result(60)


def test_a_step_that_is_killed_fails_and_the_next_one_runs(cluster: Cluster) -> None:
    with cluster.allocate():
        dead, good = die(), add(1, 1)
        with pytest.raises(JobFailed, match="SIGKILL"):
            dead.result(60)
        assert good.result(60) == 2


def test_a_map_in_an_allocation_is_many_steps(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2):
        array = add.map([(n, n) for n in range(5)], max_concurrent=1)
        assert array.results(60) == [0, 2, 4, 6, 8]
        assert array[3].id.endswith("_3")


def test_a_step_can_take_the_value_of_another(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2):
        total = add(add(1, 2), add(3, 4))  # type: ignore[arg-type]
        assert total.result(60) == 10


def test_a_step_whose_upstream_failed_never_runs(cluster: Cluster) -> None:
    with cluster.allocate():
        bad = refuse("first")
        after = add.after(bad)(1, 1)
        with pytest.raises(UpstreamFailed):
            after.result(60)


def test_a_running_and_a_waiting_step_can_be_cancelled(cluster: Cluster) -> None:
    with cluster.allocate():
        running, waiting, last = times(60), times(60), add(1, 1)
        while running.state != "RUNNING":
            time.sleep(0.02)
        assert waiting.cancel()
        assert running.cancel()
        for job in (running, waiting):
            with pytest.raises(JobCancelled):
                job.result(60)
        assert last.result(60) == 2


def test_a_step_ends_at_its_own_time_limit(cluster: Cluster) -> None:
    with cluster.allocate() as allocation, pytest.raises(TimeLimitReached):
        allocation.submit(times, time="1s")(60).result(60)


def test_steps_end_with_an_allocation_that_is_cancelled(cluster: Cluster) -> None:
    with cluster.allocate() as allocation:
        running, waiting = times(60), times(60)
        while running.state != "RUNNING":
            time.sleep(0.02)
        assert allocation.cancel_all()
        for job in (running, waiting):
            with pytest.raises(JobCancelled):
                job.result(60)


def test_an_allocation_without_orders_and_without_a_client_ends_by_itself(
    cluster: Cluster,
) -> None:
    allocation = cluster.allocate(idle="1s")
    assert allocation.job is not None
    assert allocation.job.result(60) == {"steps": 0, "failed": 0}


def test_a_step_can_be_attached_to_from_its_run(cluster: Cluster) -> None:
    with cluster.allocate():
        job = times(1.0)
        again = cluster.attach(job.run)
        assert again.id == job.id
        assert again.result(60) == job.result(60)


def test_the_logs_of_a_step_are_its_own(cluster: Cluster) -> None:
    @task
    def talk(word: str) -> None:
        print(f"said {word}")

    with cluster.allocate():
        jobs = [talk("one"), talk("two")]
        for job in jobs:
            job.result(60)
    assert [job.stdout() for job in jobs] == ["said one\n", "said two\n"]


@task
def steps_of_this_job(inner: bool) -> list[tuple[int, int]]:
    with Allocation.current() as allocation:
        first = add(1, 2).result(60)
        ranks = allocation.submit(where, ntasks=2, all_ranks=True)().result(60)
    return [(first, allocation.job is not None), *(rank[:2] for rank in ranks)]


def test_a_running_task_can_start_steps_of_its_own_job(cluster: Cluster) -> None:
    job = cluster.submit(steps_of_this_job, nodes=2, launch="once")(False)
    assert job.result(60) == [(3, True), (0, 2), (1, 2)]


def test_a_step_can_start_steps_too(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2) as allocation:
        job = allocation.submit(steps_of_this_job, cpus_per_task=2)(True)
        assert job.result(60) == [(3, True), (0, 2), (1, 2)]


@task
def nap(seconds: float) -> None:
    time.sleep(seconds)


@task
def a_step_of_this_step_is_known() -> bool:
    with Allocation.current() as allocation:
        inner = nap(2.0)
        # What is asked about a step that takes long; one that nobody knows is called lost.
        return inner.bare in allocation.backend.status([inner.key])  # type: ignore[list-item]


def test_a_step_of_a_step_is_known_while_it_runs(cluster: Cluster) -> None:
    with cluster.allocate(ntasks=2) as allocation:
        assert allocation.submit(a_step_of_this_step_is_known, cpus_per_task=2)().result(60)


def test_a_job_of_one_process_may_have_several_nodes(cluster: Cluster) -> None:
    @task(nodes=2, launch="once")
    def count(ctx: JobContext) -> tuple[int, int]:
        return ctx.world_size, ctx.nodes

    assert count().result(60)[1] == 2


def test_the_graph_knows_the_end_of_steps_whose_allocation_is_gone(cluster: Cluster) -> None:
    """They stood as running and pending for ever; on Slurm the question itself was an error."""
    from slurm.graph import read_graph

    with cluster.allocate() as allocation:
        one, other = times(300.0), times(300.0)
        assert not one.done()
        held = allocation.job
        assert held is not None
        states = {node.state for node in read_graph(cluster, held.run).nodes.values()}
        assert states <= {"RUNNING", "PENDING"}
        allocation.cancel_all()
    for step in (one, other):
        with pytest.raises(JobCancelled):
            step.result(60)
    for run in (held.run, one.run):
        steps = [node for node in read_graph(cluster, run).nodes.values() if node.name == "times"]
        assert steps and {node.state for node in steps} == {"CANCELLED"}


# ---- refusals -----------------------------------------------------------------------------------


def test_a_step_that_is_wider_than_its_allocation_is_refused_at_once(cluster: Cluster) -> None:
    with (
        cluster.allocate(nodes=2) as allocation,
        pytest.raises(UsageError, match=r"nodes=4.*allocation has 2"),
    ):
        allocation.submit(where, nodes=4)


def test_a_step_with_too_many_cpus_fails_and_its_log_says_why(cluster: Cluster) -> None:
    with cluster.allocate() as allocation:
        job = allocation.submit(add, cpus_per_task=64)(1, 1)
        with pytest.raises(JobFailed):
            job.result(60)
        assert "64 CPU(s) each; the allocation has 1 node(s) with 1 CPU(s)" in job.stderr()


def test_a_closed_allocation_takes_no_calls(cluster: Cluster) -> None:
    with cluster.allocate() as allocation:
        pass
    with pytest.raises(UsageError, match="is closed"):
        allocation.submit(add)


def test_the_current_allocation_is_refused_outside_of_a_job() -> None:
    with pytest.raises(UsageError, match="outside of a job"):
        Allocation.current()


def test_an_allocation_is_not_requeued(cluster: Cluster) -> None:
    with pytest.raises(OptionError, match="requeue"):
        cluster.allocate(requeue=True)


def test_a_job_of_the_cluster_is_no_argument_of_a_step(cluster: Cluster) -> None:
    outside = add(1, 1)
    with cluster.allocate(), pytest.raises(UsageError, match="another cluster"):
        add(outside, 1)  # type: ignore[arg-type]


def test_a_step_cannot_bring_a_secret(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_A_TEST", "hush")
    with cluster.allocate() as allocation, pytest.raises(UsageError, match="TOKEN_OF_A_TEST"):
        allocation.submit(add, secrets=["TOKEN_OF_A_TEST"])(1, 1)
    assert not any("hush" in p.read_text("latin1") for p in Path(cluster.base).rglob("*.json"))


def test_on_the_debug_backend_steps_run_in_this_process(tmp_path: Path) -> None:
    with Cluster("debug", job_base_dir=tmp_path) as debug, debug.allocate(nodes=4):
        assert add(1, 2).result() == 3


def test_a_step_with_a_retry_is_refused(cluster: Cluster) -> None:
    with cluster.allocate() as allocation, pytest.raises(UsageError, match="retry=None"):
        allocation.submit(add, retry=2)


# ---- whatever becomes of the client, and around an allocation -----------------------------------

_CLIENT = """
import sys, time
from slurm import Cluster, task

@task
def slow(n):
    time.sleep(1)
    return n

with Cluster("embedded", job_base_dir=sys.argv[1]) as cluster:
    allocation = cluster.allocate(idle="2s")
    with allocation:
        jobs = [slow(n) for n in range(3)]
        print(*[job.run for job in jobs], sep="\\n", flush=True)
        time.sleep(600)
"""


def test_steps_go_on_when_the_client_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(_CLIENT)
    client = subprocess.Popen(
        [sys.executable, str(script), cluster.base], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    runs = [client.stdout.readline().strip() for _ in range(3)]
    client.kill()
    client.communicate()
    assert [cluster.attach(run).result(60) for run in runs] == [0, 1, 2]
    assert cluster.attach(runs[0].partition("/tasks/")[0]).result(60)["steps"] == 3


def test_a_workflow_can_hold_an_allocation(cluster: Cluster) -> None:
    @workflow
    def two_phases(n: int) -> int:
        with Cluster().allocate(ntasks=2):
            return add(add(n, 1), add(n, 2)).result(60)  # type: ignore[arg-type]

    assert two_phases(10).result(60) == 23


def test_a_failing_rank_of_torchrun_is_the_failure_of_the_job(cluster: Cluster) -> None:
    @task(nodes=2, ntasks_per_node=2, launch="torchrun")
    def one_fails(ctx: JobContext) -> int:
        if ctx.rank == 2:
            raise KeyError("rank 2")
        time.sleep(0.2)
        return ctx.rank

    with pytest.raises(KeyError, match="rank 2"):
        one_fails().result(60)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_functions_and_classes_of_a_script_reach_the_children_of_a_task(
    cluster: Cluster, tmp_path: Path, method: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(_PROCESSES)
    done = subprocess.run(
        [sys.executable, str(script), cluster.base, method],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[11, 21] [25, 36] 3\n", done.stderr


_PROCESSES = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from slurm import Cluster, task

class Box:
    def __init__(self, n):
        self.n = n

def unbox(box):
    return box.n + 1

def rebox(n):
    return Box(n)

@task
def work(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        plain = pool.map(unbox, [Box(10), Box(20)])
        boxes = pool.map(rebox, [1, 2])
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        squares = list(pool.map(square, [5, 6]))
    return plain, squares, sum(box.n for box in boxes)

def square(n):
    return n * n

if __name__ == "__main__":
    with Cluster("embedded", job_base_dir=sys.argv[1]):
        print(*work(sys.argv[2]).result(60))
"""
