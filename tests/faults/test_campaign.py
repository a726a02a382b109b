"""Daemons and clients killed at random under a stream of jobs: none is lost, none runs twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from breaking import BreakableSlurm

from slurm import Cluster, errors

JOBS = int(os.environ.get("CAMPAIGN_JOBS", "100"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
#: How long a campaign may go on submitting, and how long its last job may take to be judged.
LONGEST, JUDGED = 900, 300

CLIENT = """
import os, sys, time
from slurm import Cluster, errors, task

base, attempts, marks, last = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

def work(number, marks):
    import os, time
    fd = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{number} {os.environ['SLURM_JOB_ID']}\\n".encode())
    os.close(fd)
    time.sleep(0.5 + number % 5)
    if number % 10 == 3:
        raise ValueError(number)
    if number % 10 == 7:
        os._exit(3)
    return number

cluster = Cluster(job_base_dir=base)
while True:
    with open(attempts, "a+") as f:
        f.seek(0)
        number = len(f.read().splitlines())
        if number >= last:
            break
        f.write(f"{number}\\n")
    try:
        job = cluster.submit(task(work), job_name=f"work{number}")(number, marks)
    except errors.SchedulerUnreachable:
        time.sleep(1)
    time.sleep(0.7)
"""


@pytest.mark.campaign
@pytest.mark.timeout(2 * (LONGEST + JUDGED))
def test_every_job_of_a_stream_under_random_kills_ends_once_and_is_told(
    slurm: BreakableSlurm, tmp_path: Path
) -> None:
    print(f"CAMPAIGN_SEED={SEED} CAMPAIGN_JOBS={JOBS}")
    base, attempts, marks = tmp_path / "base", tmp_path / "attempts", tmp_path / "marks"
    kills = stream(slurm, base, attempts, marks)
    slurm.start_all()
    slurm.resume_nodes()
    assert len(attempts.read_text().splitlines()) == JOBS
    told = judge_all(base)
    print(dict(kills), dict(Counter(told.values())))
    ran = Counter(int(line.split()[0]) for line in marks.read_text().splitlines())
    assert [n for n, count in ran.items() if count > 1] == [], "ran twice"
    expected = {3: "ValueError", 7: "JobFailed"}
    for number, outcome in told.items():
        # Lost is only what a killed controller or client never brought to a node, or what a
        # controller that had forgotten it ended there; a job that a node refuses because its id
        # was just in use there is cancelled by Slurm itself.
        slurms_own = ("JobLost", "NodeFailed", "JobCancelled")
        assert outcome in (expected.get(number % 10, "value"), *slurms_own), number
        if outcome == "value":
            assert ran[number] == 1
    assert sum(outcome == "value" for outcome in told.values()) > JOBS / 4


def stream(slurm: BreakableSlurm, base: Path, attempts: Path, marks: Path) -> Counter[str]:
    """Submit all jobs, with a daemon or the client killed every few seconds."""
    chance = random.Random(SEED)
    kills: Counter[str] = Counter()
    words = [str(base), str(attempts), str(marks), str(JOBS)]
    script = base.with_name("client.py")
    script.write_text(CLIENT)
    end = time.monotonic() + LONGEST
    client = subprocess.Popen([sys.executable, str(script), *words])
    try:
        while time.monotonic() < end:
            try:
                if client.wait(chance.uniform(2, 6)) == 0:
                    return kills
            except subprocess.TimeoutExpired:
                pass
            victim = chance.choice(["client", "slurmctld", "slurmctld", "slurmdbd", "slurmd"])
            how = chance.choice([signal.SIGKILL, signal.SIGTERM])
            kills[f"{victim} {how.name}"] += 1
            if victim == "client":
                client.kill()
                client.wait()
            else:
                node = chance.choice(slurm.cluster.nodes) if victim == "slurmd" else None
                slurm.cluster.stop_daemon(victim, node, signal=how)
                time.sleep(chance.uniform(0, 3))
                slurm.start(victim, node)
            if client.poll() is not None:
                client = subprocess.Popen([sys.executable, str(script), *words])
        raise AssertionError("the stream did not end")
    finally:
        client.kill()
        client.wait()


def judge_all(base: Path) -> dict[int, str]:
    """What a new client says about each run."""
    cluster = Cluster(job_base_dir=base)
    end = time.monotonic() + JUDGED
    told: dict[int, str] = {}
    jobs = {}
    for path in sorted(base.iterdir()):
        if path.name.startswith("."):
            continue
        number = int(path.name.partition("-")[0].removeprefix("work"))
        try:
            jobs[number] = cluster.attach(path.name)
        except (errors.JobLost, errors.RunNotFound):
            # Its client was killed before the scheduler had it.
            told[number] = "JobLost"
    for number, job in jobs.items():
        try:
            assert job.result(max(1.0, end - time.monotonic())) == number
            told[number] = "value"
        except (errors.SlurmError, ValueError) as error:
            told[number] = type(error).__name__
    return told
