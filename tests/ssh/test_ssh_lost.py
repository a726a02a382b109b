"""The connection is lost at any moment: nothing is submitted twice, no result is lost."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from proxy import DOWN, UP, Proxy
from server import Sshd

from slurm import Cluster, errors, task
from waiting import age, holds

#: How many children are forked, and how long one of them may take.
ROUNDS, CHILD_S = 8, 150
DISTURBANCES = 12


@task
def slow(x: int, seconds: float = 1.0) -> int:
    import time

    time.sleep(seconds)
    return x


@task
def same(x: int) -> int:
    return x


@pytest.fixture
def proxy(slurm_sshd: Sshd) -> Iterator[Proxy]:
    proxy = Proxy(slurm_sshd.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(
    proxy: Proxy, slurm_sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """The cluster behind the proxy; its host key is that of the sshd behind it."""
    public = Path(f"{slurm_sshd.host_key}.pub").read_text().split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{proxy.port} {' '.join(public)}\n")
    conf = os.environ["SLURM_CONF"]
    monkeypatch.setenv("TEST_SLURM_CONF", conf)
    monkeypatch.delenv("SLURM_CONF")
    reach = slurm_sshd.arguments(port=proxy.port, ssh_options={"UserKnownHostsFile": str(known)})
    with Cluster(job_base_dir=str(tmp_path / "jobs"), **reach) as cluster:
        yield cluster


def jobs_of(cluster: Cluster, job: Any) -> list[str]:
    """The ids of all jobs that Slurm ever had for a run, asked without our code."""
    env = {**os.environ, "SLURM_CONF": os.environ["TEST_SLURM_CONF"]}
    words = ["squeue", "--me", "-h", "-t", "all", "-O", "JobID:20,WorkDir:300"]
    text = subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return [row[0] for row in rows if row[1] == f"{cluster.base}/{job.run}"]


def agent_pid(cluster: Cluster) -> int:
    backend: Any = cluster.backend
    return int(backend.facts()["pid"])


@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(direction=st.sampled_from([UP, UP, DOWN]), place=st.floats(0, 1))
def test_a_submission_cut_at_any_byte_is_one_job(
    far: Cluster, proxy: Proxy, direction: str, place: float
) -> None:
    before = dict(proxy.passed)
    same(0)  # shows how much a submission sends
    size = {way: proxy.passed[way] - before[way] for way in (UP, DOWN)}
    proxy.cut_after(direction, int(place * size[direction]))
    job = same(7)
    assert job.result(timeout=100) == 7
    assert jobs_of(far, job) == [job.id]


def test_the_answer_of_a_submission_gets_lost_and_its_job_is_found(
    far: Cluster, proxy: Proxy
) -> None:
    same(0).result(timeout=60)
    proxy.cut_after(DOWN, 0)
    job = same(1)
    assert job.result(timeout=100) == 1
    assert jobs_of(far, job) == [job.id]


@pytest.mark.parametrize("reset", [False, True])
def test_a_result_comes_although_the_connection_broke_while_it_was_awaited(
    far: Cluster, proxy: Proxy, reset: bool
) -> None:
    job = slow(3)
    threading.Timer(0.3, proxy.cut, [reset]).start()
    assert job.result(timeout=100) == 3
    assert far.backend.connections == 2  # type: ignore[attr-defined]


def test_a_connection_that_stalls_is_given_up_and_made_anew(
    far: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm.api import link

    monkeypatch.setattr(link, "QUIET", 0.5)
    monkeypatch.setattr(link, "SIGN_OF_LIFE", 1.0)
    assert same(1).result(timeout=60) == 1
    proxy.stall()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(len(far.queue())))
    asking.start()
    holds("no answer", lambda: not found, 3)
    proxy.flow()
    asking.join(100)
    assert len(found) == 1
    assert same(2).result(timeout=60) == 2


def test_an_executor_without_open_calls_ends_although_the_connection_stalls(
    far: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm import executor

    monkeypatch.setattr(executor, "AT_EXIT", 1.0)
    pool = far.executor(max_workers=1, time="5min")
    assert pool.submit(pow, 2, 3).result(timeout=100) == 8
    proxy.stall()
    begun = time.monotonic()
    try:
        pool.shutdown()
        assert time.monotonic() - begun < 30
    finally:
        proxy.flow()
    for job in pool.jobs:
        job.wait(100)


def test_a_call_of_an_executor_that_no_message_can_hold_fails_alone_and_at_once(
    far: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm.api import frames

    with far.executor(max_workers=1, time="5min") as pool:
        assert pool.submit(pow, 2, 3).result(timeout=100) == 8
        monkeypatch.setattr(frames, "BODY_LIMIT", 1 << 20)
        futures = [pool.submit(len, os.urandom(size)) for size in (5, 2 << 20, 7)]
        assert [futures[0].result(30), futures[2].result(30)] == [5, 7]
        with pytest.raises(errors.UsageError, match="too large"):
            futures[1].result(30)


def test_a_timeout_holds_although_the_connection_stalls(far: Cluster, proxy: Proxy) -> None:
    job = far.submit(same, hold=True)(1)
    array = far.submit(same, hold=True).map([1, 2])
    proxy.stall()
    began = time.monotonic()
    for wait in (job.result, job.exception, array.results):
        with pytest.raises(TimeoutError):
            wait(timeout=1)
    assert job.wait(timeout=1) is False
    assert time.monotonic() - began < 30
    proxy.flow()
    far.cancel([job, *array])


def test_a_connection_that_died_without_a_word_is_made_anew_at_once(
    far: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm.api import link

    monkeypatch.setattr(link, "QUIET", 0.5)
    monkeypatch.setattr(link, "SIGN_OF_LIFE", 1.0)
    assert same(1).result(timeout=60) == 1
    proxy.abandon()  # what a laptop finds after an hour of sleep
    began = time.monotonic()
    assert same(2).result(timeout=60) == 2
    # ssh itself would have needed 45 s to notice.
    assert time.monotonic() - began < 30


def test_the_agent_is_killed_and_the_next_call_works(far: Cluster) -> None:
    job = slow(5)
    os.kill(agent_pid(far), signal.SIGKILL)
    assert same(6).result(timeout=100) == 6
    assert job.result(timeout=100) == 5


def test_the_agent_ends_with_its_connection(far: Cluster) -> None:
    pid = agent_pid(far)
    far.backend.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_network_that_stays_away_is_a_typed_error_that_says_jobs_go_on(
    far: Cluster, proxy: Proxy
) -> None:
    slow(1, 0.1)
    far.backend.patience = 2.0  # type: ignore[attr-defined]
    proxy.close()
    with pytest.raises(errors.ConnectError) as caught:
        far.queue()
    assert "jobs" in str(caught.value)


def test_sshd_restarts_and_nothing_is_noticed(
    make_sshd: Any, slurm_cluster: Any, tmp_path: Path
) -> None:
    server = make_sshd(env={"SLURM_CONF": os.environ["SLURM_CONF"]})
    with Cluster(job_base_dir=str(tmp_path / "jobs"), **server.arguments()) as cluster:
        job = slow(4)
        server.stop()
        # The sessions of an sshd outlive it; a reboot would not leave them.
        os.kill(agent_pid(cluster), signal.SIGKILL)
        cluster.backend.close()  # type: ignore[attr-defined]
        threading.Timer(1.0, server.start).start()
        assert job.result(timeout=100) == 4
        assert same(2).result(timeout=100) == 2


SLEEPER = """
import json, os, sys
from slurm import Cluster, task
import time

@task
def double(x: int) -> int:
    return 2 * x

with Cluster(**json.loads(sys.argv[1])) as cluster:
    print(double(1).result(), flush=True)
    sys.stdin.readline()
    print(double(2).result(), flush=True)
"""


def test_a_client_that_slept_goes_on(far: Cluster, proxy: Proxy, tmp_path: Path) -> None:
    import json

    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER)
    how: Any = far._how
    arguments = {
        "job_base_dir": str(tmp_path / "other"),
        "hostname": how.hostname,
        "username": how.username,
        "port": how.port,
        "identity_file": how.identity_file,
        "ssh_options": list(how.options),
    }
    client = subprocess.Popen(
        [sys.executable, str(script), json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin and client.stdout
    try:
        assert client.stdout.readline() == "2\n"
        client.send_signal(signal.SIGSTOP)
        proxy.cut()  # what happens to a laptop's connections meanwhile
        age(time.time(), 1)
        client.send_signal(signal.SIGCONT)
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "4\n"
    finally:
        client.kill()
        client.communicate()


KILLED = """
import json, os, sys
from slurm import Cluster, task

@task
def late(x: int) -> int:
    import time
    time.sleep(1.5)
    return 2 * x

with Cluster(**json.loads(sys.argv[1])) as cluster:
    print(late(21).run, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_client_is_killed_and_another_attaches(far: Cluster, tmp_path: Path) -> None:
    import json

    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    how: Any = far._how
    arguments = {
        "job_base_dir": far.directory,
        "hostname": how.hostname,
        "username": how.username,
        "port": how.port,
        "identity_file": how.identity_file,
        "ssh_options": list(how.options),
    }
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    assert done.returncode == -signal.SIGKILL
    assert far.attach(done.stdout.strip()).result(timeout=60) == 42


def test_two_clients_watch_the_same_run(far: Cluster, slurm_sshd: Sshd, tmp_path: Path) -> None:
    job = slow(9)
    other = Cluster(job_base_dir=far.directory, **slurm_sshd.arguments())
    twin = other.attach(job.run)
    assert other.backend is not far.backend
    assert (job.result(timeout=60), twin.result(timeout=60)) == (9, 9)


def _in_a_child(job: Any, number: int) -> int:
    """A forked child that asks about the parent's job and submits one of its own."""
    child = os.fork()
    if child:
        return child
    faulthandler.dump_traceback_later(CHILD_S, exit=True)  # who hangs shows where
    code = 1
    with contextlib.suppress(BaseException):
        code = 0 if job.result(timeout=CHILD_S) is not None and same(number).result() else 2
    os._exit(code)


@pytest.mark.timeout(400)
def test_cuts_killed_sshs_and_forks_at_any_moment_hang_neither_parent_nor_child(
    far: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm.api import link

    monkeypatch.setattr(link, "QUIET", 1.0)
    monkeypatch.setattr(link, "SIGN_OF_LIFE", 3.0)
    backend: Any = far.backend
    chance, over = random.Random(16), threading.Event()

    def disturb() -> None:
        """As soon as a connection stands it is cut, or its ssh killed, so many times."""
        for _ in range(DISTURBANCES):
            while ((found := backend._link) is None or found.lost) and not over.wait(0.01):
                pass
            if over.wait(chance.uniform(0, 1)):
                return
            if chance.random() < 0.5:
                with contextlib.suppress(OSError):
                    os.kill(found._process.pid, signal.SIGKILL)
            else:
                proxy.cut(reset=chance.random() < 0.5)

    first = same(7)
    assert first.result(timeout=100) == 7
    disturbing = threading.Thread(target=disturb, daemon=True)
    disturbing.start()
    children: list[int] = []
    jobs = []
    try:
        for number in range(1, ROUNDS + 1):
            jobs.append(slow(number, 0.2))
            children.append(_in_a_child(jobs[-1], number))
            until = time.monotonic() + chance.uniform(0, 0.3)
            while time.monotonic() < until:
                jobs[chance.randrange(len(jobs))].done()
    finally:
        over.set()
        disturbing.join()
    # While the last children live: nothing of the parent's waits for them.
    assert [job.result(timeout=100) for job in jobs] == list(range(1, ROUNDS + 1))
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * ROUNDS
