"""`slurm why` on a real cluster that is made to produce each reason, and each kind of failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, Job, task
from terminal import slurm

CONF = [
    "AccountingStorageEnforce=limits,qos",
    "Licenses=tool:1",
    "PartitionName=main Nodes=n1 Default=YES MaxTime=60",
    "PartitionName=full Nodes=n2 MaxTime=60",
    "PartitionName=spare Nodes=n3 MaxTime=60",
    "PartitionName=closed Nodes=n1 MaxTime=60",
]


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _set_limits() -> None:
    """Limits of a QOS and of an account, a reservation, a node that is away, a closed partition."""
    manage = ("sacctmgr", "-i")
    _do(*manage, "add", "qos", "tight", "GrpTRES=cpu=1", "MaxWall=00:05:00")
    _do(*manage, "add", "qos", "single", "MaxJobsPerUser=1")
    _do(*manage, "add", "account", "lab", "Description=d", "Organization=o", "GrpTRES=cpu=1")
    _do(*manage, "add", "user", "root", "account=lab")
    _do(*manage, "modify", "user", "root", "set", "qos=normal,tight,single")
    _do("scontrol", "create", "reservation", "ReservationName=later", "Users=root",
        "StartTime=now+2hours", "Duration=10", "Nodes=n1")  # fmt: skip
    _do("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=bad disk")
    _do("scontrol", "update", "PartitionName=closed", "State=DOWN")


# Task name -> the options of the job, and the reason that Slurm must give.
WAITING: dict[str, tuple[dict[str, Any], str]] = {
    "grp_cpu": ({"qos": "tight"}, "QOSGrpCpuLimit"),
    "max_wall": ({"qos": "tight", "time": "20min"}, "QOSMaxWallDurationPerJobLimit"),
    "max_jobs": ({"qos": "single"}, "QOSMaxJobsPerUserLimit"),
    "account": ({"account": "lab"}, "AssocGrpCpuLimit"),
    "part_time": ({"time": "3h"}, "PartitionTimeLimit"),
    "part_down": ({"partition": "closed"}, "PartitionDown"),
    "licence": ({"licenses": "tool:1"}, "Licenses"),
    "begin": ({"begin": "now+1hour"}, "BeginTime"),
    "held": ({"hold": True}, "JobHeldUser"),
    "admin": ({"hold": True}, "JobHeldAdmin"),
    "reserved": ({"reservation": "later"}, "Reservation"),
    "away": ({"partition": "spare", "nodelist": "n3"}, "ReqNodeNotAvail"),
    "first": ({"partition": "full", "cpus_per_task": 16}, "Resources"),
    "second": ({"partition": "full", "cpus_per_task": 16}, "Priority"),
}  # fmt: skip

#: What each answer must say: numbers, distance, or the command that helps.
SAYS = {
    "grp_cpu": "1 CPU of 1 CPU in use, this job asks for 1 CPU: 1 CPU has to become free",
    "max_wall": "it is 00:05:00, this job asks for 00:20:00: 00:15:00 too much",
    "max_jobs": "1 job of 1 job in use",
    "account": "GrpTRES=cpu of account lab: 1 CPU of 1 CPU in use",
    "part_time": "it is 01:00:00, this job asks for 03:00:00: 02:00:00 too much",
    "part_down": "Partition closed is DOWN",
    "licence": "licences tool: 1 of 1 in use, this job asks for 1: 1 has to become free",
    "begin": "That is in 00:59",
    "held": "scontrol release",
    "admin": "ask the administrators",
    "reserved": "Reservation later begins in 01:59",
    "away": "node n3 is",
    "first": "It asks for 16 CPUs",
    "second": "Jobs of higher priority are before it",
    "throttled": "At most 1 of its jobs run at the same time; 1 do",
    "depends": "job {up} is PENDING",
    "never": "It will never run",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, own_slurm_cluster: Any) -> Iterator[Path]:
    """A cluster with limits, and in it one job for each reason."""
    folder = tmp_path_factory.mktemp("why")
    made = own_slurm_cluster(nodes=3, cpus=16, memory_mb=2000, extra_conf=CONF)
    with made as cluster, pytest.MonkeyPatch.context() as patch:
        for key, value in cluster.env.items():
            patch.setenv(key, value)
        _set_limits()
        base = folder / "jobs"
        (folder / "Slurmfile.toml").write_text(f'[default]\njob_base_dir = "{base}"\n')
        _submit(base)
        yield folder


@pytest.fixture(autouse=True)
def _on_the_limited_cluster(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", RUNNING["conf"])


RUNNING: dict[str, str] = {}


def _submit(base: Path) -> None:
    RUNNING["conf"] = os.environ["SLURM_CONF"]
    with Cluster(job_base_dir=base, time="4min", mem="50MiB") as cluster:
        # What is in the way of the others.
        blocking: list[dict[str, Any]] = [
            {"qos": "tight"}, {"qos": "single"}, {"account": "lab"}, {"licenses": "tool:1"},
            {"partition": "full", "cpus_per_task": 16},
        ]  # fmt: skip
        for options in blocking:
            blocker = cluster.submit(task(nap), job_name="blocker", **options)(200)
            _await(lambda job=blocker: job.state == "RUNNING", "a blocker to run")
        jobs = {
            name: cluster.submit(task(nap), job_name=name, **options)(1)
            for name, (options, _) in WAITING.items()
        }
        _do("scontrol", "hold", jobs["admin"].id)
        task(nap).with_options(job_name="throttled", array_throttle=1).map([200, 200, 200])
        jobs["depends"] = cluster.submit(task(nap), after=jobs["held"], job_name="depends")(1)
        RUNNING["up"] = jobs["held"].id
        failed: Job[None] = cluster.submit(task(os._exit), job_name="failing")(3)
        # What the SDK itself makes dependent is cancelled by Slurm; by hand it may stay for ever.
        never = cluster.submit(task(nap), job_name="never", hold=True)(1)
        assert not failed.wait(60)
        _do("scontrol", "update", f"JobId={never.id}", f"Dependency=afterok:{failed.id}")
        never.release()
    expected = {name: reason for name, (_, reason) in WAITING.items()}
    expected.update(throttled="JobArrayTaskLimit", depends="Dependency",
                    never="DependencyNeverSatisfied")  # fmt: skip
    _await(lambda: _reasons_fit(expected), "the reasons")


def _reasons_fit(expected: dict[str, str]) -> bool:
    done = subprocess.run(
        ["squeue", "-h", "-t", "PD", "-o", "%j|%r"], capture_output=True, text=True, timeout=30
    )
    found = dict(line.split("|", 1) for line in done.stdout.splitlines())
    return all(found.get(name, "").startswith(reason) for name, reason in expected.items())


def _await(fits: Any, what: str, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not fits():
        queue = subprocess.run(["squeue", "-o", "%j %T %r"], capture_output=True, text=True)
        assert time.monotonic() < until, f"{what} did not come:\n{queue.stdout}"
        time.sleep(0.3)


@pytest.mark.parametrize("name", SAYS)
def test_why_tells_the_reason_the_numbers_and_the_fix(project: Path, name: str) -> None:
    said = slurm("why", name, "--json", cwd=project)
    assert said.code == 0, said.text
    answer = json.loads(said.text)["answer"]
    words = " ".join([answer["text"], *answer["evidence"], *map(str, answer["fixes"])])
    assert SAYS[name].format(**RUNNING) in words
    text = slurm("why", name, cwd=project).text
    assert f"PENDING ({answer['reason']})" in text


def test_the_place_in_line_is_told(project: Path) -> None:
    answer = json.loads(slurm("why", "second", "--json", cwd=project).text)["answer"]
    assert (answer["position"], answer["waits"]) == (2, True)


def test_the_command_that_why_names_mends_it(project: Path) -> None:
    answer = json.loads(slurm("why", "part_time", "--json", cwd=project).text)["answer"]
    command = answer["fixes"][0]["command"]
    assert command.startswith("scontrol update JobId=") and "TimeLimit=01:00:00" in command
    _do(*command.split())
    _await(lambda: slurm("wait", "part_time", "--timeout", "1s", cwd=project).code == 0, "its end")


def test_a_plan_tells_what_the_account_has_left(project: Path) -> None:
    _do("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRESMins=cpu=6000")
    (project / "plan.py").write_text(
        "from slurm import Cluster, task\n"
        "@task(time='1h', cpus_per_task=2, account='lab')\n"
        "def f(x): ...\n"
        "with Cluster.from_env():\n    f.map([1, 2, 3])\n"
    )
    _await(lambda: "hours left" in slurm("plan", "plan.py", cwd=project).text, "the budget")
    answer = json.loads(slurm("plan", "plan.py", "--json", cwd=project).text)
    assert answer["core_hours"] == 6
    assert answer["budgets"][0]["name"] == "account lab" and answer["budgets"][0]["limit"] == 100


# ---- failures -----------------------------------------------------------------------------------


def grow() -> None:
    held = []
    while True:
        held.append(bytearray(16 << 20))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    print("last words", file=sys.stderr, flush=True)
    os._exit(7)


FAILING: dict[str, tuple[Any, str, str]] = {
    "grow": (grow, "oom", "--mem 200M"),
    "crash": (crash, "died", "SIGSEGV"),
    "leave": (leave, "died", "last words"),
}


def test_why_tells_how_jobs_failed_and_the_command_that_helps(project: Path) -> None:
    with Cluster(job_base_dir=project / "jobs", time="2min", mem="100MiB", partition="main"):
        jobs = [task(function)() for function, _, _ in FAILING.values()]
    for job in jobs:
        assert not job.wait(90)
    for name, (_, kind, says) in FAILING.items():
        said = slurm("why", name, "--json", cwd=project)
        answer = json.loads(said.text)["answer"]
        assert said.code == 1 and answer["reason"] == kind, said.text
        text = slurm("why", name, cwd=project).text
        assert says in text, text
    assert "memory: 100M of 100M, all of it was used" in slurm("why", "grow", cwd=project).text
