"""A function becomes a job: what a user writes, on the embedded scheduler."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import slurm
from slurm import Cluster, Job, JobContext, task

WAIT = 60


@task(time="5min")
def add(a: int, b: int = 1) -> int:
    return a + b


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_call_inside_a_cluster_returns_a_job_with_the_value(cluster: Cluster) -> None:
    job = add(2, b=3)
    assert isinstance(job, Job)
    assert job.result(WAIT) == 5
    assert job.done() and not job.running() and not job.cancelled()
    assert job.state == "COMPLETED" and job.state.code == "CD"
    assert job.exception() is None


def test_the_function_can_be_called_without_a_job() -> None:
    assert add.local(2, 3) == add.unwrapped(2, 3) == 5


def test_a_call_outside_of_a_cluster_says_what_to_do() -> None:
    with pytest.raises(slurm.NoActiveCluster, match=r"with Cluster\(\): add"):
        add(1)


def test_the_original_exception_arrives_with_the_jobs_traceback(cluster: Cluster) -> None:
    job = fail("no such luck")
    with pytest.raises(ValueError, match="no such luck") as caught:
        job.result(WAIT)
    assert isinstance(caught.value.__cause__, slurm.RemoteTraceback)
    assert "raise ValueError(text)" in str(caught.value.__cause__)
    assert isinstance(job.exception(), ValueError)
    assert job.state == "FAILED"


def test_result_can_be_asked_for_again_and_again(cluster: Cluster) -> None:
    job = fail("again")
    for _ in range(3):
        with pytest.raises(ValueError, match="again"):
            job.result(WAIT)


def test_nested_functions_and_lambdas_travel_by_value(cluster: Cluster) -> None:
    factor = 7

    def times(x: int) -> int:
        return x * factor

    assert task(times)(6).result(WAIT) == 42
    assert cluster.submit(lambda x: x + factor)(1).result(WAIT) == 8


@dataclass
class Point:
    x: int
    y: int


def test_instances_of_local_classes_come_back_as_the_same_class(cluster: Cluster) -> None:
    class Box:
        def __init__(self, content: object) -> None:
            self.content = content

    @task
    def pack(content: object) -> Box:
        return Box(content)

    box = pack(Point(1, 2)).result(WAIT)  # type: ignore[call-arg]
    assert isinstance(box, Box)
    assert box.content == Point(1, 2)


def test_a_job_as_an_argument_is_a_dependency_and_arrives_as_its_value(cluster: Cluster) -> None:
    @task
    def total(parts: dict[str, list[int]], extra: int) -> int:
        return sum(parts["numbers"]) + extra

    first, second = add(1, 2), add(3, 4)
    job = total({"numbers": [first, second, 100]}, extra=first)  # type: ignore[list-item, arg-type]
    assert job.result(WAIT) == 3 + 7 + 100 + 3


def test_a_job_that_depends_on_a_failed_one_is_refused_or_ends(cluster: Cluster) -> None:
    bad = fail("upstream")
    later = cluster.submit(add, after=bad)(1, 1)
    with pytest.raises(slurm.UpstreamFailed):
        later.result(WAIT)
    with pytest.raises(slurm.UpstreamFailed):
        cluster.submit(add, after=bad)(1, 1)


def test_options_of_cluster_task_and_call_are_merged_in_that_order(tmp_path: Path) -> None:
    with Cluster("embedded", job_base_dir=tmp_path, time="1h", mem="500M", nice=5) as cluster:
        plan = cluster.explain(task(add.unwrapped, time="2h"), mem=None, cpus_per_task=2)(1)
    assert "#SBATCH --time=02:00:00" in plan.script
    assert "#SBATCH --nice=5" in plan.script
    assert "#SBATCH --cpus-per-task=2" in plan.script
    assert "--mem=" not in plan.script


def test_with_options_leaves_the_task_as_it_was(cluster: Cluster) -> None:
    longer = add.with_options(time="3h", job_name="sum")
    assert "--time=03:00:00" in cluster.explain(longer)(1).script
    assert "--time=00:05:00" in cluster.explain(add)(1).script
    assert longer(1).name == "sum"


def test_none_in_with_options_removes_a_default_of_the_cluster(tmp_path: Path) -> None:
    with Cluster("embedded", job_base_dir=tmp_path, nice=5) as cluster:
        assert "--nice" not in cluster.explain(add.with_options(nice=None))(1).script


def test_a_wrong_option_names_the_right_one() -> None:
    with pytest.raises(slurm.OptionError, match="cpus_per_task"):
        task(add.unwrapped, cpu_per_task=3)  # type: ignore[call-overload]
    with pytest.raises(slurm.OptionError, match="partition"):
        Cluster("embedded", partitoin="gpu")  # type: ignore[call-arg]


def test_arguments_that_do_not_fit_are_refused_before_submission(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        add()  # type: ignore[call-arg]
    with pytest.raises(slurm.UnpicklableArgument, match="'b'"):
        add(1, b=threading.Lock())  # type: ignore[arg-type]
    assert not list(Path(cluster.base).glob("add-*"))


def test_a_job_works_with_the_standard_librarys_tools(cluster: Cluster) -> None:
    jobs = [add(i, 0) for i in range(4)]
    rest = concurrent.futures.wait(jobs, timeout=WAIT).not_done
    assert not rest
    assert sorted(j.result() for j in concurrent.futures.as_completed(jobs, timeout=WAIT)) == [
        0, 1, 2, 3,
    ]  # fmt: skip


def test_done_callbacks_run_on_a_thread_of_their_own(cluster: Cluster) -> None:
    called: concurrent.futures.Future[str] = concurrent.futures.Future()
    job = nap(0.3)
    job.add_done_callback(lambda _: called.set_result(threading.current_thread().name))
    assert called.result(WAIT) == "slurm-callbacks"


def test_waiting_too_short_raises_timeout_and_leaves_the_job_alone(cluster: Cluster) -> None:
    job = nap(1.0)
    with pytest.raises(TimeoutError):
        job.result(timeout=0.05)
    assert job.result(WAIT) == 1.0


def test_jobs_can_be_awaited_and_a_cancelled_waiter_does_not_cancel_them(cluster: Cluster) -> None:
    async def main() -> list[float]:
        jobs = [nap(0.5), nap(0.6)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_value(jobs[0]), timeout=0.05)
        return list(await asyncio.gather(*map(_value, jobs)))

    async def _value(job: Job[float]) -> float:
        return await job

    assert asyncio.run(main()) == [0.5, 0.6]


def test_threads_see_the_only_open_cluster_and_refuse_to_choose_among_two(
    cluster: Cluster, tmp_path: Path
) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert pool.submit(lambda: add(1, 1).result(WAIT)).result(WAIT) == 2
        with (
            Cluster("embedded", job_base_dir=tmp_path / "other"),
            pytest.raises(slurm.NoActiveCluster, match=r"cluster\.submit\(add\)"),
        ):
            pool.submit(lambda: add(1, 1)).result(WAIT)


def test_async_tasks_started_inside_the_block_see_the_cluster(cluster: Cluster) -> None:
    async def one(i: int) -> int:
        return await add(i, 1)

    async def main() -> list[int]:
        return list(await asyncio.gather(*(one(i) for i in range(3))))

    assert asyncio.run(main()) == [1, 2, 3]


def test_async_functions_are_tasks_too(cluster: Cluster) -> None:
    @task
    async def later(x: int) -> int:
        await asyncio.sleep(0.01)
        return x + 1

    assert later(1).result(WAIT) == 2


def test_jobs_stay_usable_after_the_block(tmp_path: Path) -> None:
    with Cluster("embedded", job_base_dir=tmp_path):
        job = nap(0.2)
    assert job.result(WAIT) == 0.2
    assert job.stdout() == ""


def test_a_running_job_can_be_cancelled(cluster: Cluster) -> None:
    job = nap(300)
    deadline = time.monotonic() + WAIT
    while not job.running() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job.cancel()
    with pytest.raises(slurm.JobCancelled):
        job.result(WAIT)
    with pytest.raises(concurrent.futures.CancelledError):
        job.result(WAIT)
    assert job.cancelled() and job.done()


def test_a_job_found_again_gives_its_result(cluster: Cluster) -> None:
    job = add(20, 22)
    job.result(WAIT)
    again = Cluster("embedded", job_base_dir=cluster.base)
    for name in (job.run, job.path, job.id):
        assert again.attach(name).result(WAIT) == 42
    assert again.get_job(int(job.id)).state == "COMPLETED"
    with pytest.raises(slurm.RunNotFound):
        again.attach("nobody-20200101-000000-abcdef")
    with pytest.raises(slurm.RunNotFound):
        again.attach("../../etc")


def test_logs_can_be_read_and_followed(cluster: Cluster) -> None:
    @task
    def talk() -> None:
        import sys

        for i in range(5):
            print("line", i)
            time.sleep(0.1)
        print("bad", file=sys.stderr)

    job = talk()
    assert list(job.log_lines(follow=True)) == [f"line {i}" for i in range(5)]
    assert job.stdout().splitlines()[0] == "line 0"
    assert job.stderr().strip() == "bad"
    assert list(job.log_lines(2)) == ["line 3", "line 4"]
    shot = job.snapshot()
    assert shot.is_successful and shot.stdout_tail.endswith("line 4") and shot.exit_code == 0


def test_the_context_is_injected_by_annotation_in_any_kind_of_call(cluster: Cluster) -> None:
    @task(cpus_per_task=2)
    def where(a: int, ctx: JobContext, b: int = 0) -> tuple[int, int, str, int, int]:
        assert ctx.output_dir.is_dir() and not ctx.should_stop
        left = ctx.time_left()
        assert left is None or left > 0
        return a, b, ctx.job_id, ctx.cpus, ctx.world_size

    calls = [where(1), where(a=1), where(1, 2), where(1, b=2), where(b=2, a=1)]  # type: ignore[arg-type, call-arg]
    assert [j.result(WAIT)[:2] for j in calls] == [(1, 0), (1, 0), (1, 2), (1, 2), (1, 2)]
    assert calls[0].result()[2:] == (calls[0].id, 2, 1)


def test_a_parameter_named_ctx_is_just_a_parameter(cluster: Cluster) -> None:
    assert cluster.submit(lambda ctx: ctx + 1)(1).result(WAIT) == 2


def test_a_requeued_job_keeps_its_checkpoint_and_counts_its_attempts(cluster: Cluster) -> None:
    @task(requeue=True)
    def count(ctx: JobContext) -> tuple[int, str]:
        mark = ctx.checkpoint_dir / "mark"
        if not mark.exists():
            mark.write_text("first attempt")
            time.sleep(300)
        return ctx.attempt, mark.read_text()

    job = count()
    mark = Path(job.path) / "checkpoint" / "0" / "mark"
    deadline = time.monotonic() + WAIT
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    job.requeue()
    assert job.result(WAIT) == (1, "first attempt")
    assert "attempt 1" in job.stdout()


def test_the_working_directory_is_the_clients_or_as_asked(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "it's here"
    here.mkdir()
    monkeypatch.chdir(here)
    where = task(os.getcwd)
    assert where().result(WAIT) == str(here)
    assert where.with_options(workdir="/")().result(WAIT) == "/"


def test_setup_env_and_teardown_reach_the_job(cluster: Cluster) -> None:
    odd = 'it\'s "$(date)"\n`two` lines \\'
    show = task(
        lambda: (os.environ["ODD"], os.environ["FROM_SETUP"]),
        env={"ODD": odd},
        setup=["export FROM_SETUP=yes"],
        teardown="echo torn down; false",
    )
    job = show()
    assert job.result(WAIT) == (odd, "yes")
    assert "torn down" in job.stdout()


def test_a_failing_setup_line_is_named(cluster: Cluster) -> None:
    job = cluster.submit(add, setup=["true", "sh -c 'exit 9'"])(1)
    with pytest.raises(slurm.JobFailed, match="setup with exit code 9") as caught:
        job.result(WAIT)
    assert "setup line 2" in str(caught.value)


@pytest.mark.parametrize("value", [b"x" * 3_000_000, list(range(200_000))], ids=["bytes", "list"])
def test_large_values_come_back_whole(cluster: Cluster, value: object) -> None:
    assert task(lambda x: x)(value).result(WAIT) == value


def test_a_fork_of_the_client_has_its_own_watcher(cluster: Cluster) -> None:
    before = nap(0.5)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if add(1, 2).result(WAIT) == 3 and before.result(WAIT) == 0.5 else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert before.result(WAIT) == 0.5


def test_diagnose_tells_what_works(cluster: Cluster) -> None:
    facts = cluster.diagnose()
    assert facts["errors"] == []
    assert facts["scheduler"] == "embedded" and facts["job_base_dir"] == cluster.base


def test_a_method_can_be_a_task(cluster: Cluster) -> None:
    class Model:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        @task(nice=1)
        def scale(self, x: int) -> int:
            return self.factor * x

    assert Model(3).scale(5).result(WAIT) == 15
    assert Model.scale.options == {"nice": 1}


def test_a_program_runs_where_the_scheduler_is(cluster: Cluster) -> None:
    assert cluster.run(["printf", "a b"]).stdout == "a b"
    assert cluster.accounting(["1"]) == []


def test_what_a_function_writes_has_the_users_umask(cluster: Cluster, tmp_path: Path) -> None:
    def write(path: str) -> int:
        with open(path, "w") as f:
            f.write("shared with the group")
        return os.stat(path).st_mode & 0o777

    before = os.umask(0o002)
    try:
        job = cluster.submit(task(write))(str(tmp_path / "result"))
    finally:
        os.umask(before)
    assert job.result(60) == 0o664
    written = [os.lstat(f"{job.path}/{name}") for name in ("function.bin", "script.sh")]
    assert not any(info.st_mode & 0o077 for info in written)
