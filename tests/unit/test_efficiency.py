"""How well a run used what it asked for, out of what was recorded; costs and budgets."""

from __future__ import annotations

from typing import Any

import pytest

from slurm.api.reasons import parse_limits
from slurm.api.slurm_site import all_jobs, cpu_seconds, used
from slurm.cost import budgets, cost_of
from slurm.efficiency import CallUse, calls_of, percentile, rounded_memory, run_use
from slurm.model.options import normalize
from slurm.runner.usage import group_memory, parse_gpus, status_value

MIB = 1 << 20
OPTIONS = {"mem": 400, "cpus_per_task": 2, "time": 3600}


def said(**numbers: Any) -> dict[str, Any]:
    return {"wall": 10.0, "cpu": 5.0, "memory": 100 * MIB, "cpus": 2, "host": "n1", **numbers}


def found(*records: list[Any], events: str = "", accounting: Any = ()) -> dict[str, Any]:
    return {"records": list(records), "events": [events.encode()], "accounting": accounting}


def test_a_call_is_what_it_said_itself() -> None:
    [call] = calls_of(found(["7", 0, 0, 0, said(group_memory=200 * MIB)]), OPTIONS, "/r")
    assert call.cpu_efficiency == 0.25
    assert call.memory == 200 * MIB and call.memory_efficiency == 0.5


def test_ranks_of_one_node_add_up_and_of_several_the_fullest_counts() -> None:
    ranks = [["7", 0, rank, 0, said(host=f"n{rank // 2}", cpus=1)] for rank in range(3)]
    [call] = calls_of(found(*ranks), OPTIONS, "/r")
    assert call.memory == 200 * MIB
    assert call.cpus == 3 and call.cpu == 15.0


def test_only_the_newest_attempt_counts() -> None:
    first, second = ["7", 0, 0, 0, said(cpu=1.0)], ["7", 0, 0, 1, said(cpu=9.0)]
    [call] = calls_of(found(first, second), OPTIONS, "/r")
    assert call.cpu == 9.0


def test_a_killed_job_is_known_by_its_scripts_end_and_by_accounting() -> None:
    event = "exit job=7 index=0 rank=- attempt=0 code=137 elapsed=30 time=1 peak=314572800\n"
    row = {"job_id": "7", "cpu": 12.0, "cpus": 2, "peak": 1, "work_dir": "/r", "elapsed": 31,
           "asked": 0, "per_cpu": False}  # fmt: skip
    [call] = calls_of(found(events=event, accounting=[row]), OPTIONS, "/r")
    assert (call.wall, call.memory, call.cpu) == (30, 300 * MIB, 12.0)


def test_accounting_of_another_run_with_the_same_id_is_not_believed() -> None:
    event = "exit job=7 index=0 rank=- attempt=0 code=0 elapsed=30 time=1\n"
    row = {"job_id": "7", "cpu": 12.0, "work_dir": "/other"}
    [call] = calls_of(found(events=event, accounting=[row]), OPTIONS, "/r")
    assert call.cpu is None


def test_percentiles_lie_between_the_values() -> None:
    assert [percentile([1, 2, 3, 4], part) for part in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile([7], 95) == 7


def test_the_next_request_holds_the_largest_call_with_room() -> None:
    calls = [CallUse(i, 600.0, 500.0, 4, n * MIB, 4096 * MIB) for i, n in enumerate((50, 800))]
    use = run_use(calls, {"time": 36000})
    advice = {one.option: one for one in use.advice}
    assert advice["mem"].suggested == "960M" and advice["mem"].saves == "6272M for others"
    assert advice["cpus"].suggested == "1" and advice["cpus"].saves == "1.00 core-hours"
    assert advice["time"].suggested == "00:15:00"


def test_a_call_that_came_near_to_its_memory_should_ask_for_more() -> None:
    [one] = run_use([CallUse(0, 1.0, 1.0, 1, 95 * MIB, 100 * MIB)], {}).advice
    assert one.option == "mem" and one.suggested == "128M" and not one.saves


def test_who_asks_for_what_it_needs_is_left_alone() -> None:
    assert run_use([CallUse(0, 600.0, 590.0, 1, 80 * MIB, 110 * MIB)], {}).advice == ()


@pytest.mark.parametrize(("mib", "nice"), [(3, 16), (33, 48), (960.1, 1024), (5000, 5120)])
def test_memory_is_rounded_up_to_what_a_person_would_write(mib: float, nice: int) -> None:
    assert rounded_memory(mib) == nice


# ---- what the kernel and the tools say ----------------------------------------------------------


def test_file_caches_are_not_memory_that_a_job_needs() -> None:
    v1 = "cache 1\nrss 2\ntotal_cache 700\ntotal_rss 300\ntotal_shmem 100\n"
    v2 = "anon 300\nfile 700\nkernel 5\nshmem 100\n"
    assert group_memory(v1) == group_memory(v2) == (400, 600)


def test_a_line_of_a_process_status_is_bytes() -> None:
    assert status_value("Name:\tx\nVmHWM:\t    2048 kB\n", "VmHWM") == 2 * MIB
    assert status_value("", "VmHWM") == 0


def test_gpus_are_read_from_nvidia_smi() -> None:
    text = "0, 87, 1024, 143771\n1, [N/A], 12, 143771\nNo devices were found\n"
    assert parse_gpus(text) == [("0", 87.0, 1024.0, 143771.0), ("1", 0.0, 12.0, 143771.0)]


def test_accounting_gives_one_row_per_job_with_the_peak_of_its_steps() -> None:
    rows = [
        ("7", "COMPLETED", "20", "00:10.500", "2", "51200K", "", "1", "5", "/r"),
        ("7.batch", "COMPLETED", "20", "00:10.500", "2", "", "30000K", "1", "", ""),
        ("7.0", "COMPLETED", "20", "00:10.500", "2", "", "40000K", "1", "", ""),
    ]
    answer = "".join("".join(value + "|" for value in row) + "\n" for row in rows)
    [row] = used(["7"], 0, "|").read(answer)
    assert row["peak"] == 40000 * 1024 and row["asked"] == 50 * MIB and row["cpu"] == 10.5
    assert row["time_limit"] == 300


def test_cpu_times_of_accounting_are_seconds() -> None:
    assert [cpu_seconds(t) for t in ("00:01.250", "01:00:00", "1-00:00:00")] == [1.25, 3600, 86400]


def test_the_queue_of_everybody_is_read() -> None:
    row = ("9_[2-3%1]", "PENDING", "ada", "gpu", "4", "1", "0:00", "1-00:00:00",
           "4294901757", "(JobArrayTaskLimit)", "a\nname")  # fmt: skip
    [job] = all_jobs("|").read("".join(value + "|" for value in row) + "\n")
    assert (job.cpus, job.time_limit, job.where) == (4, 86400, "JobArrayTaskLimit")


# ---- costs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "jobs", "core", "gpu"),
    [
        ({"time": "1h"}, 1, 1, 0),
        ({"time": "30min", "cpus_per_task": 4}, 10, 20, 0),
        ({"time": "1h", "nodes": 2, "ntasks_per_node": 4, "gpus_per_node": 2}, 1, 8, 4),
        ({"time": "2h", "ntasks": 4, "gpus_per_task": 1}, 1, 8, 8),
        ({"time": "1h", "gpus": "a100:3"}, 2, 2, 6),
    ],
)
def test_hours_are_counted_at_most(options: Any, jobs: int, core: float, gpu: float) -> None:
    cost = cost_of(normalize(options, where="test"), jobs)
    assert (cost.core_hours, cost.gpu_hours) == (core, gpu)


def test_without_a_time_there_are_no_hours() -> None:
    assert cost_of({}, 5).core_hours is None


def test_what_an_account_has_left_is_read_from_its_limits() -> None:
    text = "ClusterName=c Account=lab UserName= ParentAccount= GrpTRESMins=cpu=6000(600),mem=N(5)"
    [budget] = budgets(parse_limits(text, "ClusterName", "lab", "0"))
    assert (budget.name, budget.limit, budget.used, budget.left) == ("account lab", 100, 10, 90)
