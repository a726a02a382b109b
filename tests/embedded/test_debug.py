"""The debug backend: calls run in this process, and nothing about them can hang."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import slurm
from slurm import Cluster, Job, JobContext, task


@pytest.fixture
def debug(tmp_path: Path) -> Cluster:
    return Cluster("debug", job_base_dir=tmp_path)


@task
def pid_and_thread(x: int) -> tuple[int, str, int]:
    return os.getpid(), threading.current_thread().name, x


def test_a_call_runs_in_this_process_when_its_result_is_asked_for(debug: Cluster) -> None:
    ran = []
    with debug:
        job = debug.submit(lambda: ran.append("ran"))
        call = job()
    assert ran == [] and "PENDING" in repr(call)
    call.result()
    call.result()
    assert ran == ["ran"]
    with debug:
        assert pid_and_thread(1).result() == (os.getpid(), "MainThread", 1)


def test_the_standard_librarys_tools_do_not_hang(debug: Cluster) -> None:
    with debug:
        jobs = [pid_and_thread(i) for i in range(3)]
        done, rest = concurrent.futures.wait(jobs, timeout=20)
        assert len(done) == 3 and not rest
        more = [pid_and_thread(i) for i in range(3)]
        assert len(list(concurrent.futures.as_completed(more, timeout=20))) == 3

        async def main() -> tuple[int, str, int]:
            return await pid_and_thread(4)

        assert asyncio.run(main())[2] == 4
        called = threading.Event()
        pid_and_thread(5).add_done_callback(lambda _: called.set())
        assert called.wait(20)


def test_the_exception_is_the_functions_own_with_its_frames(debug: Cluster) -> None:
    @task
    def fail() -> None:
        raise KeyError("here")

    with debug, pytest.raises(KeyError) as caught:
        fail().result()
    assert caught.traceback[-1].name == "fail"


def test_what_could_not_be_sent_to_a_job_is_refused(debug: Cluster) -> None:
    with debug, pytest.raises(slurm.UnpicklableArgument, match="'x'"):
        pid_and_thread(threading.Lock())  # type: ignore[arg-type]


def test_jobs_as_arguments_arrive_as_their_values(debug: Cluster) -> None:
    @task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @task
    def one() -> int:
        return 1

    with debug:
        job: Job[int] = total([one(), one(), 5])  # type: ignore[list-item]
        assert job.result() == 7


def test_context_and_environment_are_there(debug: Cluster, tmp_path: Path) -> None:
    @task(env={"COLOUR": "red"}, cpus_per_task=3)
    def look(ctx: JobContext) -> tuple[str, int, bool]:
        return os.environ["COLOUR"], ctx.cpus, ctx.output_dir.is_relative_to(tmp_path)

    with debug:
        assert look().result() == ("red", 3, True)
    assert "COLOUR" not in os.environ


def test_pdb_works_inside_the_function(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from slurm import Cluster, task\n"
        "@task\n"
        "def f(x):\n    breakpoint()\n    return x\n"
        "with Cluster('debug', job_base_dir='jobs'):\n    print(f(5).result())\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        input="p x * 100\nc\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "500" in done.stdout and done.stdout.rstrip().endswith("5"), done.stderr


def test_a_context_is_given_by_position_where_the_parameter_has_no_name(tmp_path: Path) -> None:
    @task
    def who(x: int, ctx: JobContext, /) -> str:
        return f"{x} {ctx.rank}"

    with Cluster("debug", job_base_dir=tmp_path):
        assert who(7).result() == "7 0"  # type: ignore[call-arg]
