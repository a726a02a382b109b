"""Into a job behind a login node: a command and a port, and callbacks that hear of it."""

from __future__ import annotations

import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from slurm import BaseCallback, Cluster, task
from slurm.callbacks import flush
from slurm.inside import command_inside, python_there


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


class Hears(BaseCallback):
    def __init__(self, path: str) -> None:
        self.path = path
        self.heard: list[str] = []

    def on_completed(self, ctx: Any) -> None:
        self.heard.append(f"{ctx.name} {ctx.state.value}")

    def on_run_end(self, ctx: Any) -> None:
        Path(self.path).write_text(ctx.status)


@pytest.mark.full
def test_a_command_and_a_port_go_through_the_login_node_into_the_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    import inspect

    from slurm.cli.forward import _accept, _listening, _relay
    from slurm.runner import relay

    job = cluster.submit(serve)(str(tmp_path))
    until = time.monotonic() + 90
    while not (tmp_path / "port").exists() and time.monotonic() < until:
        time.sleep(0.1)
    port = int((tmp_path / "port").read_text())
    words = command_inside(job, ["sh", "-c", 'echo "$FLAVOUR"; exit 7'])
    assert words[0] == "ssh"
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL
    )
    assert (done.stdout, done.returncode) == ("it's vanilla\n", 7), done.stderr
    source = python_there(cluster, job.run, inspect.getsource(relay), [str(port)])
    inside = command_inside(job, source)
    with _listening(port, None) as here, _relay(inside) as (carrier, _):
        threading.Thread(target=_accept, args=(here, carrier), daemon=True).start()
        url = f"http://127.0.0.1:{here.getsockname()[1]}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b"x" * 200_000 + b"\0\n\r the end"
    (tmp_path / "stop").touch()
    job.result(120)


@task
def fine() -> int:
    return 1


@pytest.mark.full
def test_callbacks_hear_of_jobs_behind_ssh_and_travel_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    from slurm.callbacks.lines import Callbacks

    hears = Hears(str(tmp_path / "ran"))
    cluster.callbacks = Callbacks([hears])
    assert cluster.submit(fine)().result(90) == 1
    assert flush(60)
    assert hears.heard == ["fine COMPLETED"]
    assert (tmp_path / "ran").read_text() == "success"
