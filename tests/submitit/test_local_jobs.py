"""Jobs on this machine: what submitit's users do, and what went wrong there."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import slurm.submitit as submitit
from slurm.submitit import helpers
from slurm.submitit.core.utils import FailedJobError, UncompletedJobError

PATIENCE_S = 60.0


def double(x: int) -> int:
    print("doubling", x)
    return 2 * x


def wait_for(job: submitit.Job[Any], text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in (job.stdout() or ""):
        assert time.monotonic() < deadline, f"no {text!r} in {job.stdout()!r} {job.stderr()!r}"
        time.sleep(0.05)


@pytest.fixture
def executor(tmp_path: Path) -> submitit.AutoExecutor:
    made = submitit.AutoExecutor(folder=tmp_path / "logs", cluster="local", local_max_num_timeout=1)
    made.update_parameters(timeout_min=5, name="drop-in")
    return made


# ---- calls and their files ----------------------------------------------------------------------


def test_a_call_becomes_a_job_with_the_files_that_submitit_writes(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    job = executor.submit(double, 21)
    assert job.result() == 42
    assert job.exception() is None
    assert (job.done(), job.state, job.num_tasks) == (True, "FINISHED", 1)
    assert job.stdout() == "doubling 21\n"
    names = ("submitted.pkl", "submission.sh", "0_result.pkl", "0_log.out", "0_log.err")
    for name in names:
        assert (tmp_path / "logs" / f"{job.job_id}_{name}").exists()
    assert job.submission().function is double


def test_a_job_is_attached_to_by_folder_and_id_and_survives_pickling(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    jobs = executor.map_array(double, [1, 2])
    attached = submitit.LocalJob[int](tmp_path / "logs", jobs[1].job_id)
    assert attached.result() == 4
    assert pickle.loads(pickle.dumps(jobs[0])).result() == 2
    assert {jobs[0]: 1}[jobs[0]] == 1


def test_a_folder_may_depend_on_array_and_element(tmp_path: Path) -> None:
    executor = submitit.LocalExecutor(tmp_path / "run %A" / "item-%a")
    jobs = executor.map_array(double, [3, 4])
    assert [job.result() for job in jobs] == [6, 8]
    array = jobs[0].job_id.partition("_")[0]
    assert jobs[1].paths.folder == tmp_path / f"run {array}" / "item-1"
    assert "doubling 4" in jobs[1].paths.stdout.read_text()
    assert jobs[1].paths.submission_file.exists()


def test_a_batch_is_one_array_and_an_exception_drops_it(executor: submitit.AutoExecutor) -> None:
    with executor.batch():
        jobs = [executor.submit(double, n) for n in range(3)]
        with pytest.raises(AttributeError, match="batch"):
            jobs[0].job_id  # noqa: B018 - asking is what is refused
    assert [job.result() for job in jobs] == [0, 2, 4]
    assert len({job.job_id.partition("_")[0] for job in jobs}) == 1
    with pytest.raises(ValueError, match="never mind"), executor.batch():
        dropped = executor.submit(double, 1)
        raise ValueError("never mind")
    with pytest.raises(AttributeError, match="given up"):
        dropped.result()


def tasks() -> tuple[int, str]:
    env = submitit.JobEnvironment()
    print("task", env.global_rank)
    if env.global_rank == 1:
        raise RuntimeError("the second task fails")
    return env.num_tasks, env.job_id


def test_every_task_of_a_job_has_a_result_and_a_log(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(tasks_per_node=3)
    job = executor.submit(tasks)
    error = job.exception()
    assert isinstance(error, FailedJobError)
    assert "the second task fails" in str(error)
    assert [job.task(n).result() for n in (0, 2)] == [(3, job.job_id)] * 2
    assert job.task(2).stdout() == "task 2\n"
    with pytest.raises(AssertionError, match=r"job\.results"):
        submitit.LocalJob(job.paths.folder, job.job_id, tasks=[0, 2]).result()

    async def gather() -> list[Any]:
        some = submitit.LocalJob[Any](job.paths.folder, job.job_id, tasks=[0, 2])
        return [await one for one in some.awaitable().results_as_completed()]

    assert asyncio.run(gather()) == [(3, job.job_id)] * 2


# ---- how a job fails ----------------------------------------------------------------------------


class Unlucky(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def fail(number: int) -> None:
    raise Unlucky(number)


def leave() -> None:
    sys.exit("no licence")


def unpicklable() -> Any:
    return threading.Lock()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_failure_keeps_submitits_type_and_brings_the_exception_itself(
    executor: submitit.AutoExecutor,
) -> None:
    ends = executor.submit_array([leave, unpicklable, die])
    error = executor.submit(fail, 7).exception()
    assert type(error) is FailedJobError
    assert "Unlucky: 7" in str(error)
    assert isinstance(error.__cause__, Unlucky)
    assert error.__cause__.number == 7
    left, kept, died = (job.exception() for job in ends)
    assert "no licence" in str(left)
    assert "pickle" in str(kept)
    # Nothing waits 15 s for a result that cannot come, or 600 s for the scheduler's word.
    assert type(died) is UncompletedJobError
    assert "SIGKILL" in str(died)
    assert not ends[2].paths.result_pickle.exists()


def test_too_large_calls_are_refused_and_leave_nothing_in_the_folder(tmp_path: Path) -> None:
    executor = submitit.LocalExecutor(tmp_path / "logs", max_pickle_size_gb=1e-6)
    for submit in (
        lambda: executor.submit(len, "x" * 2000),
        lambda: executor.map_array(len, ["x" * 600] * 2),
    ):
        with pytest.raises(RuntimeError, match="max_pickle_size_gb"):
            submit()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_subclass_keeps_its_overrides_and_its_job_class_in_arrays(tmp_path: Path) -> None:
    class MyJob(submitit.LocalJob[Any]):
        pass

    class MyExecutor(submitit.LocalExecutor):
        job_class = MyJob

        @classmethod
        def name(cls) -> str:
            return "local"

        def _options(self, count: int, listens: bool) -> dict[str, Any]:
            return {**super()._options(count, listens), "job_name": f"mine-{count}"}

    jobs = MyExecutor(tmp_path).map_array(double, [1, 2])
    assert [type(job) for job in jobs] == [MyJob, MyJob]
    assert "--job-name=mine-2" in jobs[0].paths.submission_file.read_text()
    assert [job.result() for job in jobs] == [2, 4]


def test_a_worker_does_not_import_what_nobody_asked_for(executor: submitit.AutoExecutor) -> None:
    loaded = executor.submit(eval, "sorted(__import__('sys').modules)").result()
    assert "slurm.submitit.core.submission" in loaded
    assert not {"numpy", "asyncio", "msgspec", "cyclopts", "rich"} & set(loaded)


def test_a_multibyte_character_may_lie_across_two_chunks() -> None:
    text = "x" + "ä" * (1 << 17)
    code = "import sys; sys.stdout.buffer.write(('x' + 'ä' * (1 << 17)).encode())"
    assert helpers.CommandFunction([sys.executable, "-c", code], verbose=False)() == text
    with pytest.raises(FailedJobError, match="too bad"):
        helpers.CommandFunction([sys.executable, "-c", "exit('too bad')"], verbose=False)()


# ---- checkpoints --------------------------------------------------------------------------------


class Counter:
    """Counts to a number with a lock held nearly all the time, which its checkpoint takes."""

    def __init__(self) -> None:
        self.count = 0
        self.lives = 0

    def __call__(self, upto: int) -> tuple[int, int]:
        self.lives += 1
        self.lock = threading.Lock()
        print("life", self.lives, flush=True)
        while self.count < upto:
            with self.lock:
                time.sleep(0.05)
                self.count += 1
        return self.count, self.lives

    def __submitit_checkpoint__(self, upto: int) -> helpers.DelayedSubmission:
        with self.lock:
            following = Counter()
            following.count, following.lives = self.count, self.lives
            return helpers.DelayedSubmission(following, upto)


def test_a_preempted_job_goes_on_from_its_checkpoint(executor: submitit.AutoExecutor) -> None:
    jobs = executor.map_array(Counter(), [40, 41])
    for job in jobs:
        wait_for(job, "life 1")
        job._interrupt(timeout=False)
    assert [job.result() for job in jobs] == [(40, 2), (41, 2)]
    assert "(1 remaining timeouts)" in str(jobs[0].stdout())


def test_a_time_out_is_requeued_as_often_as_allowed(tmp_path: Path) -> None:
    executor = submitit.LocalExecutor(tmp_path, max_num_timeout=1)
    executor.update_parameters(timeout_min=6 / 60, signal_delay_s=4)
    counting = executor.submit(Counter(), 100_000)
    plain = executor.submit(time.sleep, 60)
    error = counting.exception()
    assert isinstance(error, FailedJobError)
    assert "timed-out too many times" in str(error)
    assert "life 2" in str(counting.stdout())
    assert "(0 remaining timeouts)" in str(counting.stdout())
    assert "timed-out and not checkpointable" in str(plain.exception())


def test_a_cancelled_job_ends_and_is_not_requeued(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(Counter(), 100_000)
    wait_for(job, "life 1")
    job.cancel()
    assert "cancelled" in str(job.exception())
    assert job.state == "INTERRUPTED"


# ---- what submitit does not have ----------------------------------------------------------------


def test_a_call_begins_after_another_and_never_if_that_fails(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    first = executor.submit(time.sleep, 0.2)
    second = executor.after(first).submit(double, 5)
    assert second.result() == 10
    bad = executor.submit(fail, 1)
    never = executor.after(bad).submit((tmp_path / "it ran").touch)
    assert isinstance(never.exception(), UncompletedJobError)
    assert not (tmp_path / "it ran").exists()


def odd_only(number: int, mark: str) -> int:
    if number % 2 == 0 and not os.path.exists(mark):
        raise ValueError(number)
    return number


def test_failed_jobs_run_again_and_the_others_stay(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    mark = tmp_path / "mended"
    jobs = executor.map_array(odd_only, range(4), [str(mark)] * 4)
    assert [job.exception() is None for job in jobs] == [False, True, False, True]
    mark.touch()
    again = executor.rerun_failed(jobs)
    assert [job.result() for job in again] == [0, 1, 2, 3]
    assert (again[1], again[3]) == (jobs[1], jobs[3])


def count_running(folder: str) -> int:
    mine = Path(folder) / str(os.getpid())
    mine.touch()
    time.sleep(0.2)
    found = len(list(Path(folder).iterdir()))
    mine.unlink()
    return found


def test_local_jobs_run_at_most_so_many_at_the_same_time(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    (tmp_path / "running").mkdir()
    executor.update_parameters(local_array_parallelism=2)
    jobs = executor.map_array(count_running, [str(tmp_path / "running")] * 5)
    assert max(job.result() for job in jobs) <= 2


def test_many_calls_share_few_jobs(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(local_pack=10)
    jobs = executor.map_array(double, range(20))
    assert [job.result() for job in jobs] == [2 * n for n in range(20)]
    assert len({job.job_id for job in jobs}) == 2
    assert pickle.loads(pickle.dumps(jobs[3])).result() == 6
    failing = executor.map_array(fail, [1, 2])
    error = failing[1].exception()
    assert error is not None
    assert isinstance(error.__cause__, Unlucky)


def submit_inside(folder: str) -> int:
    with helpers.clean_env():
        return submitit.AutoExecutor(folder, cluster="local").submit(double, 8).result()


def scheduler_of_a_job_inside(folder: str) -> tuple[str, str | None]:
    with helpers.clean_env():
        inner = submitit.AutoExecutor(folder, cluster="local").submit(os.getenv, SCHEDULER)
        return os.environ[SCHEDULER], inner.result()


SCHEDULER = "SLURM_SDK_EMBEDDED_DIR"


def test_what_a_job_submits_goes_to_its_own_scheduler(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    job = executor.submit(scheduler_of_a_job_inside, str(tmp_path / "inner"))
    assert job.result() == (os.environ[SCHEDULER], os.environ[SCHEDULER])


def test_a_job_submits_another(executor: submitit.AutoExecutor, tmp_path: Path) -> None:
    assert executor.submit(submit_inside, str(tmp_path / "inner")).result() == 16
