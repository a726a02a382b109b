"""Jobs that something else ends: cancel, time, memory, a signal, or a setup that fails."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slurm import Cluster, Job, JobContext, errors, outcome, task
from slurm.stack import RunningCluster
from terminal import slurm

#: A guard against hangs; the controller looks at time limits every 30 s only.
SOON = 60
LATE = 120


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ended")


@pytest.fixture
def cluster(base: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=base) as cluster:
        yield cluster


def nap(seconds: float = 300) -> Any:
    # Travels by value: the node need not import the test module.
    def napping(seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    return task(napping, job_name="napping")


def eventually(condition: Callable[[], object], timeout: float = SOON) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def started(job: Job[Any]) -> bool:
    return "start " in "".join(p.read_text() for p in Path(job.path, "events").glob("*.txt"))


def run(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=SOON
    ).stdout.strip()


# ---- the slow ones start first and are asked for last ---------------------------------------


class Slow(NamedTuple):
    over: Job[Any]
    warned: Job[Any]
    graceful: Job[Any]


@pytest.fixture(scope="module", autouse=True)
def slow(slurm_cluster: RunningCluster, base: Path) -> Slow:
    """Jobs that run into a time limit while the other tests of this file run."""

    def until_warned(ctx: JobContext) -> tuple[bool, str | None, float | None]:
        while not ctx.should_stop:
            time.sleep(0.05)
        return ctx.should_stop, ctx.stop_signal, ctx.time_left()

    def until_told(ctx: JobContext) -> str | None:
        while ctx.stop_signal != "SIGTERM":
            time.sleep(0.05)
        return "saved"

    cluster = Cluster(job_base_dir=base)
    jobs = Slow(
        cluster.submit(nap(), time="1min")(300),
        cluster.submit(task(until_warned), time="1min")(),
        cluster.submit(task(until_told), time="1min")(),
    )
    for job in (jobs.over, jobs.graceful):
        eventually(functools.partial(started, job))
        # Slurm's smallest limit is a minute; the end itself may be set to any moment.
        soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 5))
        run("scontrol", "update", f"JobId={job.id}", f"EndTime={soon}")
    return jobs


# ---- cancel -----------------------------------------------------------------------------------


def test_cancel_ends_a_pending_job(cluster: Cluster) -> None:
    job = cluster.submit(nap(), hold=True)(300)
    assert job.state == "PENDING"
    assert job.cancel()
    with pytest.raises(errors.JobCancelled, match="before it started"):
        job.result(SOON)
    assert job.cancelled()
    assert job.done()


def test_cancel_ends_a_running_job(cluster: Cluster) -> None:
    job = cluster.submit(nap())(300)
    eventually(lambda: started(job))
    assert job.running()
    assert job.cancel()
    with pytest.raises(errors.JobCancelled):
        job.result(SOON)
    assert job.cancelled()
    assert job.state == "CANCELLED"


def test_scancel_from_outside_is_seen_while_pending(cluster: Cluster) -> None:
    job = cluster.submit(nap(), hold=True)(300)
    run("scancel", job.id)
    with pytest.raises(errors.JobCancelled):
        job.result(SOON)


@pytest.mark.parametrize("flags", [[], ["--signal=KILL", "--full"]], ids=["plain", "kill"])
def test_scancel_from_outside_is_seen_while_running(cluster: Cluster, flags: list[str]) -> None:
    job = cluster.submit(nap())(300)
    eventually(lambda: started(job))
    run("scancel", *flags, job.id)
    assert isinstance(wait_error(job), errors.JobCancelled)


def wait_error(job: Job[Any], timeout: float = SOON) -> BaseException:
    with pytest.raises(errors.SlurmError) as caught:
        job.result(timeout)
    return caught.value


def test_a_result_that_came_before_the_cancel_is_kept(cluster: Cluster) -> None:
    def quick() -> int:
        return 7

    # The value is there, the job is not over: its teardown takes time.
    job = cluster.submit(task(quick), teardown=["sleep 300"])()
    eventually(lambda: "record " in events(job))
    assert not job.done()
    assert job.cancel()
    assert job.result(SOON) == 7
    assert not job.cancelled()


def events(job: Job[Any]) -> str:
    return "".join(p.read_text() for p in Path(job.path, "events").glob("*.txt"))


def test_a_finished_job_cannot_be_cancelled(cluster: Cluster) -> None:
    def quick() -> int:
        return 7

    job = cluster.submit(task(quick))()
    assert job.result(SOON) == 7
    assert not job.cancel()
    assert job.result() == 7


# ---- memory -----------------------------------------------------------------------------------

HOG = "b = bytearray(400 << 20); b[::4096] = b'x' * len(b[::4096])"


def test_a_function_that_takes_too_much_memory_is_out_of_memory(
    cluster: Cluster, slurm_cluster: RunningCluster
) -> None:
    _needs_memory_limits(slurm_cluster)

    def grow() -> int:
        data = bytearray(400 << 20)
        for i in range(0, len(data), 4096):
            data[i] = 1
        return len(data)

    error = wait_error(cluster.submit(task(grow), mem="100M")())
    assert isinstance(error, errors.JobOutOfMemory)
    assert "mem='200M'" in str(error) or "mem='200MiB'" in str(error), str(error)


def test_a_child_that_took_too_much_memory_is_out_of_memory_although_a_value_came(
    cluster: Cluster, slurm_cluster: RunningCluster
) -> None:
    _needs_memory_limits(slurm_cluster)

    def with_child(hog: str) -> int:
        import sys

        return subprocess.run([sys.executable, "-c", hog]).returncode

    job = cluster.submit(task(with_child), mem="100M")(HOG)
    assert isinstance(wait_error(job), errors.JobOutOfMemory)
    assert job.state == "OUT_OF_MEMORY"


def test_memory_used_up_by_a_setup_line_is_out_of_memory(
    cluster: Cluster, slurm_cluster: RunningCluster
) -> None:
    _needs_memory_limits(slurm_cluster)

    def never() -> int:
        return 1

    line = f'"{os.sys.executable}" -c "{HOG}"'  # type: ignore[attr-defined]
    error = wait_error(cluster.submit(task(never), mem="100M", setup=[line])())
    assert isinstance(error, errors.JobOutOfMemory)


@pytest.mark.full
def test_memory_used_up_by_the_batch_shell_itself_is_out_of_memory(
    cluster: Cluster, slurm_cluster: RunningCluster
) -> None:
    _needs_memory_limits(slurm_cluster)

    def never() -> int:
        return 1

    line = 'x=0123456789abcdef; while :; do x="$x$x"; done'
    error = wait_error(cluster.submit(task(never), mem="60M", setup=[line])())
    assert isinstance(error, errors.JobOutOfMemory)


def _needs_memory_limits(slurm_cluster: RunningCluster) -> None:
    if not slurm_cluster.enforces_memory:
        pytest.skip("this host lets no cgroup limit memory")


# ---- killed, or never started -------------------------------------------------------------------


def test_a_runner_killed_from_outside_is_reported(cluster: Cluster) -> None:
    job = cluster.submit(nap())(300)
    eventually(lambda: started(job))
    pid = int(events(job).partition(" pid=")[2].split()[0])
    os.kill(pid, signal.SIGKILL)
    error = wait_error(job)
    assert isinstance(error, errors.JobFailed)
    assert error.signal == signal.SIGKILL


def test_a_batch_shell_killed_from_outside_is_reported(cluster: Cluster) -> None:
    job = cluster.submit(nap())(300)
    eventually(lambda: started(job))
    pid = int(events(job).partition(" pid=")[2].split()[0])
    shell = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shell, signal.SIGKILL)
    assert isinstance(wait_error(job), errors.JobFailed)


def test_a_setup_line_that_fails_ends_the_job_and_is_named(cluster: Cluster) -> None:
    def never() -> int:
        return 1

    job = cluster.submit(task(never), setup=["true", "ls /nowhere/at/all"])()
    error = wait_error(job)
    assert isinstance(error, errors.JobFailed)
    assert "setup" in str(error)
    assert "setup line 2" in "\n".join(error.evidence)
    assert "start " not in events(job)


def test_a_python_that_does_not_exist_is_named(cluster: Cluster) -> None:
    def never() -> int:
        return 1

    error = wait_error(cluster.submit(task(never), python="/nowhere/python3")())
    assert isinstance(error, errors.JobFailed)
    assert "python=" in str(error)
    assert "/nowhere/python3" in str(error)


def test_a_working_directory_that_does_not_exist_is_named(cluster: Cluster) -> None:
    def never() -> int:
        return 1

    error = wait_error(cluster.submit(task(never), workdir="/nowhere/at/all")())
    assert isinstance(error, errors.JobFailed)
    assert "/nowhere/at/all" in str(error)


@pytest.mark.parametrize("stream", ["output", "error"])
def test_a_log_that_the_node_cannot_open_is_named_and_not_the_run_directory(
    cluster: Cluster, stream: str, tmp_path: Path
) -> None:
    def never() -> int:
        return 1

    options: dict[str, Any] = {stream: "/proc/none/log"}
    job = cluster.submit(task(never), **options)()
    eventually(lambda: "FAILED" in run("squeue", "-h", "-t", "all", "-j", job.id, "-O", "State"))
    base = str(cluster.base)
    for verb in ("show", "why", "ls"):
        said = slurm(
            verb, *([] if verb == "ls" else [job.id]), "--job-base-dir", base, cwd=tmp_path
        )
        assert "FAILED" in said.text and "run" not in said.text.split("FAILED")[1].split(), (
            said.text
        )
        assert verb == "ls" or "/proc/none/log" in said.text
    error = wait_error(job)
    assert type(error) is errors.JobFailed
    assert "could not open its log /proc/none/log" in str(error)


def test_a_run_directory_that_the_node_cannot_see_is_named(cluster: Cluster) -> None:
    def never() -> int:
        return 1

    job = cluster.submit(task(never), hold=True)()
    hidden = Path(job.path).with_name("hidden")
    Path(job.path).rename(hidden)
    job.release()
    eventually(lambda: "FAILED" in run("squeue", "-h", "-t", "all", "-j", job.id, "-O", "State"))
    # slurmd of 24.11 and later makes a directory that it misses, for the log.
    shutil.rmtree(job.path, ignore_errors=True)
    hidden.rename(job.path)
    error = wait_error(job)
    assert isinstance(error, errors.RunDirNotVisible)
    assert "job_base_dir" in str(error)


@pytest.mark.parametrize(
    ("code", "expected"), [(3, errors.JobFailed), (0, errors.FunctionExited)], ids=["3", "0"]
)
def test_a_job_that_has_ended_is_told_although_slurm_calls_it_running(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[errors.JobError]
) -> None:
    def vanish(code: int) -> None:
        os._exit(code)

    # Slurm's answer as it is for half an hour when slurmd was restarted at the wrong moment.
    scheduler: Any = cluster._watcher.backend.agent.scheduler  # type: ignore[attr-defined]
    real = scheduler.status
    monkeypatch.setattr(
        scheduler,
        "status",
        lambda ids: [row._replace(state="RUNNING", end=None) for row in real(ids)],
    )
    monkeypatch.setattr(outcome, "STALE", 3.0)
    job = cluster.submit(task(vanish))(code)
    error = wait_error(job)
    assert type(error) is expected
    assert error.exit_code == code


def test_an_upstream_that_fails_ends_the_jobs_behind_it(cluster: Cluster) -> None:
    def fail() -> int:
        raise ValueError("upstream")

    def double(x: int) -> int:
        return 2 * x

    first = cluster.submit(task(fail), setup=["sleep 1"])()
    second = cluster.submit(task(double))(first)  # type: ignore[arg-type]
    assert isinstance(wait_error(second), errors.UpstreamFailed)
    with pytest.raises(ValueError, match="upstream"):
        first.result(SOON)


# ---- the time limit: asked for last -------------------------------------------------------------


def test_the_warning_before_the_limit_sets_should_stop(slow: Slow) -> None:
    stop, name, left = slow.warned.result(LATE)
    assert stop
    assert name == "SIGUSR2"
    assert left is not None
    assert 0 < left <= 60


def test_the_time_limit_is_reported_with_the_option_that_raises_it(slow: Slow) -> None:
    error = wait_error(slow.over, LATE)
    assert isinstance(error, errors.TimeLimitReached)
    assert "time='2:00'" in str(error) or "time='00:02:00'" in str(error), str(error)
    assert slow.over.state == "TIMEOUT"


def test_a_function_that_heeds_the_term_at_its_limit_keeps_its_value(slow: Slow) -> None:
    assert slow.graceful.result(LATE) == "saved"
