"""Arrays, dependencies and the sharing of CPUs, memory and GPUs on the embedded scheduler."""

from __future__ import annotations

import pytest
from test_scheduler_bench import Bench, bench

from slurm.api.slurm_site import NodeStatus, PartitionStatus

__all__ = ["bench"]

WAIT_FOR_GO = "until [ -e go ]; do sleep 0.02; done"


def go(bench: Bench) -> None:
    (bench.work / "go").touch()


def states(bench: Bench, *jobs: str) -> list[str]:
    return [row.state for row in bench.ended(*jobs)]


def test_each_element_of_an_array_is_a_job_of_its_own(bench: Bench) -> None:
    job = bench.submit(
        "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT "
        "$SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX\nexit $SLURM_ARRAY_TASK_ID",
        "--array=0-4:2",
    )
    rows = {row.job_id: row.exit_code for row in bench.ended(job)}
    assert rows == {f"{job}_0": 0, f"{job}_2": 2, f"{job}_4": 4}
    assert (bench.work / f"slurm-{job}_2.out").read_text() == f"{job} 2 3 0 4\n"
    assert bench.row(f"{job}_2").exit_code == 2


def test_one_element_can_be_cancelled(bench: Bench) -> None:
    job = bench.submit("true", "--array=1-3 --hold")
    bench.scheduler.cancel([f"{job}_2"])
    bench.scheduler.release([job])
    rows = {row.job_id: row.state for row in bench.ended(job)}
    assert rows == {f"{job}_1": "COMPLETED", f"{job}_2": "CANCELLED", f"{job}_3": "COMPLETED"}


def test_an_array_runs_no_more_at_once_than_its_throttle(bench: Bench) -> None:
    job = bench.submit(WAIT_FOR_GO, "--array=0-3%2")
    bench.until(lambda: sum(r.state == "RUNNING" for r in bench.scheduler.status([job])) == 2)
    other = bench.submit("true")
    assert states(bench, other) == ["COMPLETED"]  # the array holds nobody up
    rows = bench.scheduler.status([job])
    assert sorted(r.state for r in rows) == ["PENDING", "PENDING", "RUNNING", "RUNNING"]
    assert {r.reason for r in rows if r.state == "PENDING"} == {"JobArrayTaskLimit"}
    go(bench)
    assert set(states(bench, job)) == {"COMPLETED"}


def test_afterok_waits_for_success(bench: Bench) -> None:
    first = bench.submit(WAIT_FOR_GO)
    then = bench.submit("echo x > then", f"--dependency=afterok:{first}")
    assert (bench.state(then), bench.row(then).reason) == ("PENDING", "Dependency")
    go(bench)
    assert states(bench, first, then) == ["COMPLETED", "COMPLETED"]


def test_afterok_of_a_failure_is_never_satisfied(bench: Bench) -> None:
    first = bench.submit("exit 1", "--hold")
    kept = bench.submit("true", f"-d afterok:{first}")
    dropped = bench.submit("true", f"-d afterok:{first} --kill-on-invalid-dep=yes")
    below = bench.submit("true", f"-d afterany:{dropped}")
    bench.scheduler.release([first])
    assert states(bench, dropped, below) == ["CANCELLED", "COMPLETED"]
    row = bench.row(kept)
    assert (row.state, row.reason) == ("PENDING", "DependencyNeverSatisfied")


def test_afternotok_runs_after_a_failure_only(bench: Bench) -> None:
    bad, good = bench.submit("exit 1", "--hold"), bench.submit("true", "--hold")
    runs = bench.submit("true", f"-d afternotok:{bad}")
    never = bench.submit("true", f"-d afternotok:{good} --kill-on-invalid-dep=yes")
    bench.scheduler.release([bad, good])
    assert states(bench, runs, never) == ["COMPLETED", "CANCELLED"]


def test_afterany_runs_after_any_end_even_a_cancelled_one(bench: Bench) -> None:
    first = bench.submit("true", "--hold")
    then = bench.submit("true", f"-d afterany:{first}")
    bench.scheduler.cancel([first])
    assert states(bench, then) == ["COMPLETED"]


def test_after_waits_for_the_start_only(bench: Bench) -> None:
    first = bench.submit(WAIT_FOR_GO, "--hold")
    then = bench.submit("true", f"-d after:{first}")
    later = bench.submit("true", f"-d after:{first}+1")
    assert bench.state(then) == "PENDING"
    bench.scheduler.release([first])
    assert states(bench, then) == ["COMPLETED"]
    assert (bench.state(first), bench.state(later)) == ("RUNNING", "PENDING")
    go(bench)


def test_aftercorr_pairs_the_elements_of_two_arrays(bench: Bench) -> None:
    first = bench.submit(
        f"[ $SLURM_ARRAY_TASK_ID = 1 ] && exit 1\n[ $SLURM_ARRAY_TASK_ID = 2 ] && {WAIT_FOR_GO}\n:",
        "--array=0-2",
    )
    then = bench.submit("true", f"--array=0-2 -d aftercorr:{first}")
    bench.until(lambda: bench.state(f"{then}_0") == "COMPLETED")
    bench.until(lambda: bench.row(f"{then}_1").reason == "DependencyNeverSatisfied")
    assert bench.row(f"{then}_2").reason == "Dependency"
    go(bench)
    bench.until(lambda: bench.state(f"{then}_2") == "COMPLETED")


def test_a_dependency_on_an_array_waits_for_all_of_it(bench: Bench) -> None:
    first = bench.submit(f"[ $SLURM_ARRAY_TASK_ID = 3 ] && {WAIT_FOR_GO}\n:", "--array=0-3")
    then = bench.submit("true", f"-d afterok:{first}")
    bench.until(lambda: sum(r.state == "COMPLETED" for r in bench.scheduler.status([first])) == 3)
    assert bench.state(then) == "PENDING"
    go(bench)
    assert states(bench, then) == ["COMPLETED"]


def test_a_question_mark_means_any_and_a_comma_means_all(bench: Bench) -> None:
    good, bad = bench.submit("true"), bench.submit("exit 1")
    bench.ended(good, bad)
    either = bench.submit("true", f"-d afterok:{bad}?afterok:{good}")
    both = bench.submit("true", f"-d afterok:{good},afterok:{bad} --kill-on-invalid-dep=yes")
    assert states(bench, either, both) == ["COMPLETED", "CANCELLED"]


def test_singletons_of_one_name_run_one_after_the_other(bench: Bench) -> None:
    first = bench.submit(WAIT_FOR_GO, "-J one")
    jobs = [bench.submit("true", "-J one -d singleton") for _ in range(3)]
    other = bench.submit("true", "-J two -d singleton")
    assert states(bench, other) == ["COMPLETED"]
    assert [bench.state(job) for job in jobs] == ["PENDING"] * 3
    go(bench)
    rows = bench.ended(first, *jobs)
    assert {row.state for row in rows} == {"COMPLETED"}


@pytest.mark.parametrize("flag", ["--ntasks=3", "--mem=2500", "--exclusive", "--gpus=3"])
def test_what_does_not_fit_beside_a_running_job_waits(bench: Bench, flag: str) -> None:
    first = bench.submit(WAIT_FOR_GO, flag)
    second = bench.submit("true", flag)
    bench.until(lambda: bench.state(first) == "RUNNING")
    assert (bench.state(second), bench.row(second).reason) == ("PENDING", "Resources")
    go(bench)
    assert states(bench, first, second) == ["COMPLETED", "COMPLETED"]


def test_a_smaller_job_passes_one_that_does_not_fit_yet(bench: Bench) -> None:
    running = bench.submit(WAIT_FOR_GO, "-n 3")
    large = bench.submit("true", "-n 2")
    small = bench.submit("true", "-n 1")
    assert states(bench, small) == ["COMPLETED"]
    assert (bench.state(running), bench.state(large)) == ("RUNNING", "PENDING")
    go(bench)


def test_jobs_at_the_same_time_get_different_gpus(bench: Bench) -> None:
    jobs = [
        bench.submit(f"echo $CUDA_VISIBLE_DEVICES > gpu-{n}; {WAIT_FOR_GO}", f"{flag}")
        for n, flag in enumerate(["--gpus=1", "--gres=gpu:a100:2", "--gpus-per-task=1"])
    ]
    devices = ",".join(bench.await_file(f"gpu-{n}").strip() for n in range(3)).split(",")
    assert sorted(devices) == ["0", "1", "2", "3"]
    assert bench.scheduler.nodes()[0]["allocated_gpus"] == 4
    go(bench)
    bench.ended(*jobs)
    assert bench.scheduler.nodes()[0]["allocated_gpus"] == 0


def test_priority_and_nice_give_the_order(bench: Bench) -> None:
    gate = bench.submit(WAIT_FOR_GO, "--exclusive")
    jobs = [
        bench.submit(f"echo {name} >> order", "--exclusive", flag)
        for name, flag in [("nice", "--nice=50"), ("plain", "--nice=0"), ("first", "--priority=9")]
    ]
    go(bench)
    bench.ended(gate, *jobs)
    assert (bench.work / "order").read_text().split() == ["first", "plain", "nice"]


def test_the_host_and_its_partition_are_described(bench: Bench) -> None:
    (node,) = bench.scheduler.nodes()
    assert (node["cpus"], node["memory"], node["gpus"]) == (4, 4000, 4)
    (partition,) = bench.scheduler.partitions()
    assert (partition["name"], partition["nodes"]) == ("local", 1)
    assert bench.scheduler.limits()["MaxArraySize"] == "10001"


def test_rows_have_the_keys_of_slurm_s_rows(bench: Bench) -> None:
    (node,), (partition,) = bench.scheduler.nodes(), bench.scheduler.partitions()
    assert set(NodeStatus._fields) <= set(node)
    assert set(PartitionStatus._fields) <= set(partition)
