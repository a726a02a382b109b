"""The executor keeps the promises of `concurrent.futures`: cases in the spirit of CPython's own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import operator
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, SlurmError, UsageError
from slurm.errors import RunNotFound
from slurm.executor import Executor
from slurm.rundir import size_of
from waiting import holds


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[Executor]:
    with cluster.executor(max_workers=2) as pool:
        yield pool


def wait_for(path: str) -> str:
    deadline = time.monotonic() + 60
    while not Path(path).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.01)
    return path


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def mark(path: str) -> None:
    Path(path).touch()


def length(data: bytes) -> int:
    return len(data)


def echo(value: Any) -> Any:
    return value


class Adder:
    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, n: int) -> int:
        return n + self.k


class Falsy(Exception):
    def __bool__(self) -> bool:
        return False


def raise_falsy() -> None:
    raise Falsy("falsy")


class Unreadable:
    def __reduce__(self) -> Any:
        return operator.truediv, (1, 0)


class Leaving:
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


# ---- calls --------------------------------------------------------------------------------------


def test_positional_and_keyword_arguments_of_any_name_arrive(pool: Executor) -> None:
    def capture(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    found = pool.submit(capture, 1, self=2, fn=3, call=4).result(60)
    assert found == ((1,), {"self": 2, "fn": 3, "call": 4})


def test_a_callable_is_sent_as_it_is_at_each_call(pool: Executor) -> None:
    adder = Adder(1)
    assert pool.submit(adder, 1).result(60) == 2
    adder.k = 10
    assert pool.submit(adder, 1).result(60) == 11


def test_a_function_by_value_sees_the_globals_of_its_call(pool: Executor) -> None:
    space: dict[str, Any] = {"K": 1, "__name__": "__main__"}
    exec("def add(n):\n    return n + K", space)
    assert pool.submit(space["add"], 1).result(60) == 2
    space["K"] = 10
    assert pool.submit(space["add"], 1).result(60) == 11


def test_versions_of_a_callable_without_end_are_not_kept(pool: Executor) -> None:
    adder = Adder(0)
    for k in range(200):
        adder.k = k
        last = pool.submit(adder, 0)
    assert last.result(60) == 199
    assert len(pool._by_content) <= 64
    assert all(len(block._knows) <= 128 for block in pool._blocks)


def test_arguments_are_what_they_were_at_the_call(pool: Executor) -> None:
    buffer = bytearray(3 << 20)
    futures = []
    for n in range(4):
        buffer[0] = n
        futures.append(pool.submit(operator.getitem, buffer, 0))
    assert [future.result(60) for future in futures] == [0, 1, 2, 3]


def test_a_large_argument_and_a_large_value_take_about_a_second(pool: Executor) -> None:
    pool.submit(abs, 1).result(60)
    began = time.monotonic()
    data = os.urandom(64 << 20)
    assert pool.submit(echo, data).result(60) == data
    assert pool.submit(length, data).result(60) == 64 << 20
    # It was minutes; a generous bound, for the machine may be busy.
    assert time.monotonic() - began < 20


def test_many_arguments_of_a_megabyte_flow_through_a_worker(pool: Executor) -> None:
    began = time.monotonic()
    data = [bytes([n]) * (1000 << 10) for n in range(40)]
    assert list(pool.map(length, data, timeout=60)) == [1000 << 10] * 40
    assert time.monotonic() - began < 30


def test_nothing_is_left_of_large_arguments_that_were_used(pool: Executor) -> None:
    assert pool.submit(length, bytes(3 << 20)).result(60) == 3 << 20
    inbox = Path(pool.jobs[0].path)
    until(lambda: not list(inbox.rglob("*.arguments")))


# ---- exceptions ---------------------------------------------------------------------------------


def test_an_exception_that_is_false_is_still_one(pool: Executor) -> None:
    # Whether `result()` raises it is up to the standard library's Future.
    assert isinstance(pool.submit(raise_falsy).exception(60), Falsy)


def test_what_raises_when_it_is_unpickled_fails_its_call_only(pool: Executor) -> None:
    with pytest.raises(ZeroDivisionError):
        pool.submit(echo, Unreadable()).result(60)
    with pytest.raises(SlurmError):
        pool.submit(Unreadable).result(60)
    with pytest.raises((SlurmError, SystemExit)):
        pool.submit(Leaving).result(60)
    assert pool.submit(abs, -1).result(60) == 1


def test_an_error_in_map_comes_at_its_place(pool: Executor) -> None:
    found = pool.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
    assert next(found) == (0, 1)
    assert next(found) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_map_gives_up_after_its_timeout(pool: Executor, tmp_path: Path) -> None:
    results = []
    with pytest.raises(TimeoutError):
        for result in pool.map(wait_for, [__file__, str(tmp_path / "never")], timeout=5):
            results.append(result)
    assert results in ([__file__], [])
    mark(str(tmp_path / "never"))


def test_map_reads_its_items_at_the_call_or_as_far_as_its_buffer(pool: Executor) -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for n in range(10):
            read.append(n)
            yield -n

    found = pool.map(abs, items(), buffersize=3)
    assert read == [0, 1, 2]
    assert list(found) == list(range(10))
    pool.map(abs, items())
    assert len(read) == 20
    with pytest.raises(UsageError, match="buffersize=0"):
        pool.map(abs, [1], buffersize=0)


# ---- what is kept -------------------------------------------------------------------------------


def test_arguments_and_values_are_not_kept(pool: Executor) -> None:
    argument = Adder(1)
    seen = weakref.ref(argument)
    future = pool.submit(echo, argument)
    value = future.result(60)
    also = weakref.ref(value)
    del argument, value, future
    gc.collect()
    until(lambda: seen() is None)
    until(lambda: (gc.collect(), also())[1] is None)


# ---- cancelling and shutting down ---------------------------------------------------------------


def test_what_no_worker_has_begun_can_be_cancelled(pool: Executor, tmp_path: Path) -> None:
    go = str(tmp_path / "go")
    futures = [pool.submit(wait_for, go) for _ in range(100)]
    until(lambda: any(future.running() for future in futures))
    holds("few run", lambda: sum(future.running() for future in futures) <= 6, 0.3)
    assert futures[50].cancel()
    pool.shutdown(wait=False, cancel_futures=True)
    until(lambda: sum(future.cancelled() for future in futures) >= 98)
    mark(go)
    concurrent.futures.wait(futures, timeout=60)
    assert all(future.cancelled() or future.result() == go for future in futures)


def test_shutdown_without_waiting_finishes_what_was_submitted(cluster: Cluster) -> None:
    pool = cluster.executor(max_workers=2)
    futures = [pool.submit(abs, -n) for n in range(10)]
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, 1)
    assert [future.result(60) for future in futures] == list(range(10))


def test_a_pool_tells_how_much_runs_at_once(pool: Executor) -> None:
    assert pool._max_workers == 2


PROGRAM = """
import sys
from slurm import Cluster

def late(path):
    import time
    time.sleep(0.5)
    open(path, "a").write("x")

if __name__ == "__main__":
    pool = Cluster("embedded", job_base_dir=sys.argv[1]).executor(max_workers=2)
    for _ in range(4):
        pool.submit(late, sys.argv[2])
"""


def test_calls_of_a_pool_without_with_are_finished_at_the_programs_end(tmp_path: Path) -> None:
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(PROGRAM)
    subprocess.run([sys.executable, script, tmp_path / "jobs", out], check=True, timeout=120)
    assert out.read_text() == "xxxx"


def test_callbacks_may_submit_and_wait_for_others(pool: Executor) -> None:
    over = threading.Event()
    found: list[int] = []

    def then(future: concurrent.futures.Future[int]) -> None:
        pool.submit(abs, -future.result()).add_done_callback(last)

    def last(future: concurrent.futures.Future[int]) -> None:
        found.append(future.result())
        over.set()

    pool.submit(abs, -5).add_done_callback(then)
    assert over.wait(60)
    assert found == [5]


def test_a_child_that_was_forked_begins_with_an_empty_pool(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        assert pool.submit(abs, -1).result(60) == 1
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                code = 0 if pool.submit(abs, -2).result(60) == 2 else 2
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert pool.submit(abs, -3).result(60) == 3


# ---- blocks that do not begin -------------------------------------------------------------------


def test_a_surplus_block_that_waits_in_the_queue_kills_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster("embedded", job_base_dir=tmp_path / "jobs")
    with cluster.executor(max_workers=2, idle="1s", cpus_per_task=5) as pool:
        # The second block does not fit beside the first one.
        first = pool.submit(wait_for, str(tmp_path / "go"))
        second = pool.submit(wait_for, str(tmp_path / "go"))
        until(lambda: len(pool.jobs) == 2)
        until(lambda: any(block.begun for block in pool._blocks))
        mark(str(tmp_path / "go"))
        assert {first.result(60), second.result(60)} == {str(tmp_path / "go")}
        slow = pool.submit(wait_for, str(tmp_path / "later"))
        until(lambda: len(pool.jobs) == 1)
        mark(str(tmp_path / "later"))
        assert slow.result(60)


def test_a_block_that_fails_before_it_begins_fails_no_call_of_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    setup = f"if ! mkdir {once} 2>/dev/null; then sleep 0.5; exit 7; fi"
    with cluster.executor(max_workers=2, setup=[setup]) as pool:
        futures = [pool.submit(wait_for, str(tmp_path / "go")) for _ in range(3)]
        until(lambda: pool._not_before)
        mark(str(tmp_path / "go"))
        assert [bool(future.result(60)) for future in futures] == [True] * 3


def test_calls_that_could_not_be_given_to_a_block_are_given_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.executor(max_workers=1) as pool:
        assert pool.submit(abs, -1).result(60) == 1
        append = cluster.backend.append_calls
        failed: list[bool] = []

        def full_once(*args: Any) -> None:
            if not failed:
                failed.append(True)
                raise OSError("No space left on device")
            append(*args)

        monkeypatch.setattr(cluster.backend, "append_calls", full_once)
        futures = [pool.submit(abs, -n) for n in range(4)]
        assert [future.result(60) for future in futures] == [0, 1, 2, 3]
        assert failed


def test_a_call_that_is_too_large_to_be_sent_fails_alone_and_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over SSH, where a message has a largest size."""
    with cluster.executor(max_workers=1) as pool:
        assert pool.submit(abs, -1).result(60) == 1
        append = cluster.backend.append_calls

        def limited(run: str, data: bytes, files: Any) -> None:
            if len(data) + sum(map(size_of, files.values())) > 100_000:
                raise UsageError("a message is too large to be sent", hint="give a File")
            append(run, data, files)

        monkeypatch.setattr(cluster.backend, "append_calls", limited)
        large = [bytes(60_000), bytes(150_000), bytes(60_001)]
        futures = [pool.submit(len, value) for value in large]
        assert [futures[0].result(20), futures[2].result(20)] == [60_000, 60_001]
        with pytest.raises(UsageError, match="too large"):
            futures[1].result(20)
        assert pool.submit(abs, -2).result(60) == 2


def test_where_no_block_can_begin_the_calls_say_why(cluster: Cluster) -> None:
    with cluster.executor(max_workers=2, setup=["exit 7"]) as pool, pytest.raises(SlurmError):
        pool.submit(abs, 1).result(60)


# ---- what is given in the wrong place -----------------------------------------------------------


def test_what_is_no_function_is_refused_by_its_type(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        for given in (None, 3):
            with pytest.raises(UsageError, match=f"a {type(given).__name__} was given where"):
                pool.submit(given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a NoneType was given where"):
        cluster.submit(None)  # type: ignore[call-overload]


def test_a_cluster_as_an_argument_is_refused_by_name(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool, pytest.raises(SlurmError) as caught:
        pool.submit(repr, cluster)
    assert "belongs to this process" in str(caught.value)
    assert "lock" not in str(caught.value)


def test_a_job_is_ended_by_the_cluster_alone(cluster: Cluster) -> None:
    job = cluster.submit(abs)(-3)
    with pytest.raises(UsageError, match="cannot be given a value"):
        job.set_result(5)
    with pytest.raises(UsageError, match="cannot be given an exception"):
        job.set_exception(ValueError())
    assert job.result(60) == 3


def test_a_run_of_another_base_directory_says_which_cluster_has_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.submit(abs)(-3)
    assert job.result(60) == 3
    other = Cluster("embedded", job_base_dir=tmp_path / "other")
    with pytest.raises(RunNotFound) as caught:
        other.attach(str(job.path))
    above = os.path.dirname(os.path.realpath(job.path))
    assert f"Cluster(job_base_dir={above!r})" in str(caught.value)
    assert Cluster("embedded", job_base_dir=above).attach(job.run).result(60) == 3
