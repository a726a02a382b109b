"""One channel for everything: threads, asyncio, many clusters, workflows, logs, requests."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from server import Sshd

from slurm import Cluster, JobCancelled, PythonMismatch, errors, task, workflow
from slurm.cli.doctor import checks
from waiting import age, holds


@task
def same(x: int) -> int:
    return x


@task
def talk(lines: int) -> None:
    import time

    for i in range(lines):
        print("line", i, flush=True)
        time.sleep(0.3)


@task
def nap(seconds: float) -> float:
    import time

    time.sleep(seconds)
    return seconds


@task
def token() -> str:
    return os.environ["MY_TOKEN"]


@workflow
def sums(n: int) -> int:
    return sum(same.map(range(n)).results())


def test_threads_share_one_connection(cluster: Cluster) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(cluster.submit(same), range(16)))
    assert [job.result(timeout=100) for job in jobs] == list(range(16))
    assert cluster.backend.connections == 1  # type: ignore[attr-defined]


def test_asyncio_awaits_jobs(cluster: Cluster) -> None:
    async def main() -> list[int]:
        return list(await asyncio.gather(*(same(i) for i in range(4))))

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_ten_clusters_in_one_process(slurm_sshd: Sshd, tmp_path: Path) -> None:
    clusters = [
        Cluster(job_base_dir=str(tmp_path / f"jobs{i}"), **slurm_sshd.arguments())
        for i in range(10)
    ]
    jobs = [cluster.submit(same)(i) for i, cluster in enumerate(clusters)]
    assert [job.result(timeout=120) for job in jobs] == list(range(10))


def test_a_log_is_followed_while_it_grows(cluster: Cluster) -> None:
    job = talk(3)
    times: list[float] = []
    lines: list[str] = []
    for line in job.log_lines(follow=True):
        times.append(time.monotonic())
        lines.append(line)
    assert [line for line in lines if line.startswith("line")] == ["line 0", "line 1", "line 2"]
    assert times[-1] - times[0] > 0.3  # they did not come all at once


def test_a_job_is_cancelled(cluster: Cluster) -> None:
    job = nap(100)
    assert cluster.cancel([job]) == 1
    with pytest.raises(JobCancelled):
        job.result(timeout=60)


def test_a_workflow_runs_on_the_cluster(cluster: Cluster) -> None:
    assert sums(4).result(timeout=120) == 6


def test_an_executor_works_through_the_same_channel(cluster: Cluster) -> None:
    with cluster.executor(max_workers=1) as pool:
        assert list(pool.map(abs, [-1, -2, -3])) == [1, 2, 3]


def test_steps_of_an_allocation(cluster: Cluster) -> None:
    with cluster.allocate(nodes=1, time="5min"):
        assert same(5).result(timeout=100) == 5


def test_the_cluster_is_described(cluster: Cluster) -> None:
    facts = cluster.diagnose()
    assert facts["errors"] == []
    assert facts["scheduler"] == "slurm" and facts["nodes"] == 4
    assert facts["job_base_dir_writable"] is True


def test_secrets_travel_beside_the_files_not_in_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    assert token.with_options(secrets=["MY_TOKEN"])().result(timeout=60) == "s3cr3t-value"
    found = subprocess.run(
        ["grep", "-rl", "--exclude-dir=results", "s3cr3t-value", cluster.base],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.stdout == ""


def test_a_python_of_another_version_is_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "python3.10"
    other.write_text("#!/bin/sh\necho '[\"python3.10\", [3, 10, 1]]'\n")
    other.chmod(0o755)
    with pytest.raises(PythonMismatch, match=r"3\.10"):
        cluster.submit(lambda: 1, python=str(other))()


def test_the_working_directory_may_be_named(cluster: Cluster) -> None:
    job = cluster.submit(os.getcwd, workdir="~")()
    assert job.result(timeout=60) == cluster.backend.hello()["home"]


def test_an_idle_connection_is_nearly_silent_and_small(cluster: Cluster) -> None:
    job = nap(8)
    job.state  # noqa: B018 - somebody looks at it once
    age(time.time(), 3)
    backend: Any = cluster.backend
    link, pid = backend._link, backend.facts()["pid"]
    before, cpu = (link.bytes_in, link.bytes_out), _cpu(pid)
    holds("silence", lambda: link.bytes_in - before[0] < 3000, 3)
    assert link.bytes_out - before[1] < 3000
    assert _cpu(pid) - cpu < 0.3
    assert _resident_mb(pid) < 25
    assert job.result(timeout=60) == 8


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def test_names_with_shell_metacharacters_stay_names(slurm_sshd: Sshd, tmp_path: Path) -> None:
    base = tmp_path / "it's $(touch x); `a` & b"
    with Cluster(job_base_dir=str(base), **slurm_sshd.arguments()) as cluster:
        assert same(3).result(timeout=60) == 3
        for bad in ("1; touch x", "$(touch x)", "../../etc"):
            with pytest.raises(errors.RunNotFound):
                cluster.attach(bad)
    assert not list(tmp_path.rglob("x"))


def test_a_child_after_fork_makes_its_own_connection(cluster: Cluster) -> None:
    assert same(1).result(timeout=60) == 1
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if same(2).result(timeout=60) == 2 else 1)
        finally:
            os._exit(2)
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(os.waitpid(pid, 0)[1]))
    waiting.start()
    waiting.join(100)
    assert ended == [0]
    assert same(3).result(timeout=60) == 3


def test_login_opens_the_connection_that_programs_use(slurm_sshd: Sshd, tmp_path: Path) -> None:
    cluster = Cluster(job_base_dir=str(tmp_path / "jobs"), **slurm_sshd.arguments())
    how: Any = cluster._how
    start = "import sys; from slurm.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", start, *shlex.split(how.login_command)[1:]]

    def login(*more: str) -> str:
        done = subprocess.run(
            [*words, *more], stdout=subprocess.PIPE, text=True, timeout=60, check=True
        )
        return done.stdout

    assert "logged in" in login()
    assert "already logged in" in login()
    # The key is taken away: only the open connection can lead there now.
    authorized = slurm_sshd.folder / "authorized_keys"
    text = authorized.read_text()
    authorized.write_text("")
    try:
        assert cluster.submit(same)(4).result(timeout=60) == 4
        cluster.backend.close()  # type: ignore[attr-defined]
        assert "closed" in login("--close")
        other = Cluster(job_base_dir=str(tmp_path / "b"), **slurm_sshd.arguments())
        with pytest.raises(errors.AuthenticationFailed, match="slurm login"):
            other.queue()
    finally:
        authorized.write_text(text)


@task(retry=2)
def third_time(folder: str) -> int:
    attempts = len(os.listdir(folder))
    Path(folder, str(attempts)).touch()
    if attempts < 2:
        raise RuntimeError("not yet")
    return attempts


def test_a_call_is_retried_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    assert third_time(str(tmp_path / "attempts")).result(timeout=120) == 2


def test_slurm_logs_follows_a_job_behind_ssh(
    cluster: Cluster, slurm_sshd: Sshd, tmp_path: Path
) -> None:
    job = talk(3)
    reach = slurm_sshd.arguments()
    options = reach.pop("ssh_options")
    lines = ["[hpc]", f'job_base_dir = "{cluster.directory}"']
    lines += [f"{key} = {json.dumps(value)}" for key, value in reach.items()]
    lines += ["[hpc.ssh_options]", *(f"{k} = {json.dumps(v)}" for k, v in options.items())]
    (tmp_path / "Slurmfile.toml").write_text("\n".join(lines) + "\n")
    start = "import sys; from slurm.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", start, "logs", job.id, "--follow", "--cluster", "hpc"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("line")] == [
        "line 0",
        "line 1",
        "line 2",
    ]


def test_a_program_runs_there_and_accounting_answers(cluster: Cluster) -> None:
    done = cluster.run(["printf", "%s", "it's $(here)"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "it's $(here)", "")
    assert cluster.run(["false"]).exit_code == 1
    with pytest.raises(errors.CommandRefused, match="no-such-program"):
        cluster.run(["no-such-program"])
    with pytest.raises(errors.UsageError, match="list of words"):
        cluster.run("sinfo -N")
    with cluster:
        job = same(3)
    job.result(60)
    deadline = time.monotonic() + 30
    while not (rows := cluster.accounting([job])) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [row.job_id for row in rows] == [job.id]


def test_the_doctor_looks_over_ssh(cluster: Cluster) -> None:
    found = {check.name: check for check in checks(cluster, False)}
    assert "bad" not in {check.result for check in found.values()}
    assert "on the cluster" in found["python"].text
    assert "Slurm cluster " in found["scheduler"].text
