"""The command line on a real Slurm: a user's session, and what jobs used against known burners."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster
from terminal import Terminal, slurm

TASKS = """
import os, subprocess, sys, time
from slurm import task

MIB = 1 << 20

def fill(mib):
    block = bytearray(mib * MIB)
    for i in range(0, len(block), 4096):
        block[i] = 1
    return block

@task(time="5min", mem="400MiB", cpus_per_task=2)
def memory(mib: int) -> int:
    held = fill(mib)
    time.sleep(1)
    return len(held)

@task(time="5min", mem="400MiB", cpus_per_task=2)
def child(mib: int) -> None:
    code = f"import tasks, time; held = tasks.fill({mib}); time.sleep(1)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)

@task(time="5min", mem="400MiB", cpus_per_task=2)
def cpu(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@task(time="5min", mem="200MiB")
def caches(mib: int, folder: str) -> None:
    path = os.path.join(folder, f"cache-{os.getpid()}")
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(b"x" * MIB)
    os.unlink(path)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tasks.py").write_text(TASKS)
    base = tmp_path / "jobs"
    (folder / "Slurmfile.toml").write_text(f'[default]\njob_base_dir = "{base}"\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def as_json(project: Path, *words: str) -> Any:
    return json.loads(slurm(*words, "--json", cwd=project).text)


def test_eff_tells_memory_and_cpu_of_known_burners_within_ten_per_cent(project: Path) -> None:
    for name, argument in (("memory", "150"), ("child", "150"), ("cpu", "3"), ("caches", "150")):
        more = [str(project)] if name == "caches" else []
        shown = slurm("run", f"tasks.py::{name}", argument, *more, "--detach", cwd=project)
        assert shown.code == 0, shown.text
    waited = slurm("wait", "memory", "child", "cpu", "caches", cwd=project)
    assert waited.code == 0, waited.text
    # An interpreter by itself holds some 15 MiB; a child comes with its parent.
    mib = {name: as_json(project, "eff", name)["memory"]["high"] / (1 << 20)
           for name in ("memory", "child", "caches")}  # fmt: skip
    assert mib["memory"] == pytest.approx(160, rel=0.1)
    assert mib["child"] == pytest.approx(168, rel=0.1)
    assert mib["caches"] < 60, "what the kernel caches of files is no need of the job's"
    burned = as_json(project, "eff", "cpu")
    wall = burned["wall"]["high"]
    assert burned["cpu"]["high"] * wall * 2 == pytest.approx(3, rel=0.1)
    tips = {tip["option"]: tip for tip in as_json(project, "eff", "memory")["suggestions"]}
    assert 150 < int(tips["mem"]["suggested"].rstrip("M")) < 260


def test_a_user_looks_at_the_whole_cluster(project: Path) -> None:
    nodes = as_json(project, "nodes")["nodes"]
    assert [node["name"] for node in nodes] == ["n1", "n2", "n3", "n4"]
    assert as_json(project, "partitions")["partitions"][0]["nodes"] == 4
    assert "jobs" in as_json(project, "queue")
    shown = Terminal("nodes", cwd=project, columns=80).finish()
    assert shown.code == 0 and "n4" in shown.plain
    assert max(map(len, shown.plain.splitlines())) <= 80


def test_the_doctor_proves_with_a_job_what_nodes_see(project: Path) -> None:
    shown = slurm("doctor", cwd=project)
    assert shown.code == 0, shown.text
    installed = subprocess.run(
        ["sbatch", "--version"], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()[-1]
    for words in (f"slurm {installed}", "slurmdbd", "commands of Slurm's today", "ran on n"):
        assert words in shown.text


def test_ls_and_show_follow_a_run_from_the_queue_to_its_end(project: Path) -> None:
    slurm("run", "tasks.py::memory", "10", "--detach", "--set", "hold=true", cwd=project)
    [waiting] = as_json(project, "ls")["runs"]
    assert (waiting["state"], waiting["reason"]) == ("PENDING", "JobHeldUser")
    with Cluster.from_file(project / "Slurmfile.toml") as cluster:
        cluster.attach(waiting["run"]).release()
    assert slurm("wait", "last", cwd=project).code == 0
    [done] = as_json(project, "ls")["runs"]
    assert (done["state"], done["done"], done["job_id"]) == ("COMPLETED", 1, waiting["job_id"])
    assert as_json(project, "show", done["job_id"])["exit_code_of_job"] == 0


@pytest.mark.full
def test_a_job_that_hit_its_time_limit_is_explained(project: Path) -> None:
    words = ("run", "tasks.py::cpu", "600", "--detach", "--time", "1min")
    assert slurm(*words, cwd=project).code == 0
    assert slurm("wait", "last", "--timeout", "170s", cwd=project).code == 1
    shown = slurm("why", "last", cwd=project)
    assert "TIMEOUT (timeout)" in shown.text and "--time 00:02:00" in shown.text
    assert "time: 00:01:" in shown.text


@pytest.mark.full
def test_a_controller_that_is_away_is_exit_code_three(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost\nSlurmctldPort=1\nMessageTimeout=1\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    shown = slurm("queue", cwd=project)
    assert shown.code == 3 and "SLURM-E202" in shown.text
