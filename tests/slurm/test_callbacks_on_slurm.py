"""Callbacks and the ways into a job, on a real Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm import BaseCallback, Cluster, JobContext, task, workflow
from slurm.callbacks import flush

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

SLURM = [sys.executable, "-m", "slurm.cli"]


class Recorder(BaseCallback):
    """Writes a line for each hook into a file, in whichever process it runs."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def note(self, *words: object) -> None:
        with open(self.path, "a") as f:
            f.write(" ".join(map(str, words)) + "\n")

    def on_submit_end(self, ctx: Any) -> None:
        self.note("submitted", ctx.name, ctx.count)

    def on_status_change(self, ctx: Any) -> None:
        self.note("state", ctx.name, ctx.state.value)

    def on_array_progress(self, ctx: Any) -> None:
        self.note("progress", ctx.name, ctx.done, ctx.total)

    def on_completed(self, ctx: Any) -> None:
        self.note("completed", ctx.name, ctx.state.value, ctx.node)

    def on_run_end(self, ctx: Any) -> None:
        self.note("ran", ctx.name, ctx.index, ctx.rank, ctx.status)

    def on_workflow_end(self, ctx: Any) -> None:
        self.note("workflow", ctx.name)

    def on_child_submitted(self, ctx: Any) -> None:
        self.note("child", ctx.name)


@pytest.fixture
def watched(slurm_cluster: RunningCluster, tmp_path: Path) -> Iterator[Cluster]:
    recorder = Recorder(tmp_path / "hooks.txt")
    with Cluster("local", job_base_dir=tmp_path / "jobs", callbacks=[recorder]) as cluster:
        yield cluster


def lines(tmp_path: Path) -> list[str]:
    assert flush(60)
    return (tmp_path / "hooks.txt").read_text().splitlines()


@task
def square(x: int) -> int:
    return x * x


@task(ntasks=2)
def ranked(ctx: JobContext) -> int:
    return ctx.rank


@workflow
def pipeline() -> int:
    return square(3).result() + 1


def test_jobs_arrays_packed_maps_ranks_and_workflows_are_told_of_alike(
    watched: Cluster, tmp_path: Path
) -> None:
    single, array, ranks, flow = square(2), square.map([1, 2]), ranked(), pipeline()
    packed = square.map(range(4), pack=2)
    assert (single.result(), array.results(), ranks.result()) == (4, [1, 4], 0)
    assert packed.results() == [0, 1, 4, 9]
    assert flow.result() == 10
    for job in packed.members:
        job.wait(60)
    told = lines(tmp_path)
    assert told.count("submitted square 1") == 2  # ours, and the workflow's
    assert told.count("submitted square 2") == 1
    assert told.count("submitted square 4") == 1
    assert len([line for line in told if line.startswith("completed square COMPLETED")]) == 6
    assert sorted(line for line in told if line.startswith("ran ranked")) == [
        "ran ranked 0 0 success",
        "ran ranked 0 1 success",
    ]
    assert {"progress square 2 2", "progress square 4 4", "child square"} <= set(told)
    assert "workflow pipeline" in told


@task(env={"FLAVOUR": "it's vanilla"})
def serve(folder: str) -> None:
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * 200_000 + b"\0\n\r the end")

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Path(folder, "port").write_text(str(server.server_port))
    until = time.monotonic() + 120
    while not Path(folder, "stop").exists() and time.monotonic() < until:
        time.sleep(0.1)


def test_a_command_and_a_port_reach_into_a_job_through_a_step_of_it(
    slurm_cluster: RunningCluster, tmp_path: Path
) -> None:
    with Cluster("local", job_base_dir=tmp_path / "jobs") as cluster:
        job = serve.map([str(tmp_path)])[0]  # an element: srun wants another id than ours
    until = time.monotonic() + 60
    while not (tmp_path / "port").exists() and time.monotonic() < until:
        time.sleep(0.1)
    port = (tmp_path / "port").read_text()
    where = ["--job-base-dir", cluster.directory]
    done = subprocess.run(
        [*SLURM, "shell", job.id, *where, "--", "sh", "-c", 'echo "$FLAVOUR"; exit 7'],
        capture_output=True,
        text=True,
        timeout=90,
        stdin=subprocess.DEVNULL,
    )
    assert (done.stdout, done.returncode) == ("it's vanilla\n", 7), done.stderr
    forward = subprocess.Popen(
        [*SLURM, "forward", job.id, port, "--json", *where], stdout=subprocess.PIPE, text=True
    )
    try:
        assert forward.stdout is not None
        told = json.loads(forward.stdout.readline())
        with urllib.request.urlopen(told["url"], timeout=60) as answer:
            assert answer.read() == b"x" * 200_000 + b"\0\n\r the end"
    finally:
        forward.terminate()
        forward.wait(30)
        (tmp_path / "stop").touch()
    job.result(120)
