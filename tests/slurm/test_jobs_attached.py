"""Clients die, answers get lost: the job is found again, and it runs once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, errors, task

SOON = 60

CLIENT = """
import os, sys, time
from slurm import Cluster, task

base, marks, hold = sys.argv[1], sys.argv[2], sys.argv[3] == "hold"

def work(marks):
    import os, time
    with open(marks, "a") as f:
        f.write(os.environ["SLURM_JOB_ID"] + "\\n")
    time.sleep(1)
    return "done"

job = Cluster(job_base_dir=base).submit(task(work), hold=hold)(marks)
print(job.run, job.id, flush=True)
time.sleep(600)
"""


def eventually(condition: Callable[[], Any], timeout: float = SOON) -> Any:
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def start_client(tmp_path: Path, hold: bool, env: dict[str, str] | None = None) -> Any:
    script = tmp_path / "client.py"
    script.write_text(textwrap.dedent(CLIENT))
    words = [str(tmp_path / "base"), str(tmp_path / "marks"), "hold" if hold else "go"]
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )


ATTACH = """
import sys
from slurm import Cluster
print(Cluster(job_base_dir=sys.argv[1]).attach(sys.argv[2]).result(60))
"""


def test_a_killed_client_loses_nothing_and_a_new_process_finds_the_job(tmp_path: Path) -> None:
    client = start_client(tmp_path, hold=False)
    run, job_id = client.stdout.readline().split()
    client.kill()
    client.wait()
    base = str(tmp_path / "base")
    for name in (run, f"{base}/{run}", job_id):
        done = subprocess.run(
            [sys.executable, "-c", ATTACH, base, name], capture_output=True, text=True, timeout=120
        )
        assert done.stdout == "done\n", done.stderr
    assert Cluster(job_base_dir=base).get_job(int(job_id)).result(SOON) == "done"
    assert (tmp_path / "marks").read_text() == f"{job_id}\n"


@pytest.mark.parametrize("hold", [True, False], ids=["still waiting", "already run"])
def test_a_job_whose_answer_got_lost_is_found_and_runs_once(tmp_path: Path, hold: bool) -> None:
    real = shutil.which("sbatch")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.write_text(
        f'#!/bin/bash\n"{real}" "$@" > "{tmp_path}/answer"\n'
        f'echo $$ > "{tmp_path}/pid"\nexec sleep 600\n'
    )
    wrapper.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    client = start_client(tmp_path, hold, {"PATH": path})
    pid = int(eventually(lambda: _text(tmp_path / "pid")))
    client.kill()
    client.wait()
    os.kill(pid, signal.SIGKILL)
    job_id = (tmp_path / "answer").read_text().strip()

    cluster = Cluster(job_base_dir=tmp_path / "base")
    (run,) = [p.name for p in (tmp_path / "base").iterdir() if not p.name.startswith(".")]
    assert not (tmp_path / "base" / run / "submit" / "0.id").exists()
    if not hold:
        eventually(lambda: (tmp_path / "marks").exists())
    job = cluster.attach(run)
    assert job.id == job_id
    if hold:
        job.release()
    assert job.result(SOON) == "done"
    assert cluster.attach(job_id).result(SOON) == "done"
    assert (tmp_path / "marks").read_text() == f"{job_id}\n"


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def test_an_intent_without_a_job_is_told_apart(tmp_path: Path) -> None:
    def quick() -> int:
        return 1

    cluster = Cluster(job_base_dir=tmp_path)
    job = cluster.submit(task(quick))()
    assert job.result(SOON) == 1
    # As it is when the client dies between the intent and sbatch.
    other = tmp_path / (job.run[:-6] + "abcdef")
    shutil.copytree(job.path, other, symlinks=True)
    for name in ("0.id", "0.claim"):
        (other / "submit" / name).unlink()
    with pytest.raises(errors.JobLost, match="no job of it was ever accepted"):
        cluster.attach(other)


def test_a_second_job_for_the_same_run_ends_at_once_and_says_so(tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    def work(marks: str) -> str:
        with open(marks, "a") as f:
            f.write(os.environ["SLURM_JOB_ID"] + "\n")
        return os.environ["SLURM_JOB_ID"]

    job = Cluster(job_base_dir=tmp_path / "base").submit(task(work), setup=["sleep 2"])(str(marks))
    claim = Path(job.path, "submit", "0.claim")
    eventually(claim.is_symlink)
    assert os.readlink(claim) == job.id
    again = subprocess.run(
        ["sbatch", "--parsable", f"{job.path}/script.sh"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SOON,
    ).stdout.strip()
    log = Path(job.path, "logs", f"{again}.err")
    eventually(lambda: f"belongs to job {job.id}" in _text(log))
    assert job.result(SOON) == job.id
    assert marks.read_text() == f"{job.id}\n"


def test_a_run_of_nobody_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(errors.RunNotFound, match="no-such-run"):
        Cluster(job_base_dir=tmp_path).attach("no-such-run")
