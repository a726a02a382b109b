"""A workflow collects what it calls until its first wait, and nobody notices but the scheduler."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import Cluster, Job, task, workflow
from slurm.active import active_cluster

WAIT = 90


@task
def square(x: int) -> int:
    return x * x


@task
def total(values: list[int], plus: int = 0) -> int:
    return sum(values) + plus


@task
def touch(path: str) -> str:
    Path(path).touch()
    return path


def runs(jobs: list[Job[Any]]) -> int:
    return len({job.run for job in jobs})


def test_calls_of_one_task_and_layer_go_out_as_one_array_at_the_first_wait(
    cluster: Cluster,
) -> None:
    @workflow
    def fans_out() -> Any:
        squares = [square(n) for n in range(4)]
        sums = [total([one, 1]) for one in squares]  # type: ignore[list-item]
        kept = [job.key is None for job in (*squares, *sums)]
        last = total(sums).result()  # type: ignore[arg-type]
        return all(kept), runs(squares), runs(sums), runs([*squares, *sums]), last

    assert fans_out().result(WAIT) == (True, 1, 1, 2, 18)


# ---- here: the same code with the orchestrator in this process ----------------------------------


@pytest.fixture
def inside(cluster: Cluster) -> Iterator[Cluster]:
    """The body of a test is a workflow that runs in this process."""
    from slurm.journal import Journal, set_current

    before = set_current(Journal(cluster.base, "wf-20260101-000000-aaaaaa", on_disk=False))
    try:
        with cluster:
            yield cluster
    finally:
        set_current(before)


@pytest.mark.parametrize("ask", ["id", "run", "path", "state", "done", "callback", "cancel"])
def test_whoever_asks_about_a_job_sends_what_was_collected(inside: Cluster, ask: str) -> None:
    jobs = [square(2), square(3)]
    assert [job.key for job in jobs] == [None, None]
    assert "square" in repr(jobs[0])  # to look at it in a debugger changes nothing
    assert jobs[0].key is None
    called = threading.Event()
    questions: dict[str, Any] = {
        "done": jobs[0].done,
        "cancel": jobs[0].cancel,
        "callback": lambda: jobs[0].add_done_callback(lambda _: called.set()),
    }
    questions.get(ask, lambda: getattr(jobs[0], ask))()
    assert all(job.key is not None for job in jobs)
    assert runs(list(jobs)) == 1
    assert jobs[1].result(WAIT) == 9
    assert ask != "callback" or called.wait(WAIT)


def test_an_argument_that_changes_after_the_call_does_not_change_the_call(inside: Cluster) -> None:
    values, large = [1], list(range(20_000))
    jobs = [total(values)]
    values.append(5)
    jobs += [total(values), total(large), total(large)]
    large.append(7)
    assert [job.result(WAIT) for job in jobs] == [1, 6, 199990000, 199990000]
    files = list(Path(inside.base).glob("wf-*/tasks/total/*/shared.bin"))
    assert len(files) == 1  # what two calls share is stored once, as in a map


def test_a_variable_of_the_function_that_changes_after_the_call_does_not_either(
    inside: Cluster,
) -> None:
    jobs = []
    for factor in (2, 3):

        @task
        def times(x: int) -> int:
            return factor * x  # noqa: B023 - that it changes is the point

        jobs.append(times(10))
    assert [job.result(WAIT) for job in jobs] == [20, 30]


def test_jobs_of_several_layers_as_arguments_of_one_call_are_all_waited_for(
    inside: Cluster,
) -> None:
    first = square(3)
    second = total([first, 1])  # type: ignore[list-item]
    both = total([second, first])  # type: ignore[list-item]
    assert both.result(WAIT) == 19


def test_a_map_over_jobs_that_were_only_called_sends_them_first(inside: Cluster) -> None:
    ones = [square(1), square(2)]
    after = touch.after(ones[0], kind="afterany")(str(Path(inside.base) / "mark"))
    assert total.map([([job],) for job in ones]).results(WAIT) == [1, 4]
    assert after.wait(WAIT)


def test_a_function_that_waits_for_a_file_of_its_child_does_not_wait_for_ever(
    inside: Cluster, tmp_path: Path
) -> None:
    touch(str(tmp_path / "mark"))
    deadline = time.monotonic() + WAIT
    while not (tmp_path / "mark").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_standard_librarys_wait_is_a_wait(inside: Cluster) -> None:
    done, left = concurrent.futures.wait([square(2), square(3)], timeout=WAIT)
    assert (sorted(job.result() for job in done), left) == ([4, 9], set())


def test_threads_call_and_wait_side_by_side(inside: Cluster) -> None:
    def work(n: int) -> int:
        return total([square(n), square(n)]).result(WAIT)  # type: ignore[list-item]

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [0, 2, 8, 18]
    made = list(Path(inside.base).glob("wf-*/tasks/*/*/metadata.json"))
    assert 2 <= len(made) <= 8


def test_a_forked_process_submits_nothing_of_its_parent_again(
    inside: Cluster, tmp_path: Path
) -> None:
    job = touch(str(tmp_path / "mark"))
    child = os.fork()
    if child == 0:
        active_cluster("test")._send_batch()
        os._exit(0)
    os.waitpid(child, 0)
    assert job.result(WAIT)
    assert len(list(Path(inside.base).glob("wf-*/tasks/touch/*"))) == 1


def test_a_call_that_is_refused_ends_with_the_refusal_and_the_others_go_out(
    inside: Cluster,
) -> None:
    good = square(2)
    bad = square.with_options(mem="900G")(3)
    behind = total([bad])  # type: ignore[list-item]
    with pytest.raises(slurm.SlurmError):
        inside._send_batch()
    assert good.result(WAIT) == 4
    with pytest.raises(slurm.SlurmError, match="memory"):
        bad.result(WAIT)
    with pytest.raises(slurm.UpstreamFailed, match="square was not submitted"):
        behind.result(WAIT)


def test_a_batch_of_its_own_inside_goes_out_at_its_end(inside: Cluster) -> None:
    before = square(1)
    with inside.batch():
        assert before.key is not None
        jobs = [square(2), total([before])]  # type: ignore[list-item]
        assert jobs[0].key is None
    assert all(job.key is not None for job in jobs)
    assert [job.result(WAIT) for job in jobs] == [4, 1]
