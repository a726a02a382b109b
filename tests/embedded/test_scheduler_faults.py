"""What may go wrong around the embedded scheduler: it is killed, jobs vanish, others interfere."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_scheduler_bench import Bench, alive, bench

from slurm.api.embedded import EmbeddedScheduler
from slurm.api.embedded.host import boot_id, start_time
from slurm.errors import SchedulerUnreachable, SubmitRefused
from waiting import holds

__all__ = ["bench"]

WAIT_FOR_GO = "echo $$ > shell; until [ -e go ]; do sleep 0.02; done"


def supervisor_of(bench: Bench, job: str) -> int:
    (run,) = (bench.private / "jobs" / job).glob("run.*")
    return int(run.read_text().split()[0])


def test_a_job_outlives_the_client_that_submitted_it(bench: Bench) -> None:
    (bench.work / "s.sh").write_text("#!/bin/bash\nsleep 0.3; echo done > done\n")
    code = (
        "import os, signal; from slurm.api.embedded import EmbeddedScheduler;"
        "EmbeddedScheduler().submit('s.sh', dict(os.environ), os.getcwd());"
        "os.killpg(0, signal.SIGKILL)"
    )
    client = subprocess.run(
        [sys.executable, "-c", code], cwd=bench.work, start_new_session=True, timeout=60
    )
    assert client.returncode == -signal.SIGKILL
    assert bench.await_file("done") == "done\n"


def test_a_killed_scheduler_is_started_again_and_takes_over_its_running_jobs(bench: Bench) -> None:
    job = bench.submit(f"{WAIT_FOR_GO}; exit 4", "--gpus=1")
    waiting = bench.submit("true", f"-d afternotok:{job}")
    shell = int(bench.await_file("shell"))
    bench.kill_daemon()
    assert alive(shell)
    assert [bench.state(job), bench.state(waiting)] == ["RUNNING", "PENDING"]
    assert bench.scheduler.nodes()[0]["allocated_gpus"] == 1
    (bench.work / "go").touch()
    rows = bench.ended(job, waiting)
    assert [(row.state, row.exit_code) for row in rows] == [("FAILED", 4), ("COMPLETED", 0)]


def test_the_exit_code_of_a_job_that_ended_without_a_scheduler_is_kept(bench: Bench) -> None:
    job = bench.submit(f"{WAIT_FOR_GO}; exit 6")
    bench.await_file("shell")
    supervisor = supervisor_of(bench, job)
    bench.kill_daemon()
    (bench.work / "go").touch()
    bench.until(lambda: not alive(supervisor))
    assert [(row.state, row.exit_code) for row in bench.ended(job)] == [("FAILED", 6)]


def test_a_job_taken_over_can_still_be_cancelled(bench: Bench) -> None:
    job = bench.submit(WAIT_FOR_GO)
    shell = int(bench.await_file("shell"))
    bench.kill_daemon()
    bench.scheduler.cancel([job])
    assert bench.ended(job)[0].state == "CANCELLED"
    assert not alive(shell)


def test_a_cancel_that_was_under_way_is_brought_to_its_end(bench: Bench) -> None:
    job = bench.submit(f"trap '' TERM\n{WAIT_FOR_GO}")
    bench.await_file("shell")
    bench.scheduler.cancel([job])
    bench.kill_daemon()
    assert bench.ended(job)[0].state == "CANCELLED"


def test_a_time_limit_holds_after_the_scheduler_was_killed(bench: Bench) -> None:
    job = bench.submit(WAIT_FOR_GO, "--time=0:02")
    bench.await_file("shell")
    bench.kill_daemon()
    assert bench.ended(job)[0].state == "TIMEOUT"


def test_every_job_runs_once_however_often_the_scheduler_is_killed(bench: Bench) -> None:
    over = threading.Event()

    def keep_killing() -> None:
        while not over.wait(0.4):
            with contextlib.suppress(OSError, ValueError):
                os.kill(bench.daemon(), signal.SIGKILL)

    killer = threading.Thread(target=keep_killing)
    killer.start()
    try:
        jobs = [bench.submit('echo "$SLURM_JOB_ID" >> ran', "--requeue") for _ in range(150)]
    finally:
        over.set()
        killer.join()
    rows = bench.ended(*jobs)
    assert {(row.state, row.restarts) for row in rows} == {("COMPLETED", 0)}
    assert sorted((bench.work / "ran").read_text().split()) == sorted(jobs)


@pytest.mark.parametrize("with_scheduler", [True, False])
def test_a_job_that_vanished_is_a_node_failure(bench: Bench, with_scheduler: bool) -> None:
    job = bench.submit(WAIT_FOR_GO, "--no-requeue")
    shell = int(bench.await_file("shell"))
    supervisor = supervisor_of(bench, job)
    if not with_scheduler:
        bench.kill_daemon()
    os.kill(supervisor, signal.SIGKILL)
    assert bench.ended(job)[0].state == "NODE_FAIL"
    bench.until(lambda: not alive(shell), "what it left behind is gone")


def test_a_job_that_vanished_and_may_be_requeued_starts_again(bench: Bench) -> None:
    job = bench.submit(f'[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n{WAIT_FOR_GO}', "--requeue")
    bench.await_file("shell")
    os.kill(supervisor_of(bench, job), signal.SIGKILL)
    row = bench.ended(job)[0]
    assert (row.state, row.restarts) == ("COMPLETED", 1)


def test_a_process_of_another_boot_is_not_taken_for_the_job(bench: Bench) -> None:
    job = bench.submit(WAIT_FOR_GO, "--no-requeue")
    shell = int(bench.await_file("shell"))
    (run,) = (bench.private / "jobs" / job).glob("run.*")
    bench.kill_daemon()
    words = run.read_text().split(" ")
    words[2] = "an-earlier-boot"
    run.write_text(" ".join(words))
    assert bench.ended(job)[0].state == "NODE_FAIL"
    with contextlib.suppress(ProcessLookupError):
        os.kill(shell, signal.SIGKILL)


def test_an_attempt_that_a_killed_scheduler_just_started_is_not_started_twice(
    bench: Bench,
) -> None:
    job = bench.submit("echo x > ran", "--hold --no-requeue")
    with subprocess.Popen(["sleep", "600"]) as first:
        run = bench.private / "jobs" / job / f"run.{job}.0"
        run.write_text(f"{first.pid} {start_time(first.pid)} {boot_id()} {time.time():.3f} \n")
        bench.scheduler.release([job])
        bench.until(lambda: bench.state(job) == "RUNNING")
        holds("running", lambda: bench.state(job) == "RUNNING" and not bench.has("ran"), 0.3)
        first.kill()
    assert bench.ended(job)[0].state == "NODE_FAIL"
    assert not bench.has("ran")


def test_finished_jobs_are_known_after_a_restart(bench: Bench) -> None:
    job = bench.submit("exit 2", "--array=1-2")
    before = bench.ended(job)
    bench.kill_daemon()
    assert bench.scheduler.status([job]) == before
    assert bench.row(f"{job}_2").exit_code == 2
    after = bench.submit("true")
    assert int(after) > int(job) + 2


def test_what_is_no_queue_at_all_is_set_aside(bench: Bench) -> None:
    bench.ended(bench.submit("true"))
    bench.stop()
    for name in ("queue.db-wal", "queue.db-shm"):
        (bench.private / name).unlink(missing_ok=True)
    (bench.private / "queue.db").write_bytes(b"no database at all" * 1000)
    assert bench.ended(bench.submit("true"))[0].state == "COMPLETED"
    assert list(bench.private.glob("queue.db.*.damaged"))


def fill(bench: Bench, count: int) -> list[str]:
    """Held jobs, enough of them for a queue of many pages."""
    return [bench.submit("true", "--hold", f"--job-name={'x' * 200}") for _ in range(count)]


@pytest.mark.parametrize("where", ["second page", "middle", "last page", "every third page"])
def test_a_queue_damaged_behind_its_first_page_is_set_aside_and_what_can_be_read_is_kept(
    bench: Bench, where: str
) -> None:
    jobs = fill(bench, 60)
    bench.stop()
    queue = bench.private / "queue.db"
    data = bytearray(queue.read_bytes())
    pages = len(data) // 4096
    assert pages > 10
    chosen = {"second page": [1], "middle": [pages // 2], "last page": [pages - 1],
              "every third page": list(range(1, pages, 3))}[where]  # fmt: skip
    for page in chosen:
        data[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    queue.write_bytes(data)
    left = {row.job_id for row in bench.scheduler.queue()}
    assert left <= set(jobs)
    assert left or where != "last page"
    new = bench.submit("true")
    assert new not in jobs
    assert bench.ended(new)[0].state == "COMPLETED"
    assert len(list(bench.private.glob("queue.db.*.damaged"))) == 1
    assert "could be read" in (bench.private / "log").read_text()


def test_a_job_of_which_the_queue_lost_its_options_ends_and_the_others_go_on(bench: Bench) -> None:
    import sqlite3

    lost, kept = bench.submit("true", "--hold"), bench.submit("true", "--hold")
    bench.stop()
    with sqlite3.connect(bench.private / "queue.db") as db:
        db.execute("UPDATE batches SET options = ? WHERE id = ?", ("{\x00", int(lost)))
    db.close()
    assert [row.job_id for row in bench.scheduler.queue()] == [kept]


def test_a_silent_client_keeps_no_idle_scheduler_busy_nor_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.setenv("SLURM_SDK_EMBEDDED_IDLE_S", "2")
    quick = EmbeddedScheduler()
    quick.queue()
    pid = bench.daemon()

    def cpu() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        for connection in (silent, half):
            connection.connect(str(bench.private / "socket"))
        half.sendall(b'{"v": 1, ')
        before = cpu()
        holds("it does not spin", lambda: cpu() - before < 0.3, 1.5)
        bench.until(lambda: not alive(pid), "left although somebody is connected")
    assert quick.queue() == []


def test_an_idle_scheduler_leaves_and_comes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_IDLE_S", "0.3")
    quick = EmbeddedScheduler()
    held = bench.submit("true", "--hold")
    bench.stop()
    assert [row.job_id for row in quick.queue()] == [held]
    pid = bench.daemon()
    bench.until(lambda: not alive(pid), "left when idle")
    assert not (bench.private / "socket").exists()
    quick.release([held])
    bench.until(lambda: quick.status([held])[0].state == "COMPLETED")


def test_a_scheduler_with_a_running_job_or_a_begin_time_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_IDLE_S", "0.2")
    bench.scheduler = EmbeddedScheduler()
    job = bench.submit("sleep 0.6")
    later = bench.submit("echo x > later", "--begin=now+2")
    pid = bench.daemon()
    bench.await_file("later")
    assert bench.daemon() == pid
    bench.ended(job, later)


def test_requests_that_meet_a_leaving_scheduler_are_all_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_IDLE_S", "0.001")
    bench.scheduler = EmbeddedScheduler()
    jobs = []
    for n in range(30):
        jobs.append(bench.submit("true", "--hold"))
        time.sleep(0.001 * (n % 4))
    assert len(set(jobs)) == 30
    assert len(bench.scheduler.queue()) == 30


def test_many_clients_at_once_start_one_scheduler(bench: Bench) -> None:
    jobs: list[str] = []
    threads = [
        threading.Thread(target=lambda: jobs.append(bench.submit("true"))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(jobs)) == 16
    assert {row.state for row in bench.ended(*jobs)} == {"COMPLETED"}


def test_a_submission_that_is_sent_twice_is_taken_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm.api.embedded import client

    real = client._exchange
    lost = []

    def lose_the_first_answer(*arguments: object) -> bytes:
        answer = real(*arguments)  # type: ignore[arg-type]
        lost.append(answer)
        return b"" if len(lost) == 1 else answer

    bench.scheduler.queue()
    monkeypatch.setattr(client, "_exchange", lose_the_first_answer)
    job = bench.submit("true", "--hold")
    assert len(lost) == 2
    assert [row.job_id for row in bench.scheduler.queue()] == [job]


def test_what_is_no_request_does_no_harm(bench: Bench) -> None:
    import socket

    bench.scheduler.queue()
    for garbage in (b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"v": 1, "verb": "submit"}\n', b"x"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(bench.private / "socket"))
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            connection.recv(65536)
    assert bench.scheduler.queue() == []


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    bench.private.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(bench.private)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this user cannot mount a small disk")
    yield bench.private
    bench.scheduler.cancel([row.job_id for row in bench.scheduler.queue()])
    bench.until(lambda: not bench.scheduler.queue())
    bench.stop()
    subprocess.run(["umount", str(bench.private)], check=True)


def test_on_a_full_disk_a_job_is_refused_and_the_others_go_on(
    bench: Bench, small_disk: Path
) -> None:
    running = bench.submit("until [ -e go ]; do sleep 0.02; done; exit 3")
    filler = small_disk / "filler"
    with pytest.raises(SubmitRefused, match="cannot be stored") as caught:
        for size in range(1000):
            bench.submit("true", "--hold")
            with contextlib.suppress(OSError):
                filler.write_bytes(b"x" * (size * 2**15))
    assert f"make room in {small_disk}" in str(caught.value)
    (bench.work / "go").touch()
    assert [(row.state, row.exit_code) for row in bench.ended(running)] == [("FAILED", 3)]
    filler.unlink()
    assert bench.ended(bench.submit("true"))[0].state == "COMPLETED"
    bench.kill_daemon()
    assert bench.row(running).state == "FAILED"


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="slurm-emb-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(directory))
    with pytest.raises(SchedulerUnreachable) as caught:
        EmbeddedScheduler().queue()
    return str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_a_directory_of_another_user_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(directory, 12345, 12345)
    text = refused(directory, monkeypatch)
    assert "belongs to user 12345" in text and "SLURM_SDK_EMBEDDED_DIR" in text


def test_a_directory_open_to_others_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.chmod(0o755)
    assert f"chmod 700 {directory}" in refused(directory, monkeypatch)


def test_a_link_is_not_taken_for_a_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = directory / "link"
    link.symlink_to(directory)
    assert "is not a directory" in refused(link, monkeypatch)


def test_a_scheduler_that_cannot_start_says_why(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "queue.db").mkdir()
    assert "unable to open database file" in refused(directory, monkeypatch)


def test_a_long_directory_gets_a_short_socket(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = directory / ("long" * 30)
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(long))
    scheduler = EmbeddedScheduler()
    assert scheduler.queue() == []
    scheduler.stop()
