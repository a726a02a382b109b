"""The drop-in on a real Slurm: arrays, tasks, scripts, preemption and time-outs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import slurm.submitit as submitit
from slurm.submitit import helpers
from slurm.submitit.core.utils import FailedJobError, UncompletedJobError

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

PATIENCE_S = 90.0


@pytest.fixture(autouse=True)
def _on_slurm(preempting_cluster: RunningCluster) -> None:
    """Asking for the cluster is what this fixture is for."""


@pytest.fixture
def executor(tmp_path: Path) -> submitit.AutoExecutor:
    made = submitit.AutoExecutor(folder=tmp_path / "logs" / "%j", slurm_max_num_timeout=1)
    assert made.cluster == "slurm"
    made.update_parameters(timeout_min=10)
    return made


def double(x: int) -> int:
    print("doubling", x)
    return 2 * x


class Counter:
    """Counts, tenth by tenth of a second; it goes on where it was."""

    def __init__(self) -> None:
        self.count = self.lives = 0

    def __call__(self, upto: int) -> tuple[int, int]:
        self.lives += 1
        print("life", self.lives, flush=True)
        while self.count < upto:
            time.sleep(0.1)
            self.count += 1
            if self.count == 5:
                print("half a second", flush=True)
        return self.count, self.lives

    def checkpoint(self, upto: int) -> helpers.DelayedSubmission:
        return helpers.DelayedSubmission(self, upto)


def wait_for(job: submitit.Job[Any], text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in (job.stdout() or ""):
        assert time.monotonic() < deadline, f"no {text!r} in {job.stdout()!r} {job.stderr()!r}"
        time.sleep(0.1)


def test_an_array_over_the_largest_size_is_one_list_of_jobs(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    jobs = executor.map_array(double, range(15))
    assert [job.result() for job in jobs] == [2 * n for n in range(15)]
    assert len({job.job_id.partition("_")[0] for job in jobs}) == 2
    last = jobs[-1]
    assert last.paths.stdout == tmp_path / "logs" / last.job_id / f"{last.job_id}_0_log.out"
    assert last.stdout() == "doubling 14\n"
    attached: submitit.SlurmJob[int] = submitit.SlurmJob(tmp_path / "logs" / "%j", last.job_id)
    assert attached.result() == 28
    assert attached.state == "COMPLETED"


def who() -> tuple[int, int, list[str]]:
    env = submitit.JobEnvironment()
    print("task", env.global_rank)
    return env.global_rank, env.num_tasks, env.hostnames


def test_every_task_of_a_job_on_two_nodes_has_its_result_and_log(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(nodes=2, tasks_per_node=2, slurm_srun_args=["--cpu-bind=none"])
    job = executor.submit(who)
    assert job.results() == [(n, 4, ["n1", "n2"]) for n in range(4)]
    assert job.task(3).stdout() == "task 3\n"
    assert "--cpu-bind=none" in job.paths.submission_file.read_text()


def test_a_failure_is_slurms_failure_whatever_teardown_says(tmp_path: Path) -> None:
    executor = submitit.SlurmExecutor(tmp_path)
    executor.update_parameters(time=1, setup=["export FROM_SETUP=1"], teardown=["true"])
    job = executor.submit(dict[str, int]().__getitem__, "not there")
    error = job.exception()
    assert isinstance(error, FailedJobError)
    assert isinstance(error.__cause__, KeyError)
    deadline = time.monotonic() + PATIENCE_S
    state = ""
    while state != "FAILED" and time.monotonic() < deadline:  # accounting follows behind
        state = submitit.SlurmJob.watcher.get_state(job.job_id, mode="force")
        time.sleep(0.2)
    assert state == "FAILED"
    assert executor.submit(os.getenv, "FROM_SETUP").result() == "1"


def test_what_sbatch_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    executor = submitit.SlurmExecutor(tmp_path / "logs")
    executor.update_parameters(partition="no-such-partition")
    with pytest.raises(FailedJobError, match="partition"):
        executor.map_array(double, range(3))
    runs = tmp_path / "logs" / ".runs"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [".runs"]
    assert [path for path in runs.iterdir() if not path.name.startswith(".")] == []


def test_a_preempted_job_is_told_in_time_and_goes_on_from_its_checkpoint(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(slurm_partition="low", slurm_exclusive=True)
    jobs = executor.map_array(Counter(), [60, 61])
    for job in jobs:
        wait_for(job, "life 1")
    command = ["sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
    subprocess.run(command, check=True, timeout=60)
    results = [job.result() for job in jobs]
    assert [count for count, _ in results] == [60, 61]
    assert sorted(lives for _, lives in results) == [1, 2]
    requeued = next(job for job, (_, lives) in zip(jobs, results, strict=True) if lives == 2)
    assert "the job is preempted" in str(requeued.stdout())


@pytest.mark.full
@pytest.mark.parametrize("use_srun", [True, False])
def test_a_time_out_is_requeued_as_often_as_allowed(
    executor: submitit.AutoExecutor, use_srun: bool
) -> None:
    executor.update_parameters(timeout_min=1, slurm_signal_delay_s=50, slurm_use_srun=use_srun)
    error = executor.submit(Counter(), 100_000).exception()
    assert isinstance(error, FailedJobError)
    assert "timed-out too many times" in str(error)


@pytest.mark.full
@pytest.mark.parametrize(("nodes", "use_srun"), [(2, True), (1, True), (1, False)])
def test_a_job_is_interrupted_and_goes_on_with_and_without_srun(
    executor: submitit.AutoExecutor, nodes: int, use_srun: bool
) -> None:
    executor.update_parameters(nodes=nodes, slurm_use_srun=use_srun)
    job = executor.submit(Counter(), 60)
    for task in range(nodes):
        wait_for(job.task(task), "half a second")
    job._interrupt(timeout=False)
    assert job.results() == [(60, 2)] * nodes


@pytest.mark.full
def test_a_cancelled_job_ends_and_a_whole_array_by_its_bare_id(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    jobs = executor.map_array(time.sleep, [300] * 3)
    submitit.SlurmJob(tmp_path / "logs" / "%j", jobs[0].job_id.partition("_")[0]).cancel()
    errors = [job.exception() for job in jobs]
    assert [type(error) for error in errors] == [UncompletedJobError] * 3
    assert "cancelled" in str(errors[0])


@pytest.mark.full
def test_dependencies_packing_and_jobs_in_jobs(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    first = executor.submit(time.sleep, 1)
    after = executor.after(first)
    after.update_parameters(slurm_pack=8)
    jobs = after.map_array(double, range(16))
    assert [job.result() for job in jobs] == [2 * n for n in range(16)]
    assert len({job.job_id for job in jobs}) == 2

    def inside(folder: str) -> int:
        with helpers.clean_env():
            return submitit.AutoExecutor(folder).submit(double, 8).result()

    assert executor.submit(inside, str(tmp_path / "inner")).result() == 16


@pytest.mark.parametrize("job_id", ["9999991", "9999991_3"])
def test_a_job_that_nobody_knows_is_not_waited_for(job_id: str, tmp_path: Path) -> None:
    job: submitit.SlurmJob[int] = submitit.SlurmJob(tmp_path, job_id)
    begun = time.monotonic()
    with pytest.raises(UncompletedJobError, match=f"there is no job {job_id}: .* was asked 2 time"):
        job.result()
    assert time.monotonic() - begun < PATIENCE_S / 3
    assert not job.done()
