"""What is asked for while the interpreter ends: an answer or a typed error, and soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: A program that hangs is shown with the stacks of its threads.
BEGIN = """
import atexit, faulthandler, gc, sys, threading, time
faulthandler.dump_traceback_later(90, exit=True)
ended = []
# What is garbage is deleted when the interpreter looks for it a last time: all other threads are
# gone then, and modules still have their names.
gc.disable()
atexit.register(gc.enable)
# Registered first, called last.
atexit.register(lambda: ended and print(time.monotonic() - ended[0], flush=True))
from slurm import Cluster, SlurmError, task
from slurm.callbacks import BaseCallback

@task
def nap(seconds):
    import time
    time.sleep(seconds)
    return seconds

def say(where, ask, print=print, SlurmError=SlurmError):
    try:
        print(where, ask(), flush=True)
    except SlurmError as error:
        print(where, error.code, error, flush=True)

class AtTheEnd:
    def __init__(self, ask, say=say):
        self.ask, self.say, self.me = ask, say, self
    def __del__(self):
        self.say("deleted", self.ask)
"""


def ends(tmp_path: Path, text: str) -> str:
    """Run a program to its end; returns what it printed."""
    path = tmp_path / "program.py"
    path.write_text(BEGIN + text)
    argv = [sys.executable, str(path), str(tmp_path / "jobs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_what_is_asked_when_all_threads_are_gone_is_a_typed_error(tmp_path: Path) -> None:
    said = ends(
        tmp_path,
        """
import concurrent.futures, functools
with Cluster("embedded", job_base_dir=sys.argv[1]) as cluster:
    job, array, packed = nap(40), nap.map([40, 41]), nap.map([40, 41], pack=2)
    pool = cluster.executor(max_workers=1)
    for asked in (
        job.result, functools.partial(job.result, 50), job.exception, job.wait, job.done,
        job.cancel, job.stdout, array.results, packed.results,
        lambda wait=concurrent.futures.wait, job=job: wait([job]),
    ):
        AtTheEnd(asked)
    # The end of a program finishes the calls of its pools.
    AtTheEnd(pool.submit(nap, 0.1).result)
    atexit.register(cluster.cancel, [job, *array])
    atexit.register(packed.cancel)
""",
    )
    assert said.count("deleted SLURM-E104") == 10, said
    assert said.count("when the interpreter was ending already") == 10
    assert "deleted 0.1" in said


def test_a_result_that_was_read_before_is_there_to_the_end(tmp_path: Path) -> None:
    said = ends(
        tmp_path,
        """
with Cluster("embedded", job_base_dir=sys.argv[1]):
    job = nap(0.1)
    assert job.result() == 0.1
    AtTheEnd(job.result)
""",
    )
    assert said == "deleted 0.1\n"


def test_exit_handlers_get_results_and_daemon_threads_end_with_the_program(tmp_path: Path) -> None:
    said = ends(
        tmp_path,
        """
with Cluster("embedded", job_base_dir=sys.argv[1]) as cluster:
    job, long = nap(1.5), nap(40)
    threading.Thread(target=long.result, daemon=True).start()
    threading.Thread(target=say, args=("thread", job.result)).start()
    atexit.register(cluster.cancel, [long])
    atexit.register(say, "exit handler", job.result)
""",
    )
    assert said == "thread 1.5\nexit handler 1.5\n"


def test_all_callbacks_together_delay_the_end_of_a_program_by_ten_seconds(tmp_path: Path) -> None:
    said = ends(
        tmp_path,
        """
class Sleepy(BaseCallback):
    def on_completed(self, ctx):
        time.sleep(300)

with Cluster("embedded", job_base_dir=sys.argv[1], callbacks=[Sleepy(), Sleepy()]) as cluster:
    job = nap(0.1)
    job.add_done_callback(lambda job: time.sleep(300))
    job.add_done_callback(lambda job: time.sleep(300))
    job.result()
ended.append(time.monotonic())
""",
    )
    assert 8 < float(said.split()[0]) < 14, said


def test_a_call_submitted_at_the_very_end_is_a_typed_error(tmp_path: Path) -> None:
    said = ends(
        tmp_path,
        """
cluster = Cluster("embedded", job_base_dir=sys.argv[1])
late = AtTheEnd(lambda submit=cluster.submit, nap=nap: submit(nap)(0.1))
""",
    )
    assert "deleted SLURM-E104" in said, said


def test_an_executor_first_used_by_an_exit_handler_is_a_typed_error(tmp_path: Path) -> None:
    said = ends(
        tmp_path,
        """
pool = Cluster("embedded", job_base_dir=sys.argv[1]).executor(max_workers=1)
atexit.register(say, "exit handler", lambda: pool.submit(pow, 2, 3).result(50))
""",
    )
    assert "exit handler SLURM-E104" in said, said
