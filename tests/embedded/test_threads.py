"""Threads, asyncio tasks, forked children and the end of a program: nothing hangs, nothing is lost.

In all tests a wrong order of locks raises: `slurm.locks`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm import Cluster, Job, UsageError, task
from slurm.callbacks import BaseCallback
from waiting import until

WAIT = 90


@task
def number(x: int) -> int:
    return x


@task
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def in_a_child(test: Callable[[], object]) -> None:
    """Run this in a forked child; false or an exception fails the test."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = 0 if test() else 2
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def program(tmp_path: Path, text: str, *arguments: str) -> str:
    """Run a program to its end; returns what it printed."""
    path = tmp_path / "program.py"
    path.write_text(text)
    argv = [sys.executable, "-X", "dev", str(path), str(tmp_path / "jobs"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- polling -----------------------------------------------------------------------------------

POLLING = """
import faulthandler, sys, threading
from slurm import Cluster, task

faulthandler.dump_traceback_later(120, exit=True)

@task
def number(x):
    return x

def poll(job, ask, found):
    while True:
        try:
            found.append(ask(job))
            return
        except TimeoutError:
            pass

ASKS = [
    lambda job: job.result(timeout=0.002),
    lambda job: job.exception(timeout=0.002) or job.result(),
    lambda job: job.result() if job.wait(timeout=0.002) else poll_again(),
]

def poll_again():
    raise TimeoutError

if __name__ == "__main__":
    with Cluster("embedded", job_base_dir=sys.argv[1]):
        array = number.map(range(60))
    found = []
    threads = [
        threading.Thread(target=poll, args=(job, ASKS[n % 3], found)) for n, job in enumerate(array)
    ]
    for thread in threads:
        thread.start()
    values = []
    poll(array, lambda array: array.results(timeout=0.002, return_exceptions=True), values)
    for thread in threads:
        thread.join()
    print(sorted(found) == list(range(60)), values == [list(range(60))])
"""


def test_polling_with_short_timeouts_never_hangs(tmp_path: Path) -> None:
    assert program(tmp_path, POLLING) == "True True\n"


def test_a_timeout_says_how_the_job_stands(cluster: Cluster) -> None:
    job = nap(3)
    for ask in (job.result, job.exception):
        with pytest.raises(TimeoutError, match=r"nap \(job \d+\) is (PENDING|RUNNING) after 0"):
            ask(timeout=0.01)
    assert not job.wait(timeout=0.01)


def test_one_deadline_counts_for_all_results(cluster: Cluster) -> None:
    array = nap.map([0.1, 30])
    try:
        for order in ("items", "completed"):
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                array.results(timeout=2, return_exceptions=True, order=order)  # type: ignore[arg-type]
            assert time.monotonic() - begun < 12
    finally:
        array.cancel()


def test_results_look_once_more_before_they_give_up(cluster: Cluster) -> None:
    array = number.map(range(3))
    assert array.wait(WAIT)
    again = cluster.attach(array.run)
    assert again.results(timeout=0, return_exceptions=True) == [0, 1, 2]


def test_a_timeout_error_of_the_function_is_an_outcome(cluster: Cluster) -> None:
    @task
    def late() -> None:
        raise TimeoutError("of the function")

    found = late.map([(), ()]).results(WAIT, return_exceptions=True)
    assert [str(error) for error in found] == ["of the function"] * 2


# ---- done-callbacks ----------------------------------------------------------------------------

CALLBACKS = """
import os, sys, threading, time
from slurm import Cluster, task

@task
def number(x):
    return x

def note(word):
    with open(sys.argv[2], "a") as f:
        f.write(word + " ")

def slow(job):
    time.sleep(0.5)
    note("slow")

def leave(job):
    note("leave")
    sys.exit(3)

def interrupt(job):
    raise KeyboardInterrupt

if __name__ == "__main__":
    with Cluster("embedded", job_base_dir=sys.argv[1]):
        array = number.map(range(4))
    for job in array:
        job.add_done_callback(slow)
        job.add_done_callback(leave)
        job.add_done_callback(interrupt)
        job.add_done_callback(lambda job: note("last"))
    array.results()
    pid = os.fork()
    if pid == 0:
        number.local(1)
        array[0].done()
    else:
        os.waitpid(pid, 0)
"""


def test_a_program_that_ends_calls_back_for_all_that_is_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program(tmp_path, CALLBACKS, str(out))
    assert sorted(out.read_text().split()) == ["last"] * 4 + ["leave"] * 4 + ["slow"] * 4


def test_await_works_within_a_done_callback(cluster: Cluster) -> None:
    found: list[int] = []
    over = threading.Event()

    async def later(job: Job[int]) -> int:
        return await job

    def call(job: object) -> None:
        found.append(asyncio.run(later(number(2))))
        over.set()

    with cluster:
        number(1).add_done_callback(call)
    assert over.wait(WAIT)
    assert found == [2]


def test_a_slow_callback_delays_nobody_else(cluster: Cluster) -> None:
    stop, heard = threading.Event(), threading.Event()
    slow, quick = number(1), number(2)
    slow.add_done_callback(lambda _: stop.wait(WAIT))
    assert slow.result(WAIT) == 1

    async def both() -> list[int]:
        return [await number(3), await asyncio.wrap_future(number(4))]

    try:
        quick.add_done_callback(lambda _: heard.set())
        assert heard.wait(WAIT)
        assert asyncio.run(asyncio.wait_for(both(), WAIT)) == [3, 4]
    finally:
        stop.set()


def test_waiters_that_give_up_leave_nothing_behind(cluster: Cluster) -> None:
    job = nap(2)

    async def poll() -> float:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(job, 0.05)

    assert asyncio.run(asyncio.wait_for(poll(), WAIT)) == 2
    assert job._followers == []


# ---- blocks belong to their context ------------------------------------------------------------


def test_a_batch_belongs_to_its_thread(cluster: Cluster) -> None:
    inside, called = threading.Event(), threading.Event()
    mine: list[Job[int]] = []

    def collect() -> None:
        with contextlib.suppress(RuntimeError), cluster, cluster.batch():
            mine.append(number(1))
            inside.set()
            assert called.wait(WAIT)
            raise RuntimeError

    thread = threading.Thread(target=collect)
    thread.start()
    assert inside.wait(WAIT)
    other = number(2)
    assert other.key is not None
    called.set()
    thread.join()
    assert other.result(WAIT) == 2
    assert mine[0].cancelled()


def test_a_batch_belongs_to_its_asyncio_task(cluster: Cluster) -> None:
    async def collects(x: int) -> list[int]:
        with cluster.batch():
            jobs = [number(x), number(x + 1)]
            await asyncio.sleep(0.05)
            assert all(job.key is None for job in jobs)
        return [await job for job in jobs]

    async def all_of_them() -> list[list[int]]:
        return list(await asyncio.gather(*(collects(10 * n) for n in range(4))))

    assert asyncio.run(all_of_them()) == [[10 * n, 10 * n + 1] for n in range(4)]


def test_a_task_that_outlives_the_block_submits_by_itself(cluster: Cluster) -> None:
    async def later(begin: asyncio.Event) -> int:
        await begin.wait()
        return await number(5)

    async def main() -> int:
        begin = asyncio.Event()
        with cluster.batch():
            waiting = asyncio.ensure_future(later(begin))
            await asyncio.sleep(0)
        begin.set()
        return await waiting

    assert asyncio.run(asyncio.wait_for(main(), WAIT)) == 5


def test_threads_and_tasks_may_enter_one_cluster_at_once(tmp_path: Path) -> None:
    cluster = Cluster("embedded", job_base_dir=tmp_path / "jobs")
    both = threading.Barrier(4)

    def enter(x: int) -> int:
        with cluster:
            both.wait(WAIT)
            job = number(x)
        both.wait(WAIT)
        return job.result(WAIT)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(enter, range(4))) == [0, 1, 2, 3]

    async def one(x: int) -> int:
        with cluster:
            await asyncio.sleep(0.02 * x)
            return await number(x)

    async def many() -> list[int]:
        return list(await asyncio.gather(*map(one, range(4))))

    assert asyncio.run(many()) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_the_standard_library_may_wait_inside_of_a_batch(cluster: Cluster, how: str) -> None:
    with cluster.batch():
        jobs = [number(n) for n in range(3)]
        if how == "wait":
            assert not concurrent.futures.wait(jobs, WAIT).not_done  # type: ignore[type-var]
        else:
            assert len(list(concurrent.futures.as_completed(jobs, WAIT))) == 3  # type: ignore[type-var]
    assert [job.result(WAIT) for job in jobs] == [0, 1, 2]


# ---- forked children ---------------------------------------------------------------------------


def test_a_child_sees_how_the_parents_jobs_end(cluster: Cluster) -> None:
    array, single = nap.map([0.5, 0.6]), nap(0.7)

    def child() -> bool:
        heard = threading.Event()
        single.add_done_callback(lambda _: heard.set())
        until("the array is over", array.done, WAIT)
        return (
            array.progress.succeeded == 2
            and not concurrent.futures.wait([single], WAIT).not_done
            and heard.wait(WAIT)
            and single.result(WAIT) == 0.7
        )

    in_a_child(child)
    assert array.results(WAIT) == [0.5, 0.6]


def test_a_child_waits_for_packed_items_and_returned_jobs(cluster: Cluster) -> None:
    packed = nap.map([0.5] * 6, pack=3)
    in_a_child(lambda: packed.results(WAIT) == [0.5] * 6 and packed[2].result(WAIT) == 0.5)


def test_callbacks_belong_to_the_process_that_asked(tmp_path: Path) -> None:
    out = tmp_path / "heard"

    def note(word: str) -> None:
        with open(out, "a") as f:
            f.write(f"{word} ")

    class Heard(BaseCallback):
        def on_completed(self, ctx: object) -> None:
            note("completed")

    with Cluster("embedded", job_base_dir=tmp_path / "jobs", callbacks=[Heard()]):
        job = nap(0.5)
    job.add_done_callback(lambda _: note("parent"))

    def child() -> bool:
        heard = threading.Event()
        job.add_done_callback(lambda _: note("child"))
        job.add_done_callback(lambda _: heard.set())
        return job.result(WAIT) == 0.5 and heard.wait(WAIT)

    in_a_child(child)
    assert job.result(WAIT) == 0.5
    until("all was heard", lambda: len(out.read_text().split()) >= 3)
    assert sorted(out.read_text().split()) == ["child", "completed", "parent"]


def test_what_a_batch_has_collected_is_submitted_once(cluster: Cluster) -> None:
    with cluster.batch():
        job = number(7)

        def child() -> bool:
            with pytest.raises(UsageError, match="batch of the process that forked"):
                job.result(WAIT)
            return number(8).result(WAIT) == 8

        in_a_child(child)
        assert job.key is None
    assert job.result(WAIT) == 7


def test_locks_that_threads_of_the_parent_hold_are_free_in_a_child(cluster: Cluster) -> None:
    job = nap(0.5)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with cluster._watcher._reading, cluster._watcher._lock, job._condition:
            held.set()
            release.wait(WAIT)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(WAIT)
    try:
        in_a_child(lambda: job.result(WAIT) == 0.5)
    finally:
        release.set()
        thread.join()


IMPORTING = """
import os, sys, threading, time
import slurm.locks

if __name__ == "__main__":
    begun = threading.Event()
    folder = sys.argv[1] + "/slurm_more"
    os.makedirs(folder)
    with open(folder + "/slow_module.py", "w") as f:
        f.write("import time, __main__; __main__.begun.set(); time.sleep(1); DONE = 7")
    import slurm
    slurm.__path__.append(folder)

    def load():
        import slurm.slow_module

    thread = threading.Thread(target=load)
    thread.start()
    begun.wait(60)
    pid = os.fork()
    if pid == 0:
        import slurm.slow_module
        os._exit(slurm.slow_module.DONE)
    thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_that_was_forked_in_the_middle_of_an_import_imports_by_itself(
    tmp_path: Path,
) -> None:
    assert program(tmp_path, IMPORTING) == "7\n"
