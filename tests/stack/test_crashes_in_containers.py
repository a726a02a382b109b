"""Parts of a cluster in containers are killed under load: what was submitted is run and accounted.

A crash of slurmctld alone may forget: then each forgotten job is reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from lab import Lab, marking, until

from slurm import Cluster, Job, silence, task
from slurm.errors import SlurmError
from slurm.stack import health, life
from waiting import age

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()


def array(lab: Lab, first: int, count: int, *options: str) -> tuple[str, set[str]]:
    """An array of jobs of a second each; its id, and the marks that it will leave."""
    last = first + count - 1
    job = lab.batch(marking(1), f"--array={first}-{last}", *options)
    return job, {str(number) for number in range(first, last + 1)}


def run_marks(lab: Lab, wanted: set[str]) -> set[str]:
    return wanted & set(lab.marks())


def test_a_node_that_is_killed_and_comes_back_gives_its_jobs_back_at_once(lab: Lab) -> None:
    job, wanted = array(lab, 101, 20, "--requeue")
    young = lab.batch("sleep 600", "--requeue", "--nodelist=n1")
    lab.wait_state(young, "RUNNING")
    lab.kill("slurmd-n1")
    lab.podman("rm", "--force", f"{lab.name}-slurmd-n1")
    lab.up()
    restarts = lab.user("squeue", "-h", "-O", "RestartCnt", "-j", young)
    lab.user("scancel", young)
    assert restarts == "1"
    lab.wait_mended()
    assert run_marks(lab, wanted) == wanted
    assert lab.accounted(job).count("COMPLETED") == 20
    assert health.look(lab.directory).state == "up"


def signal_jobs(lab: Lab, node: str, signal: str) -> None:
    """Send a signal to all that jobs run on a node; podman would pause its daemon alone."""
    mine = '[ "$(stat -c %U $p)" != user ] || kill -s ' + signal + ' "${p#/proc/}"'
    words = ("sh", "-c", f"for p in /proc/[0-9]*; do {mine}; done")
    lab.podman("exec", f"{lab.name}-slurmd-{node}", *words)


def test_one_node_of_a_packed_map_that_hangs_is_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(silence, "SILENT", 40.0)
    with Cluster.from_stack(lab.name, time="20m", mem="100M"):
        # Two jobs of two items, each with all CPUs of a node.
        items = task(time.sleep, cpus_per_task=2).map([900.0] * 4, pack=2)
        until(lambda: {job.node for job in items} == {"n1", "n2"}, lambda: items.states)
        there = [job for job in items if job.node == "n2"]

        def silent() -> bool:
            return all(job.reason.startswith("silent since") for job in there)

        age(time.time(), 25)  # both have written a beat, and it has been read
        signal_jobs(lab, "n2", "STOP")
        try:
            until(silent, lambda: [(job.node, job.reason) for job in items])
            assert {job.state for job in items} == {"RUNNING"}
            assert [job.reason for job in items if job.node == "n1"] == ["", ""]
        finally:
            signal_jobs(lab, "n2", "CONT")
        until(lambda: not silent(), lambda: [job.reason for job in there])
        items.cancel()
    (warning,) = [text for text in caplog.messages if "has written nothing" in text]
    assert "node n2" in warning


def test_a_node_that_its_engine_started_anew_is_put_right_by_up(lab: Lab) -> None:
    again = lab.batch("sleep 600", "--requeue", "--nodelist=n2")
    once = lab.batch("sleep 600", "--no-requeue", "--nodelist=n2")
    for job in (again, once):
        lab.wait_state(job, "RUNNING")
    lab.kill("slurmd-n2")
    lab.podman("start", f"{lab.name}-slurmd-n2")
    # Slurm itself may notice it, or not for half an hour.
    lab.up()
    restarts = lab.user("squeue", "-h", "-O", "RestartCnt", "-j", again)
    lab.user("scancel", again)
    lab.wait_mended()
    assert restarts == "1"
    assert lab.accounted(once)[0] in ("CANCELLED", "NODE_FAIL")


def test_slurmdbd_and_database_killed_under_load_lose_no_record(lab: Lab) -> None:
    job, wanted = array(lab, 201, 30)
    lab.wait_state(job, "RUNNING")
    lab.kill("slurmdbd", "mysql")
    age(time.time(), 5)  # what happens meanwhile is to be kept by slurmctld
    lab.up()
    lab.wait_empty()
    assert run_marks(lab, wanted) == wanted
    assert lab.accounted(job) == ["COMPLETED"] * 30


def test_a_controller_killed_ten_seconds_after_the_last_submission_loses_no_job(lab: Lab) -> None:
    job, wanted = array(lab, 301, 60)
    age(time.time(), 10)
    lab.kill("slurmctld")
    lab.up()
    lab.wait_mended()
    # A task that began or ended in the last seconds may have run twice.
    assert run_marks(lab, wanted) == wanted
    assert lab.accounted(job) == ["COMPLETED"] * 60
    assert health.look(lab.directory).state == "up"


def test_every_job_that_a_killed_controller_forgot_is_reported(lab: Lab) -> None:
    places = [f"/home/user/place-{number}" for number in range(8)]
    with Cluster.from_stack(lab.name, time="5m", mem="20M") as cluster:
        jobs = [cluster.submit(os.mkdir)(place) for place in places]
        age(time.time(), 1)  # some jobs are on disk, some are not
        lab.kill("slurmctld")
        lab.up()
        told = dict(zip(places, map(outcome, jobs), strict=True))
    made = set(lab.user("bash", "-c", "ls -d /home/user/place-* || true").split())
    # Each one is told of, and who is told of a value has it.
    assert {place for place, word in told.items() if word == "value"} <= made, told
    lab.wait_mended()
    assert health.look(lab.directory).state == "up"


def outcome(job: Job[None]) -> str:
    """`value`, or the name of the error that the user is told."""
    try:
        job.result(timeout=300)
    except SlurmError as error:
        return type(error).__name__
    return "value"


def test_the_whole_stack_down_and_up_under_load_loses_nothing(lab: Lab) -> None:
    job, wanted = array(lab, 501, 30, "--requeue")
    held = lab.batch(marking(0), "--hold")
    lab.wait_state(job, "RUNNING")
    life.down(lab.directory, lab.said.append, jobs="requeue")
    assert health.look(lab.directory).state == "down"
    lab.up()
    lab.user("scontrol", "release", held)
    lab.wait_empty()
    assert run_marks(lab, wanted | {held}) == wanted | {held}
    assert lab.accounted(job).count("COMPLETED") == 30
    assert lab.accounted(held) == ["COMPLETED"]
