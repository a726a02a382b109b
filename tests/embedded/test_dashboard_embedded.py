"""The dashboard where there is no Slurm: the embedded scheduler's jobs, and runs of this SDK."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from pathlib import Path

from slurm import Cluster, task


@task
def talk(path: str) -> int:
    import os

    print("first words <b>", flush=True)
    while not os.path.exists(path):
        time.sleep(0.05)
    return 7


def test_a_laptop_without_slurm_has_a_dashboard(tmp_path: Path) -> None:
    base = tmp_path / "jobs"
    with Cluster(backend_type="embedded", job_base_dir=str(base)):
        job = talk(str(tmp_path / "end"))
    words = ["dashboard", "--cluster", "embedded", "--job-base-dir", str(base), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm.cli", *words, "--interval", "1"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://([^/\s]+)(\S+)", line)
        assert found, line + process.stderr.read()
        cookie = _ask(found[1], found[2], "")[0].partition(";")[0]
        _until(found[1], "/", cookie, f"job-{job.id}")
        shown = _until(found[1], f"/jobs/{job.id}", cookie, "Timeline")
        assert "Running" in shown
        assert talk.name in _until(found[1], "/runs", cookie, job.run)
        (tmp_path / "end").touch()
        assert job.result(timeout=60) == 7
        _until(found[1], f"/jobs/{job.id}", cookie, "Completed")
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def _ask(place: str, path: str, cookie: str) -> tuple[str, str]:
    connection = http.client.HTTPConnection(place, timeout=60)
    connection.request("GET", path, headers={"Accept": "text/html", "Cookie": cookie})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.headers.get("set-cookie", ""), text


def _until(place: str, path: str, cookie: str, words: str) -> str:
    end = time.monotonic() + 90
    while words not in (text := _ask(place, path, cookie)[1]):
        assert time.monotonic() < end, f"{words!r} is not in {path}: {text[-3000:]}"
        time.sleep(0.3)
    return text
