"""Maps: one array, one handle; every item has its own outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import ArrayJob, Cluster, Job, JobContext, task
from waiting import holds

WAIT = 90


@task(time="5min")
def square(x: int, plus: int = 0) -> int:
    print("item", x)
    return x * x + plus


@task
def add_up(values: Any) -> int:
    return sum(values)


@task
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_map_is_one_array_with_a_job_per_item(cluster: Cluster) -> None:
    array = square.map(range(6))
    assert isinstance(array, ArrayJob) and len(array) == 6
    assert array.results(WAIT) == [0, 1, 4, 9, 16, 25]
    assert len({job.id.partition("_")[0] for job in array}) == 1
    assert isinstance(array[2], Job) and array[2].stdout() == "item 2\n"
    assert array[-1].result() == 25 and array[1:3].results() == [1, 4]
    assert array.wait(WAIT) and array.done()
    assert str(array.progress) == "6 of 6 done, 0 failed"
    assert array.states == {slurm.JobState.COMPLETED: 6}


def test_items_are_unpacked_as_dict_tuple_or_value(cluster: Cluster) -> None:
    assert square.map([{"x": 2, "plus": 1}, (3, 1), 4]).results(WAIT) == [5, 10, 16]
    assert square.starmap([[2, 1], (3, 1)]).results(WAIT) == [5, 10]
    plain = task(lambda x: type(x).__name__)
    assert plain.map([{"a": 1}, (1, 2)], unpack=False).results(WAIT) == ["dict", "tuple"]


def test_common_arguments_are_for_all_and_items_may_override_them(cluster: Cluster) -> None:
    array = square.map([1, {"x": 2, "plus": 0}], common={"plus": 100})
    assert array.results(WAIT) == [101, 4]


def test_a_generator_is_fine_and_one_that_raises_submits_nothing(cluster: Cluster) -> None:
    assert square.map(x for x in (1, 2)).results(WAIT) == [1, 4]

    def half() -> Iterator[int]:
        yield 1
        raise OSError("half way")

    before = set(Path(cluster.base).iterdir())
    with pytest.raises(OSError, match="half way"):
        square.map(half())
    assert set(Path(cluster.base).iterdir()) == before


def test_items_that_cannot_be_sent_are_refused_by_number(cluster: Cluster) -> None:
    with pytest.raises(slurm.UsageError, match=r"square.map: 5 is not a series of items"):
        square.map(5)  # type: ignore[arg-type]
    with pytest.raises(slurm.UsageError, match="starmap: item 1, 2, is not a series"):
        square.starmap([(1,), 2])  # type: ignore[list-item]
    with pytest.raises(slurm.UnpicklableArgument, match="item 2: argument 'x'"):
        square.map([1, 2, (i for i in range(0))])
    with pytest.raises(TypeError, match=r"item 1: .*missing"):
        square.map([1, {"plus": 2}])


def test_a_large_object_that_items_share_is_stored_once(cluster: Cluster) -> None:
    big = b"x" * 1_000_000
    array = task(lambda i, data: i + len(data)).map([(i, big) for i in range(20)])
    assert array.results(WAIT) == [1_000_000 + i for i in range(20)]
    stored = sum(f.stat().st_size for f in (Path(cluster.base) / array.run).glob("*.bin"))
    assert stored < 1_200_000


def test_each_item_keeps_its_own_failure_and_the_rest_is_fine(cluster: Cluster) -> None:
    @task
    def pick(x: int) -> int:
        if x == 1:
            raise KeyError(x)
        if x == 2:
            import os

            os._exit(9)
        return x

    array = pick.map(range(4))
    values: list[Any] = array.results(WAIT, return_exceptions=True)
    assert [type(v).__name__ for v in values] == ["int", "KeyError", "JobFailed", "int"]
    assert [job.index for job in array.failed] == [1, 2]
    assert array.partial_results() == {0: 0, 3: 3}
    with pytest.raises(KeyError):
        array.results(WAIT)


def test_what_failed_runs_again_and_the_rest_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    @task
    def flaky(x: int) -> int:
        if x % 2 and not mended.exists():
            raise ValueError(x)
        return x

    array = flaky.map(range(5))
    array.wait(WAIT)
    mended.touch()
    again = array.retry_failed(time="2min")
    assert again.results(WAIT) == [0, 1, 2, 3, 4]
    assert again[0] is array[0] and again[1] is not array[1]
    assert "--time=00:02:00" in again[1].script
    assert again.retry_failed() is again


def test_results_come_in_the_order_of_items_or_of_their_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"

    @task
    def wait_if(x: int) -> int:
        while x and not go_on.exists():
            time.sleep(0.05)
        return x

    array = wait_if.map([1, 0], max_concurrent=2)
    ends = array.as_completed(WAIT)
    assert next(ends).result() == 0
    go_on.touch()
    assert next(ends).result() == 1
    assert sorted(array.results(WAIT, order="completed")) == [0, 1]
    assert array.results(WAIT) == [1, 0]
    with pytest.raises(slurm.OptionError, match="order"):
        array.results(order="random")  # type: ignore[arg-type]


def test_an_array_can_be_awaited(cluster: Cluster) -> None:
    async def main() -> list[int]:
        return await square.map([2, 3])

    assert asyncio.run(main()) == [4, 9]


def test_all_or_some_of_an_array_can_be_cancelled(cluster: Cluster) -> None:
    array = nap.map([300.0] * 4 + [0.1])
    assert array[:2].cancel() == 2
    assert array[4].result(WAIT) == 0.1
    assert array.cancel() == 2
    array.wait(WAIT)
    assert [job.cancelled() for job in array] == [True] * 4 + [False]


def test_the_throttle_reaches_the_scheduler(cluster: Cluster) -> None:
    assert "--array=0-9%3" in cluster.explain(square).map(range(10), max_concurrent=3).script
    with pytest.raises(slurm.OptionError, match=r"max_concurrent|array_throttle"):
        square.map(range(3), max_concurrent=-1)


def test_the_context_knows_the_item(cluster: Cluster) -> None:
    @task
    def where(x: str, ctx: JobContext) -> tuple[int | None, str, str]:
        return ctx.array_index, ctx.output_dir.name, x

    assert where.map("abc").results(WAIT) == [(0, "0", "a"), (1, "1", "b"), (2, "2", "c")]


def test_an_array_as_an_argument_arrives_as_the_list_of_its_values(cluster: Cluster) -> None:
    @dataclass
    class Work:
        numbers: Any

    array = square.map(range(4))
    assert add_up(array).result(WAIT) == 14
    nested = task(lambda work, one: sum(work["all"].numbers) + one)
    assert nested({"all": Work(array)}, one=array[3]).result(WAIT) == 14 + 9


def test_a_dependency_on_an_array_is_one_id(cluster: Cluster) -> None:
    array = nap.map([300.0] * 5)
    plan = cluster.explain(add_up.after(array))([1])  # type: ignore[arg-type]
    ids = {job.id.partition("_")[0] for job in array}
    assert plan.submission.dependency == f"afterok:{ids.pop()}"
    some = cluster.explain(add_up.after(array[:2], kind="afterany"))([1])  # type: ignore[arg-type]
    assert some.submission.dependency == f"afterany:{array[0].id}:{array[1].id}"
    array.cancel()


def test_kinds_of_dependencies_can_be_combined(cluster: Cluster) -> None:
    one, other = nap(300.0), nap(300.0)
    later = add_up.after(one).after(other, kind="afterany").after(kind="singleton")
    plan = cluster.explain(later)([1])  # type: ignore[arg-type]
    expected = f"afterok:{one.id},afterany:{other.id},singleton"
    assert plan.submission.dependency == expected
    assert f"#SBATCH --dependency={expected}" in plan.script
    delayed = cluster.explain(add_up.after(one, kind="after", minutes=5))([1])  # type: ignore[arg-type]
    assert (delayed.submission.dependency or "").endswith("+5")
    one.cancel()
    other.cancel()
    soon = add_up.after(nap(0.1)).after(nap(0.1), kind="afterany").after(kind="singleton")
    assert soon([1, 2]).result(WAIT) == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"kind": "afterokay"}, "did you mean 'afterok'"),
        ({"minutes": 3}, "minutes= goes with"),
        ({"kind": "after", "minutes": -5}, "minutes=-5 is not a whole number"),
        ({"kind": "after", "minutes": "5"}, "minutes='5' is not a whole number"),
        ({"kind": "singleton"}, "singleton takes no jobs"),
    ],
)
def test_a_wrong_dependency_is_refused(
    cluster: Cluster, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(slurm.UsageError, match=text):
        add_up.after(nap(0), **arguments)


@pytest.mark.parametrize("common", [[1], "text", 5, {1: 2}])
def test_keywords_of_all_calls_are_a_dictionary(cluster: Cluster, common: Any) -> None:
    with pytest.raises(slurm.UsageError, match=r"nap\.map: common=.* is not a dictionary"):
        nap.map([0.1], common=common)
    with pytest.raises(slurm.UsageError, match="is not a dictionary"):
        cluster.explain(nap).map([0.1], common=common)


def test_only_jobs_can_be_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(slurm.UsageError, match="not for 'train'"):
        add_up.after("train")  # type: ignore[arg-type]
    with Cluster("embedded", job_base_dir=tmp_path / "other"):
        foreign = nap(0)
    with pytest.raises(slurm.UsageError, match="another cluster"):
        cluster.submit(add_up, after=foreign)([1])  # type: ignore[arg-type]


def test_aftercorr_needs_arrays_of_one_length(cluster: Cluster) -> None:
    first = nap.map([0.2, 0.3])
    assert square.after(first, kind="aftercorr").map([1, 2]).results(WAIT) == [1, 4]
    with pytest.raises(slurm.UsageError, match="same length"):
        square.after(nap.map([0.1, 0.1]), kind="aftercorr").map([1, 2, 3])
    with pytest.raises(slurm.UsageError, match="same length"):
        square.after(nap(0.1), kind="aftercorr").map([1])
    with pytest.raises(slurm.UsageError, match="single call"):
        square.after(first, kind="aftercorr")(1)


def test_dependants_of_failures_end_at_once_and_those_that_waited_for_one_run(
    cluster: Cluster,
) -> None:
    @task
    def fail() -> None:
        raise ValueError("upstream")

    bad = fail()
    never = add_up.after(bad)([1])
    cleanup = add_up.after(bad, kind="afternotok")([2])
    anyway = add_up.after(bad, kind="afterany")([3])
    with pytest.raises(slurm.UpstreamFailed):
        never.result(WAIT)
    assert (cleanup.result(WAIT), anyway.result(WAIT)) == (2, 3)


def test_an_array_can_be_found_again_whole_or_by_element(cluster: Cluster) -> None:
    array = square.map(range(3))
    array.wait(WAIT)
    again = Cluster("embedded", job_base_dir=cluster.base)
    assert again.attach(array.run).results(WAIT) == [0, 1, 4]
    assert again.get_job(array[2].id).result(WAIT) == 4


def test_a_map_longer_than_the_scheduler_takes_is_cut_and_stays_one_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm.target.SMALL_ARRAY", 3)
    with Cluster("embedded", job_base_dir=tmp_path) as cluster:
        cluster._limits = {"max_array_size": 4}
        plan = cluster.explain(square).map(range(10))
        assert "3 arrays of at most 4 (MaxArraySize is 4), 3 at once" in str(plan)
        array = square.map(range(10))
        assert array.results(WAIT) == [i * i for i in range(10)]
        assert array[9].stdout() == "item 9\n" and array[9].id.endswith("_1")
        throttled = cluster.explain(square).map(range(10), max_concurrent=2)
        assert "afterany:@previous@" in throttled.scripts[1]
        assert square.map(range(10), max_concurrent=2).results(WAIT) == [i * i for i in range(10)]


def test_a_window_goes_on_without_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm.target.SMALL_ARRAY", 3)
    with Cluster("embedded", job_base_dir=tmp_path) as cluster:
        cluster._limits = {"max_job_count": 5}
        array = square.map(range(9))
        assert [job.key is None for job in array].count(True) > 0
        dependant = add_up(array)
        run = Path(cluster.base) / array.run
    # Nobody looks: the parts submit one another.
    deadline = time.monotonic() + WAIT
    while len(list(run.glob("submit/*.id"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
    again = Cluster("embedded", job_base_dir=tmp_path).attach(array.run)
    assert again.results(WAIT) == [i * i for i in range(9)]
    assert array.results(WAIT) == again.results()
    assert dependant.result(WAIT) == sum(i * i for i in range(9))


def test_cancelling_a_windowed_map_submits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm.target.SMALL_ARRAY", 3)
    with Cluster("embedded", job_base_dir=tmp_path) as cluster:
        cluster._limits = {"max_job_count": 5}
        array = nap.map([300.0] * 9)
        assert array.cancel() == 9
        array.wait(WAIT)
        assert all(job.cancelled() for job in array)
        run = Path(cluster.base) / array.run
        before = len(list(run.glob("submit/*.id")))
        holds("no more ids", lambda: len(list(run.glob("submit/*.id"))) == before, 1.5)


@pytest.mark.parametrize("most", [0, -1, 1.5, "many", True])
@pytest.mark.parametrize("pack", [None, 2])
def test_a_limit_that_is_no_number_of_calls_is_refused(
    cluster: Cluster, most: Any, pack: int | None
) -> None:
    with pytest.raises(slurm.OptionError, match="max_concurrent"):
        square.map([1, 2, 3], max_concurrent=most, pack=pack)
    with Cluster("debug"), pytest.raises(slurm.OptionError, match="max_concurrent"):
        square.map([1, 2, 3], max_concurrent=most)


def test_time_without_an_end_is_for_ever_and_other_values_are_refused(cluster: Cluster) -> None:
    job, array, packed = square(2), square.map([1, 2]), square.map([1, 2], pack=2)
    for endless in (float("inf"), 1e300, 10**12):
        assert square.map([1, 2]).results(endless) == [1, 4]
        assert square.map([1, 2], pack=2).results(endless) == [1, 4]
        assert square.map([1, 2]).wait(endless) and square(3).result(endless) == 9
        assert sorted(one.result() for one in square.map([1, 2]).as_completed(endless)) == [1, 4]
    waits: list[Any] = [
        job.result, job.exception, job.wait, array.results, array.wait, packed.results, packed.wait,
        lambda timeout: list(array.as_completed(timeout)),
        lambda timeout: list(packed.as_completed(timeout)),
    ]  # fmt: skip
    wrong: Any
    for wrong in ("5", [], float("nan")):
        for wait in waits:
            with pytest.raises(slurm.UsageError, match="timeout="):
                wait(wrong)
    assert array.results(WAIT) == packed.results(WAIT) == [1, 4]


@pytest.mark.parametrize("given", [None, 5, [], object()])
def test_what_names_no_run_cannot_be_attached_to(cluster: Cluster, given: Any) -> None:
    with pytest.raises(slurm.UsageError, match="names no run"):
        cluster.attach(given)
