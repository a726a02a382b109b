"""Into a job: a shell, a port, and the debugger after it failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from slurm import Cluster, JobContext, task
from slurm.errors import CommandRefused, UsageError
from slurm.inside import command_inside
from slurm.postmortem import kept_frames

SLURM = [sys.executable, "-m", "slurm.cli"]


def options_of(cluster: Cluster) -> list[str]:
    return ["--cluster", "embedded", "--job-base-dir", cluster.directory]


@task(env={"FLAVOUR": "it's vanilla\nand more"})
def serve(folder: str, ctx: JobContext) -> None:
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * 300_000 + b"\0\n\r the end")

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Path(folder, "port").write_text(str(server.server_port))
    while not Path(folder, "stop").exists() and not ctx.should_stop:
        time.sleep(0.1)


def wait_for(path: Path, seconds: float = 60) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


def test_a_command_and_a_port_reach_into_a_job_that_runs(cluster: Cluster, tmp_path: Path) -> None:
    job = serve(str(tmp_path))  # type: ignore[call-arg]
    port = wait_for(tmp_path / "port")
    words = ["sh", "-c", 'printf %s "$FLAVOUR"; echo "|$SLURM_JOB_ID|$(pwd)"; exit 7']
    done = subprocess.run(
        [*SLURM, "shell", job.id, *options_of(cluster), "--", *words],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout == f"it's vanilla\nand more|{job.id}|{os.getcwd()}\n", done.stderr
    assert done.returncode == 7
    forward = subprocess.Popen(
        [*SLURM, "forward", job.id, port, "--json", *options_of(cluster)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert forward.stdout is not None
        told = json.loads(forward.stdout.readline())
        assert told["port"] == int(port)
        for _ in range(3):
            with urllib.request.urlopen(told["url"], timeout=60) as answer:
                assert answer.read() == b"x" * 300_000 + b"\0\n\r the end"
        (tmp_path / "stop").touch()
        job.result(60)
    finally:
        forward.terminate()
        forward.wait(30)


def test_a_job_that_is_over_cannot_be_entered(cluster: Cluster) -> None:
    job = broken(3, "lab")
    job.wait()
    with pytest.raises(CommandRefused, match="is FAILED: there is nothing to enter"):
        command_inside(job, ["true"])


@task
def broken(n: int, label: str = "x", *, scale: float = 2.0) -> float:
    numbers = list(range(n))
    return divide(numbers, "hunter2") * scale


def divide(values: list[int], password: str) -> float:
    total = sum(values)
    return total / 0


def test_the_debugger_walks_the_frames_of_a_job_with_the_real_arguments(cluster: Cluster) -> None:
    job = broken(4, "lab", scale=3.0)
    job.wait()
    commands = "w\np total\np password\nu\np n, label, scale, numbers\nq\n"
    done = subprocess.run(
        [*SLURM, "debug", job.id, *options_of(cluster)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "ZeroDivisionError: division by zero" in done.stdout
    assert "-> return total / 0" in done.stdout
    assert "(4, 'lab', 3.0, [0, 1, 2, 3])" in done.stdout
    assert "hunter2" not in done.stdout.replace('divide(numbers, "hunter2")', "")
    assert re.search(r"\(Pdb\) 6\n", done.stdout)


@pytest.mark.full
def test_frames_are_kept_for_each_element_of_an_array_and_as_json(cluster: Cluster) -> None:
    from slurm.cli.pick import one_job  # not in the job, which imports this module

    array = broken.map([2, 3])
    array.wait()
    found = [kept_frames(job) for job in array]
    assert [frames[0].locals["n"] for frames in found] == ["2", "3"]
    assert [frame.name for frame in found[0]] == ["broken", "divide"]
    done = subprocess.run(
        [*SLURM, "debug", array[1].id, "--json", *options_of(cluster)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["frames"][1]["locals"]["total"] == "3"
    with pytest.raises(UsageError, match="of which 2 have failed"):
        one_job(array, array.run, "debug", failed=True)
    assert one_job(array[:1], array.run, "debug", failed=True) is array[0]


def test_a_job_that_did_not_fail_is_not_debugged(cluster: Cluster) -> None:
    job = fine()
    job.result()
    done = subprocess.run(
        [*SLURM, "debug", job.id, *options_of(cluster)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "it has not failed" in done.stderr


@task
def fine() -> int:
    return 1
