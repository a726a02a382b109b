"""Retries on the embedded scheduler: what runs again, how often, and what the others see of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, Job, Retry, Task, errors, task
from slurm.api import one_job

LIMIT = 90.0


class OwnError(LookupError):
    """An error of the test's own; its module is not importable on the node."""


def failing(log: Path, fail: Callable[[int], Any], **options: Any) -> Task[..., int]:
    """A task whose call `(x, times)` fails `times` times; each run leaves a line in `log`."""

    def sometimes(x: int = 0, times: int = 1) -> int:
        with log.open("a") as f:
            f.write(f"{x}\n")
        before = log.read_text().split().count(str(x)) - 1
        if before < times:
            fail(before)
        return x + 100

    return task(**options)(sometimes)


def raising(number: int) -> None:
    raise ValueError(f"failure {number}")


def runs(log: Path) -> list[int]:
    return sorted(map(int, log.read_text().split()))


def kinds(job: Job[Any]) -> list[str | None]:
    return [attempt.kind for attempt in job.history]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# ---- what is retried ----------------------------------------------------------------------------


def test_an_exception_of_the_named_kind_is_tried_again_and_the_history_tells(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = failing(tmp_path / "log", raising, retry=Retry(times=2, on=(ValueError,)))()
    first = job.id
    assert job.result(LIMIT) == 100
    assert kinds(job) == ["raised", None]
    assert job.history[0].error == "ValueError: failure 0"
    assert job.history[0].job_id == first
    assert job.history[1].job_id == job.id != first
    assert runs(tmp_path / "log") == [0, 0]


def test_another_exception_fails_at_once(cluster: Cluster, tmp_path: Path) -> None:
    job = failing(tmp_path / "log", raising, retry=Retry(times=2, on=(OSError,)))()
    with pytest.raises(ValueError, match="failure 0"):
        job.result(LIMIT)
    assert kinds(job) == ["raised"]
    assert runs(tmp_path / "log") == [0]


def test_used_up_retries_end_with_the_last_error_and_a_whole_history(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = failing(tmp_path / "log", raising, retry=2)(times=9)
    with pytest.raises(ValueError, match="failure 2"):
        job.result(LIMIT)
    assert [attempt.error for attempt in job.history] == [
        f"ValueError: failure {n}" for n in range(3)
    ]
    assert len({attempt.job_id for attempt in job.history}) == 3
    assert runs(tmp_path / "log") == [0, 0, 0]


@pytest.mark.parametrize("on", [LookupError, OwnError, "LookupError", (OSError, OwnError)])
def test_classes_count_with_their_bases_and_by_name(
    cluster: Cluster, tmp_path: Path, on: Any
) -> None:
    def own(number: int) -> None:
        raise OwnError

    job = failing(tmp_path / "log", own, retry=Retry(on=on))()
    assert job.result(LIMIT) == 100


def kill_myself(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_without_an_exception_is_a_job_that_failed(
    cluster: Cluster, tmp_path: Path
) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    job = failing(log, kill_myself, retry=Retry(on=(errors.JobFailed,)))()
    not_again = failing(other, kill_myself, retry=Retry(on=(OSError,)))()
    assert job.result(LIMIT) == 100
    assert kinds(job) == ["died", None]
    with pytest.raises(errors.JobFailed):
        not_again.result(LIMIT)
    assert runs(other) == [0]


def test_sys_exit_is_a_failure_that_on_can_name(cluster: Cluster, tmp_path: Path) -> None:
    def leave(number: int) -> None:
        sys.exit(3)

    job = failing(tmp_path / "log", leave, retry=Retry(on=(errors.FunctionExited,)))()
    assert job.result(LIMIT) == 100
    assert kinds(job) == ["exited", None]


def test_a_call_that_ran_out_of_time_gets_more(cluster: Cluster, tmp_path: Path) -> None:
    @task(time="2s", retry=Retry(timeout="time*20"))
    def slow() -> str:
        time.sleep(5)
        return "done"

    job = slow()
    assert job.result(LIMIT) == "done"
    assert kinds(job) == ["timeout", None]
    assert [attempt.options["time"] for attempt in job.history] == [2, 40]


def test_time_that_is_not_to_grow_is_no_reason_to_try_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(time="2s", retry=Retry(times=3))
    def slow() -> None:
        time.sleep(60)

    job = slow()
    with pytest.raises(errors.TimeLimitReached):
        job.result(LIMIT)
    assert kinds(job) == ["timeout"]


def test_of_a_map_only_what_failed_runs_again_and_the_order_stays(
    cluster: Cluster, tmp_path: Path
) -> None:
    task_ = failing(tmp_path / "log", raising, retry=Retry(times=2))
    array = task_.map([(0, 0), (1, 1), (2, 0), (3, 2), (4, 9)])
    assert array[:4].results(LIMIT) == [100, 101, 102, 103]
    assert isinstance(array[4].exception(LIMIT), ValueError)
    assert [len(job.history) for job in array] == [1, 2, 1, 3, 3]
    assert runs(tmp_path / "log") == [0, 1, 1, 2, 3, 3, 3, 4, 4, 4]


def test_a_backoff_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    job = failing(tmp_path / "log", raising, retry=Retry(backoff=3))()
    assert job.result(LIMIT) == 100
    files = Path(job.path, "events").glob("*.txt")
    begins = [line for file in files for line in file.read_text().split("\n")]
    times = [int(e.split("time=")[1].split()[0]) for e in begins if e.startswith("begin")]
    assert times[1] - times[0] >= 2


def test_the_log_is_that_of_the_last_attempt(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    @task(retry=1)
    def talk() -> None:
        print("first" if not mark.exists() else "second")
        if not mark.exists():
            mark.touch()
            raise ValueError

    job = talk()
    job.result(LIMIT)
    assert job.stdout() == "second\n"


# ---- what waits for it --------------------------------------------------------------------------


add: Task[..., int] = task(lambda *values: sum(values), job_name="add")


def test_what_takes_the_value_of_a_retried_job_goes_behind_the_retry(
    cluster: Cluster, tmp_path: Path
) -> None:
    first = failing(tmp_path / "log", raising, retry=Retry(times=2))(times=2)
    second = add(first, 1)
    third = add(second, [second][0])
    assert third.result(LIMIT) == 202
    assert second.result(LIMIT) == 101
    assert first.result(LIMIT) == 100
    assert set(kinds(second)) <= {"waited", None}


@pytest.mark.full
def test_what_only_waits_for_a_retried_job_begins_after_its_success(
    cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    first = failing(log, raising, retry=Retry(times=2))(times=2)
    count: Task[[], int] = task(lambda: len(log.read_text().split()), job_name="count")
    assert count.after(first)().result(LIMIT) == 3
    assert first.succeeded or first.wait(LIMIT)


@pytest.mark.full
def test_a_map_over_retried_jobs_gets_all_values(cluster: Cluster, tmp_path: Path) -> None:
    task_ = failing(tmp_path / "log", raising, retry=Retry(times=2))
    array = task_.map([(0, 0), (1, 1), (2, 2)])
    each = add.map([(job,) for job in array])
    assert add(array[0], array[1], array[2]).result(LIMIT) == 303
    assert each.results(LIMIT) == [100, 101, 102]
    assert task(len)(array).result(LIMIT) == 3


def test_what_waits_for_a_job_that_fails_for_good_fails_with_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    first = failing(tmp_path / "log", raising, retry=Retry(times=1))(times=9)
    second = add(first)
    third = add(second)
    after = add.after(first)(1)
    for job in (second, third, after):
        with pytest.raises(errors.UpstreamFailed):
            job.result(LIMIT)


def test_the_graph_shows_calls_that_go_on_as_open(cluster: Cluster, tmp_path: Path) -> None:
    from slurm.graph import read_graph

    first = failing(tmp_path / "log", raising, retry=Retry(backoff="1h"))()
    second = add.map([(first,), (1,)], pack=2)
    one = add(first)
    until(lambda: not one.done() and not second.done() and kinds(one) == ["waited", None])
    until(lambda: second[1].done() and kinds(second.members[0]) == ["waited", None])
    for run in (first.run, second.run, one.run):
        assert read_graph(cluster, run).nodes[run].state == "PENDING"
    cluster.cancel([first, one, *second.members])


# ---- whoever is there does it once --------------------------------------------------------------

GONE = """
import os, sys
from slurm import Cluster, Retry, task

def f(log):
    with open(log, "a") as out:
        out.write("x")
    if len(open(log).read()) < 3:
        raise ValueError(len(open(log).read()))
    return "third time"

with Cluster("embedded", job_base_dir=sys.argv[1]):
    job = task(retry=Retry(times=3))(f)(sys.argv[2])
    print(job.run, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_without_a_client_the_guard_retries_and_an_attached_client_sees_all_of_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(GONE)
    done = subprocess.run(
        [sys.executable, script, str(tmp_path / "jobs"), log],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == -9
    until(lambda: log.exists() and log.read_text() == "xxx")
    job = cluster.attach(done.stdout.strip())
    assert job.result(LIMIT) == "third time"
    assert [attempt.error for attempt in job.history] == ["ValueError: 1", "ValueError: 2", ""]


def test_many_who_judge_the_same_failure_submit_one_retry(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = failing(log, raising, retry=Retry(backoff=1))()
    until(lambda: log.exists())
    with ThreadPoolExecutor(8) as pool:
        judged = [
            pool.submit(until, lambda: cluster.backend.retry(job.run, "0")) for _ in "12345678"
        ]
    for each in judged:
        each.result()
    assert job.result(LIMIT) == 100
    assert runs(log) == [0, 0]
    names = sorted(path.name for path in Path(job.path, "submit").glob("*.id"))
    assert names == ["0.id", "0r.id"]


def test_a_retry_whose_submitter_died_is_submitted_by_the_next(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_job, "PATIENCE", 0.5)
    log = tmp_path / "log"
    job = failing(log, raising, retry=1, begin="now+2")()
    # Somebody said that it would submit the retry, and was never heard of again.
    Path(job.path, "submit", "0r.intent").write_text("0")
    assert job.result(LIMIT) == 100
    assert runs(log) == [0, 0]


def test_a_cancelled_job_is_not_retried(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def stay(number: int) -> None:
        time.sleep(300)

    job = failing(log, stay, retry=Retry(times=3))()
    until(lambda: log.exists())
    assert job.cancel()
    with pytest.raises(errors.JobCancelled):
        job.result(LIMIT)
    until(lambda: not cluster.queue())
    assert runs(log) == [0]


def test_a_job_that_waits_for_its_retry_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    job = failing(tmp_path / "log", raising, retry=Retry(times=3, backoff="1h"))()
    first = job.id
    until(lambda: job.done() or job.id != first)
    assert not job.done()
    job.cancel()
    with pytest.raises(errors.JobCancelled):
        job.result(LIMIT)
    until(lambda: not cluster.queue())
    assert runs(tmp_path / "log") == [0]


def test_retry_failed_keeps_the_policy(cluster: Cluster, tmp_path: Path) -> None:
    array = failing(tmp_path / "log", raising, retry=1).map([(0, 3), (1, 0)])
    array.wait(LIMIT)
    assert array.retry_failed().results(LIMIT) == [100, 101]


def test_a_retried_call_fills_the_cache(cluster: Cluster, tmp_path: Path) -> None:
    flaky = failing(tmp_path / "log", raising, retry=1, cache=True)
    flaky().result(LIMIT)
    assert flaky().cached


def test_calls_of_a_batch_wait_for_the_retries_of_others_in_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    flaky = failing(tmp_path / "log", raising, retry=Retry(times=2))
    with cluster.batch():
        firsts = [flaky(x, times=x % 2) for x in range(4)]
        seconds = [add(first, 1) for first in firsts]
        last = add(*seconds)
    assert last.result(LIMIT) == 4 * 101 + 6
    assert [job.result(LIMIT) for job in seconds] == [101, 102, 103, 104]


def test_a_job_attached_twice_has_the_history_of_both(cluster: Cluster, tmp_path: Path) -> None:
    job = failing(tmp_path / "log", raising, retry=Retry(backoff=1))()
    again = cluster.attach(job.run)
    assert again.result(LIMIT) == 100
    assert job.result(LIMIT) == 100
    assert again.history == job.history
    later = cluster.attach(job.run)
    assert later.result(LIMIT) == 100
    assert kinds(later) == kinds(job) == ["raised", None]


def test_a_default_of_the_cluster_reaches_the_children_of_a_workflow(tmp_path: Path) -> None:
    from slurm import workflow

    child = failing(tmp_path / "log", raising)

    @workflow
    def whole() -> int:
        return child(5).result(60)

    with Cluster("embedded", job_base_dir=tmp_path / "jobs", retry=Retry(times=1, on=ValueError)):
        assert whole().result(LIMIT) == 105
    assert runs(tmp_path / "log") == [5, 5]


def test_a_workflow_that_is_retried_does_not_submit_its_children_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    from slurm import workflow

    mark, log = tmp_path / "mark", tmp_path / "log"

    def child(x: int) -> int:
        with log.open("a") as f:
            f.write("x")
        return x

    one = task(child)

    @workflow(retry=Retry(times=1))
    def whole() -> int:
        value = one(7).result(60)
        if not mark.exists():
            mark.touch()
            raise ValueError("after the child")
        return value

    job = whole()
    assert job.result(LIMIT) == 7
    assert kinds(job) == ["raised", None]
    assert log.read_text() == "x"
