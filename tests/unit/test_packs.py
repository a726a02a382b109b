"""How items become packs, how a pack hands them out, and how their outcomes are written."""

from __future__ import annotations

import json
import pickle

import pytest

from slurm import errors, rundir
from slurm.model.packs import Pack, check_one_process, make_pack, plan_packs
from slurm.runner import batches
from slurm.runner.packed import Queue

# ---- packs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "cpus", "most", "jobs", "size"),
    [
        (1, 1, None, 1, 1),
        (99, 1, None, 1, 99),
        (250, 1, None, 2, 125),
        (3_200, 1, None, 32, 100),
        (100_000, 8, None, 32, 3_125),
        (1_000_000, 8, None, 200, 5_000),
        (100_000, 8, 16, 2, 50_000),
        (100_000, 8, 4, 1, 100_000),
        (100_000, 1, 1_000, 32, 3_125),
    ],
)
def test_auto_makes_few_jobs_of_many_items(
    items: int, cpus: int, most: int | None, jobs: int, size: int
) -> None:
    pack = make_pack("auto", items, cpus=cpus, max_concurrent=most)
    assert (pack.jobs, pack.size) == (jobs, size)
    assert sum(len(pack.items_of(job)) for job in range(pack.jobs)) == items


def test_every_item_belongs_to_one_job() -> None:
    pack = make_pack(7, 100)
    assert [i for job in range(pack.jobs) for i in pack.items_of(job)] == list(range(100))
    assert make_pack(1000, 10).size == 10


def test_max_concurrent_counts_items() -> None:
    for most, workers, at_once, threads in [(8, 4, 2, 1), (3, 3, 1, 1), (1, 1, 1, 4), (2, 2, 1, 2)]:
        pack, jobs, throttle = plan_packs(10, 100, {"cpus_per_task": 4}, most)
        assert pack is not None and jobs == 10
        assert (pack.workers, throttle, pack.threads) == (workers, at_once, threads)
    assert plan_packs(None, 100, {}, 5) == (None, 100, 5)


@pytest.mark.parametrize("pack", [0, -3, 2.0, True, "Auto", None, [1]])
def test_what_is_no_number_of_items_is_refused(pack: object) -> None:
    with pytest.raises(errors.OptionError, match="pack="):
        make_pack(pack, 10)


def test_only_a_packed_map_refuses_ranks() -> None:
    check_one_process(None, ranks=True)
    with pytest.raises(errors.UsageError):
        check_one_process(make_pack(1, 1), ranks=True)


def test_a_pack_survives_json() -> None:
    pack = make_pack("auto", 1000)
    assert Pack(*json.loads(json.dumps(pack))) == pack


# ---- the queue ----------------------------------------------------------------------------------


def test_a_queue_gives_ranges_in_order_and_leaves_out_what_is_over() -> None:
    queue = Queue(10, 20, {12, 13, 19})
    assert queue.left == 7
    got = []
    while (order := queue.take(2)) is not None:
        got += list(range(*order))
    assert sorted(got) == [10, 11, 14, 15, 16, 17, 18] and queue.left == 0


def test_what_comes_back_is_taken_next_and_a_suspect_last_and_alone() -> None:
    queue = Queue(0, 10, set())
    assert queue.take(4) == (0, 4)
    queue.suspect(1)
    queue.give_back(2, 4)
    assert queue.left == 9
    assert [queue.take(5), queue.take(5), queue.take(5), queue.take(5)] == [
        (2, 4), (4, 9), (9, 10), (1, 2),
    ]  # fmt: skip
    assert queue.take(5) is None and queue.left == 0


# ---- batches ------------------------------------------------------------------------------------


def _record(words: list[int], data: bytes, first: int = 5) -> rundir.Record:
    who = rundir.Identity("7", first, -1, 0)
    header = {"first": first, "count": len(words), "python": "3.11.0"}
    whole = rundir.encode_record(who, batches.BATCH, header, batches.encode_batch(words, data))
    (record,), _ = rundir.decode_records(whole)
    return record


def test_a_batch_gives_back_values_and_failures_of_each_item() -> None:
    value, other = pickle.dumps("one"), pickle.dumps(2)
    failed = batches.encode_trouble("error", {"message": "no"}, b"payload", 1 << 16)
    words = [len(value), batches.TROUBLE | len(failed), batches.ELSEWHERE, len(other)]
    batch = batches.decode_batch(_record(words, value + failed + other))
    first, second, last = batch.outcome(0), batch.outcome(1), batch.outcome(3)
    assert (first.index, first.rank, first.kind, pickle.loads(first.payload)) == (
        5, 0, rundir.VALUE, "one",
    )  # fmt: skip
    assert (second.index, second.kind, second.payload) == (6, "error", b"payload")
    assert second.header["message"] == "no" and second.header["python"] == "3.11.0"
    assert (last.index, pickle.loads(last.payload)) == (8, 2)


def test_a_batch_whose_table_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="its table says 9"):
        batches.decode_batch(_record([4, 5], b"12345678"))


def test_a_failure_that_is_too_large_keeps_its_text() -> None:
    header = {"message": "m" * 5000, "traceback": "t" * 64_000, "evidence": ["e" * 5000]}
    blob = batches.encode_trouble("error", header, b"x" * 100_000, 1 << 16)
    assert len(blob) <= 1 << 16
    record = batches.decode_batch(_record([batches.TROUBLE | len(blob)], blob)).outcome(0)
    assert record.payload == b"" and record.header["message"].startswith("mmm")
