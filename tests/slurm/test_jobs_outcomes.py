"""How a function can end, each on real Slurm: every end is a value or one typed error."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, errors, task

#: A guard against hangs, far above what any of these needs.
SOON = 60


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outcomes")


@pytest.fixture
def cluster(base: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=base) as cluster:
        assert cluster.backend.hello()["scheduler"] == "slurm"
        yield cluster


def test_a_value_comes_back(cluster: Cluster) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    job = cluster.submit(task(add))(2, b=3)
    assert job.result(SOON) == 5
    assert job.state == "COMPLETED"
    assert job.exit_code == 0
    assert job.node in {"n1", "n2", "n3", "n4"}


def test_an_exception_comes_back_as_itself_with_the_remote_traceback(cluster: Cluster) -> None:
    def fail() -> None:
        raise KeyError("no such layer")

    job = cluster.submit(task(fail))()
    with pytest.raises(KeyError, match="no such layer") as caught:
        job.result(SOON)
    cause = caught.value.__cause__
    assert isinstance(cause, errors.RemoteTraceback)
    assert 'raise KeyError("no such layer")' in cause.text
    assert "in fail" in "".join(traceback.format_exception(caught.value))
    assert job.state == "FAILED"
    assert "KeyError" in job.stderr()


@pytest.mark.parametrize(("argument", "code"), [(0, 0), (3, 3), (None, 0), ("no data", 1)])
def test_sys_exit_is_reported_with_its_code(cluster: Cluster, argument: Any, code: int) -> None:
    def leave(argument: Any) -> None:
        sys.exit(argument)

    error = cluster.submit(task(leave))(argument).exception(SOON)
    assert isinstance(error, errors.FunctionExited)
    assert error.exit_code == code
    assert f"sys.exit({argument!r})" in str(error)


def test_a_raised_keyboard_interrupt_does_not_interrupt_the_client(cluster: Cluster) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt("from the job")

    error = cluster.submit(task(interrupt))().exception(SOON)
    assert isinstance(error, errors.FunctionExited)
    assert "KeyboardInterrupt" in str(error)


@pytest.mark.parametrize(
    ("code", "expected"), [(0, errors.FunctionExited), (3, errors.JobFailed)], ids=["0", "3"]
)
def test_os_exit_is_a_defined_outcome(
    cluster: Cluster, code: int, expected: type[errors.JobError]
) -> None:
    def vanish(code: int) -> None:
        os._exit(code)

    error = cluster.submit(task(vanish))(code).exception(SOON)
    assert type(error) is expected
    assert error.exit_code == code
    assert f"exit code {code}" in str(error)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_a_process_that_dies_of_a_signal_names_the_signal(cluster: Cluster, name: str) -> None:
    def die(name: str) -> None:
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        print("last words", file=sys.stderr)
        os.kill(os.getpid(), getattr(signal, name))

    error = cluster.submit(task(die))(name).exception(SOON)
    assert isinstance(error, errors.JobFailed)
    assert name in str(error)
    assert "last words" in "\n".join(error.evidence)


def test_a_result_that_cannot_be_pickled_is_named_and_described(cluster: Cluster) -> None:
    def generator() -> Any:
        return (i for i in range(3))

    error = cluster.submit(task(generator))().exception(SOON)
    assert isinstance(error, errors.UnpicklableResult)
    assert "generator" in str(error)


def test_an_exception_that_cannot_be_pickled_arrives_as_text(cluster: Cluster) -> None:
    def fail() -> None:
        import threading

        raise ValueError(threading.Lock())

    error = cluster.submit(task(fail))().exception(SOON)
    assert isinstance(error, errors.RemoteError)
    assert "ValueError: <unlocked" in str(error)
    assert isinstance(error.__cause__, errors.RemoteTraceback)
    assert "in fail" in error.__cause__.text


def test_an_exception_that_pickle_cannot_rebuild_arrives_as_itself(cluster: Cluster) -> None:
    class Demanding(Exception):
        def __init__(self, code: int, *, detail: str) -> None:
            super().__init__(f"{detail} ({code})")
            self.code = code

    def fail() -> None:
        raise Demanding(7, detail="strange")

    error = cluster.submit(task(fail))().exception(SOON)
    assert isinstance(error, Demanding)
    assert (str(error), error.code) == ("strange (7)", 7)
    assert isinstance(error.__cause__, errors.RemoteTraceback)


def test_an_exception_of_a_class_of_the_script_is_caught_by_that_class(cluster: Cluster) -> None:
    class Local(Exception):
        pass

    def fail() -> None:
        raise Local("mine")

    with pytest.raises(Local, match="mine"):
        cluster.submit(task(fail))().result(SOON)


def test_twenty_megabytes_of_output_delay_nothing(cluster: Cluster) -> None:
    def talk() -> int:
        line = "x" * 99
        for _ in range(100_000):
            print(line)
            print(line, file=sys.stderr)
        return 1

    job = cluster.submit(task(talk))()
    assert job.result(SOON) == 1
    assert len(job.stdout()) == 10_000_000
    assert len(job.stderr()) == 10_000_000
    assert list(job.log_lines(2)) == ["x" * 99] * 2


def test_a_large_result_comes_back_whole(cluster: Cluster) -> None:
    def grow(size: int) -> bytes:
        return os.urandom(16) * (size // 16)

    size = 5 << 20
    job = cluster.submit(task(grow))(size)
    value = job.result(SOON)
    assert len(value) == size
    assert value[:16] == value[-16:]
    assert [f.stat().st_size > size for f in Path(job.path, "values").iterdir()] == [True]


def test_a_class_of_the_script_goes_there_and_back(tmp_path: Path, base: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from dataclasses import dataclass
            from slurm import Cluster, task

            print("the script runs")

            @dataclass
            class Point:
                x: int

            class Wrong(Exception):
                pass

            @task
            def move(p: Point, by: int) -> Point:
                if by < 0:
                    raise Wrong(by)
                return Point(p.x + by)

            with Cluster(job_base_dir=sys.argv[1]):
                good, bad = move(Point(1), 2), move(Point(1), -1)
            assert good.result(60) == Point(3), good.result()
            assert type(good.result()) is Point
            try:
                bad.result(60)
            except Wrong as error:
                assert error.args == (-1,)
            print("done")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script), str(base)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # Once: no guard is needed, for the job never runs the script again.
    assert done.stdout.split("\n") == ["the script runs", "done", ""]


def test_a_value_is_not_lost_when_python_crashes_on_its_way_out(cluster: Cluster) -> None:
    def value() -> int:
        import atexit

        atexit.register(os._exit, 9)
        return 42

    job = cluster.submit(task(value))()
    assert job.result(SOON) == 42


def test_the_settled_path_makes_no_scheduler_call(cluster: Cluster) -> None:
    def quick() -> int:
        return 1

    scheduler: Any = cluster.backend.agent.scheduler  # type: ignore[attr-defined]
    before = scheduler.calls
    assert cluster.submit(task(quick))().result(SOON) == 1
    # One sbatch; a slow machine may see the poll that comes seconds after a submission.
    assert scheduler.calls - before <= 2


def test_polling_with_short_timeouts_ends_with_the_values(cluster: Cluster) -> None:
    def number(x: int) -> int:
        return x

    polls = 0

    def poll(ask: Callable[[], Any]) -> Any:
        nonlocal polls
        while True:
            try:
                return ask()
            except TimeoutError:
                polls += 1

    array = cluster.submit(task(number)).map(range(12))
    threads = concurrent.futures.ThreadPoolExecutor(4)
    found = [threads.submit(poll, partial(job.result, timeout=0.02)) for job in array]
    assert poll(partial(array.results, timeout=0.02, return_exceptions=True)) == list(range(12))
    assert [one.result(SOON) for one in found] == list(range(12))
    assert polls
