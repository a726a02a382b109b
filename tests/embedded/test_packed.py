"""The packed map: many items in few jobs, each with an outcome of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import Cluster, JobContext, JobState, PackedArray, Retry, task
from slurm.model.parts import Cut, cut_map

WAIT = 90


@task
def square(x: int, plus: int = 0) -> int:
    return x * x + plus


@task
def none(x: int) -> None:
    return None


@task
def add_up(values: Any) -> int:
    return sum(values)


@task
def picky(x: int) -> int:
    if x % 10 == 3:
        raise ValueError(f"item {x}")
    return x


@task
def wait_for(item: int, folder: str) -> int:
    """Note that it ran; the items from 5 on wait until they may go on."""
    with open(f"{folder}/ran", "a") as f:
        f.write(f"{item}\n")
    until = time.monotonic() + 60
    while item >= 5 and not os.path.exists(f"{folder}/go") and time.monotonic() < until:
        time.sleep(0.02)
    return item


def ran(folder: Path) -> list[int]:
    path = folder / "ran"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def until_ran(folder: Path, item: int) -> None:
    end = time.monotonic() + WAIT
    while item not in ran(folder):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_item_whose_counterpart_failed_says_so_by_its_type(cluster: Cluster) -> None:
    paired = square.after(picky.map(range(2, 5)), kind="aftercorr").map(range(3), pack=3)
    found = paired.results(WAIT, return_exceptions=True)
    assert [type(value) for value in found] == [int, slurm.UpstreamFailed, int]


# ---- values -------------------------------------------------------------------------------------


def test_values_come_back_in_the_order_of_the_items(cluster: Cluster) -> None:
    array = square.map(range(1000), pack=300, common={"plus": 1})
    assert isinstance(array, PackedArray) and len(array) == 1000
    assert array.results(WAIT) == [x * x + 1 for x in range(1000)]
    assert array[17].result() == 290 and array[-1].result() == 999 * 999 + 1
    assert array[10:13].results() == [101, 122, 145]
    assert len(array.members) == 4 and len(array[:300].members) == 1
    assert array[0] is array[0] and array[0].done() and array[0].state is JobState.COMPLETED
    assert str(array.progress) == "1000 of 1000 done, 0 failed" and array.done() and array.wait()
    assert array.states == {JobState.COMPLETED: 1000}
    assert array.partial_results()[999] == 999 * 999 + 1
    assert not array.failed and array.retry_failed() is array


def test_dicts_and_tuples_are_unpacked_as_in_every_map(cluster: Cluster) -> None:
    assert square.map([{"x": 2, "plus": 1}, (3, 1), 4], pack="auto").results(WAIT) == [5, 10, 16]
    assert square.starmap([[2, 1], (3, 1)], pack=2).results(WAIT) == [5, 10]


def test_ten_thousand_items_need_no_more_files_than_ten(cluster: Cluster) -> None:
    array = none.with_options(cpus_per_task=2).map(range(10_000), pack=5_000)
    assert array.results(WAIT) == [None] * 10_000
    assert all(job.wait(WAIT) for job in array.members)
    run = Path(cluster.base) / array.run
    on_node = [p for p in run.glob("*/*") if p.is_file() and p.parent.name != "submit"]
    assert len(on_node) <= 10, on_node
    assert isinstance(array, PackedArray)
    assert len(array.rates) == 2 and min(array.rates) > 0


def test_items_settle_while_their_job_still_runs(cluster: Cluster, tmp_path: Path) -> None:
    array = wait_for.map([(i, str(tmp_path)) for i in range(6)], pack=6)
    ended = array.as_completed(WAIT)
    assert sorted(next(ended).result() for _ in range(5)) == [0, 1, 2, 3, 4]
    assert array.progress.done == 5 and not array[5].done()
    with pytest.raises(TimeoutError, match="5 of 6 items"):
        array.results(0.1)
    (tmp_path / "go").touch()
    assert [job.result() for job in ended] == [5]
    assert sorted(array.results(order="completed")) == list(range(6))


def test_a_packed_map_can_be_awaited(cluster: Cluster) -> None:
    async def values() -> tuple[list[int], int]:
        array = square.map(range(50), pack=25)
        return await array, await array[7]

    assert asyncio.run(values()) == ([x * x for x in range(50)], 49)


def test_a_done_callback_of_an_item_is_called(cluster: Cluster) -> None:
    seen: list[int] = []
    array = square.map(range(20), pack=20)
    array[4].add_done_callback(lambda job: seen.append(job.result()))
    array.wait(WAIT)
    until = time.monotonic() + WAIT
    while not seen and time.monotonic() < until:
        time.sleep(0.01)
    assert seen == [16]


def test_large_values_and_those_with_classes_of_the_script_come_back(cluster: Cluster) -> None:
    big = task(lambda n: bytes(n))
    sizes = [3, 300_000, 2_000_000, 200_000, 200_000, 200_000, 200_000, 0]
    assert [len(v) for v in big.map(sizes, pack=8).results(WAIT)] == sizes


def test_each_item_has_a_context_of_its_own(cluster: Cluster) -> None:
    @task
    def who(x: int, ctx: JobContext) -> tuple[int, int | None, str]:
        return x, ctx.array_index, ctx.output_dir.name

    array = who.map(range(100, 140), pack=15)
    assert array.results(WAIT) == [(100 + i, i, str(i)) for i in range(40)]


def test_a_coroutine_is_run_to_its_end(cluster: Cluster) -> None:
    @task
    async def later(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    assert later.map(range(5), pack=5).results(WAIT) == [1, 2, 3, 4, 5]


def test_workers_do_not_share_random_numbers(cluster: Cluster) -> None:
    @task(cpus_per_task=4)
    def draw(x: int) -> float:
        import random

        time.sleep(0.02)
        return random.random()

    assert len(set(draw.map(range(40), pack=40).results(WAIT))) == 40


# ---- failures -----------------------------------------------------------------------------------


def test_an_item_that_raises_has_its_own_exception_and_the_job_exits_with_1(
    cluster: Cluster,
) -> None:
    array = picky.map(range(20), pack=10)
    got = array.results(WAIT, return_exceptions=True)
    assert [v for v in got if isinstance(v, int)] == [x for x in range(20) if x % 10 != 3]
    with pytest.raises(ValueError, match="item 13") as caught:
        array[13].result()
    assert "in the job" in str(caught.value.__cause__) and "picky" in str(caught.value.__cause__)
    assert "workers.py" not in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="item 3"):
        array.results()
    assert [job.index for job in array.failed] == [3, 13] and not array.wait()
    assert array.states == {JobState.COMPLETED: 18, JobState.FAILED: 2}
    assert [(m.wait(WAIT), m.exit_code) for m in array.members] == [(False, 1), (False, 1)]


def test_only_what_failed_runs_again_and_the_rest_keeps_its_value(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task
    def moody(x: int, folder: str) -> int:
        with open(f"{folder}/ran", "a") as f:
            f.write(f"{x}\n")
        if x in (2, 7) and not os.path.exists(f"{folder}/fine"):
            raise OSError("not now")
        return x

    first = moody.map([(x, str(tmp_path)) for x in range(10)], pack=5)
    assert not first.wait(WAIT)
    (tmp_path / "fine").touch()
    again = first.retry_failed(mem="64M")
    assert again.results(WAIT) == list(range(10)) and len(again) == 10
    assert "mem" not in first[2].options and again[2].options["mem"] == 64
    assert ran(tmp_path) == sorted([*range(10), 2, 7])


def test_an_item_that_raised_is_tried_again_as_its_task_says(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(retry=Retry(times=2, on=OSError))
    def moody(x: int, folder: str) -> int:
        with open(f"{folder}/ran", "a") as f:
            f.write(f"{x}\n")
        if x == 1 and ran(Path(folder)).count(1) < 3:
            raise ConnectionError("come back later")
        if x == 2:
            raise OSError("never")
        if x == 3:
            raise ValueError("not worth it")
        return x

    got = moody.map([(x, str(tmp_path)) for x in range(5)], pack=5).results(
        WAIT, return_exceptions=True
    )
    assert [type(v).__name__ for v in got] == ["int", "int", "OSError", "ValueError", "int"]
    assert ran(tmp_path) == [0, 1, 1, 1, 2, 2, 2, 3, 4]


def test_an_item_that_kills_its_worker_is_named_and_harms_no_other(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(cpus_per_task=2)
    def deadly(x: int, folder: str) -> int:
        with open(f"{folder}/ran", "a") as f:
            f.write(f"{x}\n")
        if x == 31:
            os.kill(os.getpid(), 9)
        if x == 57:
            os._exit(3)
        return x

    array = deadly.map([(x, str(tmp_path)) for x in range(100)], pack=100)
    got = array.results(WAIT, return_exceptions=True)
    assert [v for v in got if isinstance(v, int)] == [x for x in range(100) if x not in (31, 57)]
    killed, left = array[31].exception(), array[57].exception()
    assert isinstance(killed, slurm.WorkerDied) and "item 31" in str(killed)
    assert "each of 3 tries" in str(killed) and "killed by SIGKILL" in str(killed)
    assert isinstance(left, slurm.WorkerDied) and "exit code 3" in str(left)
    # Nothing but the item under way is lost with a worker: all others ran once.
    assert ran(tmp_path) == sorted([*range(100), 31, 31, 57, 57])


def test_an_item_whose_worker_died_once_is_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    @task
    def unlucky(x: int, folder: str) -> int:
        mark = f"{folder}/{x}"
        if x == 5 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 11)
        return x

    array = unlucky.map([(x, str(tmp_path)) for x in range(10)], pack=10)
    assert array.results(WAIT) == list(range(10))
    assert "killed by SIGSEGV while it worked on item 5" in array[5].stderr()


def test_a_child_that_outlives_a_dead_worker_does_not_hide_its_death(cluster: Cluster) -> None:
    @task
    def leave_a_child(x: int) -> int:
        if x == 1:
            if os.fork() == 0:
                time.sleep(8)
                os._exit(0)
            os.kill(os.getpid(), 9)
        return x

    array = leave_a_child.map(range(3), pack=3)
    assert isinstance(array[1].exception(WAIT), slurm.WorkerDied)
    assert array[0].result(WAIT) == 0 and array[2].result(WAIT) == 2


def test_leaving_the_interpreter_is_reported_as_such(cluster: Cluster) -> None:
    @task
    def leave(x: int) -> int:
        if x == 2:
            sys.exit("enough")
        return x

    array = leave.map(range(4), pack=4)
    with pytest.raises(slurm.FunctionExited, match="enough"):
        array[2].result(WAIT)
    assert array[3].result(WAIT) == 3


def test_a_value_that_cannot_be_pickled_fails_alone(cluster: Cluster) -> None:
    @task
    def handle(x: int) -> Any:
        return threading.Lock() if x == 1 else x

    array = handle.map(range(3), pack=3)
    with pytest.raises(slurm.UnpicklableResult, match="cannot be pickled"):
        array[1].result(WAIT)
    assert array[0].result(WAIT) == 0 and array[2].result(WAIT) == 2


class Refuses:
    """Cannot be unpickled in a job."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_refuse, ())


def _refuse() -> None:
    if "SLURM_SDK_RUN" in os.environ:
        raise LookupError("no such thing on this node")


def test_what_keeps_a_pack_from_starting_is_the_outcome_of_all_its_items(cluster: Cluster) -> None:
    array = square.map(range(5), pack=5, common={"plus": Refuses()})
    for error in array.results(WAIT, return_exceptions=True):
        assert isinstance(error, LookupError)
    assert len(array.failed) == 5


def test_cancelling_half_way_keeps_what_is_there(cluster: Cluster, tmp_path: Path) -> None:
    array = wait_for.map([(i, str(tmp_path)) for i in range(10)], pack=10)
    ended = array.as_completed(WAIT)
    for _ in range(5):
        next(ended)
    assert array[7].cancel() is False and array[5:7].cancel() == 0  # others share its job
    assert array.cancel() == 5
    got = array.results(WAIT, return_exceptions=True)
    assert got[:5] == [0, 1, 2, 3, 4]
    assert all(isinstance(error, slurm.JobCancelled) for error in got[5:])
    assert array[9].cancelled() and array.states[JobState.CANCELLED] == 5


def test_a_requeued_pack_runs_only_what_has_no_outcome(cluster: Cluster, tmp_path: Path) -> None:
    array = wait_for.with_options(requeue=True).map([(i, str(tmp_path)) for i in range(8)], pack=8)
    ended = array.as_completed(WAIT)
    for _ in range(5):
        next(ended)
    until_ran(tmp_path, 5)
    array.members[0].requeue()
    (tmp_path / "go").touch()
    assert array.results(WAIT) == list(range(8))
    seen = ran(tmp_path)
    assert [i for i in seen if i < 5] == [0, 1, 2, 3, 4] and set(seen) == set(range(8))


def test_an_item_that_failed_before_a_requeue_keeps_its_exception(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(requeue=True)
    def first_fails(item: int, folder: str) -> int:
        if item == 0:
            raise ValueError(item)
        return wait_for.unwrapped(item + 4, folder)

    array = first_fails.map([(i, str(tmp_path)) for i in range(2)], pack=2)
    until_ran(tmp_path, 5)
    array.members[0].requeue()
    end = time.monotonic() + WAIT
    while ran(tmp_path).count(5) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    (tmp_path / "go").touch()
    array.wait(WAIT)
    failed, value = array.results(WAIT, return_exceptions=True)
    assert repr(failed) == "ValueError(0)" and value == 5


def test_a_pack_at_its_time_limit_keeps_what_is_there(cluster: Cluster, tmp_path: Path) -> None:
    array = wait_for.with_options(time="4s").map([(i, str(tmp_path)) for i in range(8)], pack=8)
    got = array.results(WAIT, return_exceptions=True)
    assert got[:5] == [0, 1, 2, 3, 4]
    assert all(isinstance(error, slurm.TimeLimitReached) for error in got[5:]), got


def test_items_that_ran_out_of_time_go_on_in_a_job_with_more(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(time="3s", retry=Retry(times=2, timeout="time*10"))
    def slow(x: int, folder: str) -> int:
        with open(f"{folder}/ran", "a") as f:
            f.write(f"{x}\n")
        time.sleep(6 if x == 2 else 0)
        return x

    array = slow.map([(x, str(tmp_path)) for x in range(4)], pack=2)
    assert array.results(WAIT) == [0, 1, 2, 3]
    assert [len(member.history) for member in array.members] == [1, 2]
    ran = (tmp_path / "ran").read_text().split()
    assert (sorted(ran), ran.count("0"), ran.count("1")) == (["0", "1", "2", "2", "3"], 1, 1)


@pytest.mark.full
def test_a_function_that_sees_the_warning_stops_and_the_rest_is_reported(cluster: Cluster) -> None:
    @task(time="8s")
    def patient(x: int, ctx: JobContext) -> str:
        until = time.monotonic() + 60
        while x == 1 and not ctx.should_stop and time.monotonic() < until:
            time.sleep(0.02)
        return "stopped" if ctx.should_stop else "done"

    array = patient.map(range(3), pack=3)
    assert array[0].result(WAIT) == "done" and array[1].result(WAIT) == "stopped"
    with pytest.raises(slurm.TimeLimitReached, match="not begun"):
        array[2].result(WAIT)


def test_a_damaged_batch_is_reported_and_not_waited_for(cluster: Cluster) -> None:
    array = square.map(range(10), pack=5)
    assert all(job.wait(WAIT) for job in array.members)  # while it is open it is shared
    (segment,) = (Path(cluster.base) / array.run / "results").iterdir()
    data = bytearray(segment.read_bytes())
    at = data.index(b'"first":') + 30
    data[at] ^= 0xFF
    segment.write_bytes(bytes(data))
    again = Cluster("embedded", job_base_dir=cluster.base).attach(array.run)
    got = again.results(WAIT, return_exceptions=True)
    lost = [v for v in got if isinstance(v, slurm.ResultLost)]
    assert 0 < len(lost) < 10 and len(lost) + sum(isinstance(v, int) for v in got) == 10


# ---- with others --------------------------------------------------------------------------------


def test_values_of_a_packed_map_are_read_on_the_cluster(cluster: Cluster) -> None:
    array = square.map(range(30), pack=10)
    assert add_up(array).result(WAIT) == sum(x * x for x in range(30))
    assert square(array[3]).result(WAIT) == 81  # type: ignore[arg-type]
    assert add_up([array[1], array[2]]).result(WAIT) == 5


def test_items_take_jobs_and_share_large_arguments(cluster: Cluster) -> None:
    @task
    def pick(i: int, values: Any, plus: int) -> Any:
        return values[i] + plus

    values = list(range(20_000))
    array = pick.map([(i, values) for i in range(100)], common={"plus": square(3)}, pack=50)
    assert array.results(WAIT) == [i + 9 for i in range(100)]
    run = Path(cluster.base) / array.run
    assert (run / "arguments.bin").stat().st_size < 20_000


def test_a_job_after_a_packed_map_waits_for_all_of_it(cluster: Cluster, tmp_path: Path) -> None:
    array = wait_for.map([(i, str(tmp_path)) for i in range(6)], pack=3)
    after = square.after(array)(3)
    until_ran(tmp_path, 5)
    assert not after.done()
    (tmp_path / "go").touch()
    assert after.result(WAIT) == 9 and array.done()


def test_a_job_after_a_packed_map_with_a_failed_item_never_runs(cluster: Cluster) -> None:
    array = picky.map(range(20), pack=10)
    after = square.after(array)(3)
    with pytest.raises(slurm.UpstreamFailed):
        after.result(WAIT)


def test_another_process_gets_all_outcomes_of_a_packed_map(cluster: Cluster) -> None:
    array = picky.map(range(20), pack=7)
    code = (
        "import sys; from slurm import Cluster\n"
        "array = Cluster('embedded', job_base_dir=sys.argv[1]).attach(sys.argv[2])\n"
        "got = array.results(60, return_exceptions=True)\n"
        "print(type(array).__name__, sum(v for v in got if isinstance(v, int)), len(array.failed))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, cluster.base, array.run],
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.stdout == f"PackedArray {sum(range(20)) - 16} 2\n", done.stderr


def test_at_most_so_many_items_run_at_once(cluster: Cluster, tmp_path: Path) -> None:
    @task(cpus_per_task=2)
    def overlap(x: int, folder: str) -> int:
        mark = Path(folder) / f"{x}.running"
        mark.touch()
        time.sleep(0.02)
        count = len(list(Path(folder).glob("*.running")))
        mark.unlink()
        return count

    items = [(x, str(tmp_path)) for x in range(30)]
    assert max(overlap.map(items, pack=10, max_concurrent=2).results(WAIT)) <= 2
    assert max(overlap.map(items, pack=10, max_concurrent=1).results(WAIT)) == 1


# ---- before anything is submitted ---------------------------------------------------------------


def test_the_plan_says_which_packs_and_why(cluster: Cluster) -> None:
    explain = cluster.explain(square, cpus_per_task=2)
    plan = str(explain.map(range(100_000), pack="auto"))
    assert plan.startswith(
        "square: 100000 items in 32 jobs of 3125 (auto: at least 100 items a job, at most 32 "
        "jobs), each with 2 warm workers: one array of 32, one call of sbatch\n"
    )
    assert "#SBATCH --array=0-31\n" in plan
    few = str(explain.map(range(100_000), pack="auto", max_concurrent=4))
    assert "2 jobs of 50000 (auto: max_concurrent=4 lets 2 such jobs run at once)" in few
    assert "#SBATCH --array=0-1%2\n" in few
    assert not any(Path(cluster.base).glob("square-*"))


def test_a_workflow_cannot_be_packed(cluster: Cluster) -> None:
    """Its calls were said to be made outside of a cluster."""

    @slurm.workflow
    def above(x: int) -> int:
        return x

    for pack in (2, "auto"):
        with pytest.raises(slurm.UsageError, match="above is a workflow"):
            above.map([1, 2], pack=pack)
        with pytest.raises(slurm.UsageError, match="leave pack out"):
            cluster.explain(above).map([1, 2], pack=pack)


@pytest.mark.parametrize("pack", [0, -1, 1.5, True, "many", [3]])
def test_a_pack_that_is_no_number_is_refused(cluster: Cluster, pack: Any) -> None:
    with pytest.raises(slurm.OptionError, match="pack="):
        square.map(range(5), pack=pack)


def test_several_ranks_are_refused(cluster: Cluster) -> None:
    with pytest.raises(slurm.UsageError, match="cannot have several tasks"):
        square.with_options(ntasks=2).map(range(5), pack=5)


def test_an_item_that_cannot_be_pickled_is_named_and_nothing_is_submitted(cluster: Cluster) -> None:
    with pytest.raises(slurm.UnpicklableArgument, match="item 2"):
        square.map([1, 2, threading.Lock()], pack=3)
    assert not any(Path(cluster.base).glob("square-*"))


def test_the_debug_backend_runs_a_packed_map_in_this_process(tmp_path: Path) -> None:
    with Cluster("debug", job_base_dir=tmp_path):
        assert square.map(range(5), pack=2).results() == [0, 1, 4, 9, 16]


def test_packs_go_out_in_several_arrays_where_the_scheduler_asks_for_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(count: int, throttled: bool, **_: Any) -> Cut:
        return cut_map(count, max_array_size=3, max_submitted=7, one_by_one=throttled)

    monkeypatch.setattr(cluster, "_cut", cut)
    array = square.map(range(40), pack=5)
    assert len(array.members) == 8 and any(job.key is None for job in array.members)
    assert array.results(WAIT) == [x * x for x in range(40)]
    assert len({job.bare.partition("_")[0] for job in array.members}) == 3


def test_when_the_parent_of_the_workers_is_killed_the_rest_has_the_jobs_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task
    def treason(x: int, folder: str) -> int:
        if x == 9:
            time.sleep(0.6)  # by then all outcomes before it are on disk
            os.kill(os.getppid(), 9)
            time.sleep(0.2)
        return x

    array = treason.map([(x, str(tmp_path)) for x in range(12)], pack=12)
    got = array.results(WAIT, return_exceptions=True)
    assert got[:9] == list(range(9))
    assert all(isinstance(error, slurm.JobFailed) for error in got[9:]), got
    assert "SIGKILL" in str(got[9])
