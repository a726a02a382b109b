"""Daemons and nodes die under running jobs: each job ends with its value or one typed error."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from breaking import SOON, BreakableSlurm, eventually, runner_pid

from slurm import Cluster, Job, JobContext, errors, outcome, pace, task, watcher
from waiting import age, holds


def nap() -> Any:
    # Travels by value: the node need not import the test module.
    def napping(seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    return task(napping)


def error_of(job: Job[Any], timeout: float = SOON) -> BaseException:
    with pytest.raises(errors.SlurmError) as caught:
        job.result(timeout)
    return caught.value


@pytest.fixture
def cluster(slurm: BreakableSlurm, tmp_path: Path) -> Cluster:
    return Cluster(job_base_dir=tmp_path / "base")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same behaviour with smaller numbers."""
    monkeypatch.setattr(outcome, "RESULT_GRACE", 3.0)
    monkeypatch.setattr(watcher, "SWEEP", 1.0)
    for name in ("POLL", "FIRST_POLL"):
        monkeypatch.setattr(pace, name, 1.0)


# ---- nodes --------------------------------------------------------------------------------------


def test_a_lost_node_is_reported_within_a_poll_of_slurm_knowing(
    slurm: BreakableSlurm, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pace.POLL <= 30
    monkeypatch.setattr(pace, "POLL", 5.0)
    job = cluster.submit(nap(), nodelist="n1")(300)
    pid = runner_pid(job)
    eventually(lambda: cluster._watcher.polls)
    slurm.lose_node("n1")
    began = time.monotonic()
    error = error_of(job)
    assert isinstance(error, errors.NodeFailed)
    assert error.node == "n1"
    assert "requeue=True" in str(error)
    # A slow machine may add some seconds of its own.
    assert time.monotonic() - began < pace.POLL + outcome.NODE_GRACE + 10
    os.kill(pid, signal.SIGKILL)


def test_a_job_that_may_be_requeued_runs_again_after_its_node_is_lost(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, tmp_path: Path
) -> None:
    def twice(marks: str, ctx: JobContext) -> tuple[int, str | None]:
        with open(marks, "a") as f:
            f.write(f"{ctx.attempt}\n")
        if ctx.attempt == 0:
            time.sleep(300)
        return ctx.attempt, os.environ.get("SLURMD_NODENAME")

    marks = tmp_path / "marks"
    job = cluster.submit(task(twice), requeue=True)(str(marks))  # type: ignore[call-arg]
    pid = runner_pid(job)
    first = eventually(lambda: job.running() and job.node)
    slurm.lose_node(first)
    attempt, second = job.result(SOON)
    assert attempt == job.attempt == 1
    assert second != first
    assert marks.read_text() == "0\n1\n"
    assert f"attempt 1 of job {job.id}" in job.stdout()
    os.kill(pid, signal.SIGKILL)


def test_a_prolog_that_fails_does_not_leave_the_client_waiting_without_a_word(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None
) -> None:
    slurm.fail_prolog("n2")
    job = cluster.submit(nap(), nodelist="n2")(0)
    # Slurm holds such a job, or fails it where it may not be requeued; both are said.
    eventually(lambda: job.done() or "held" in job.reason.lower() or "Prolog" in job.reason)
    if job.done():
        assert isinstance(error_of(job), (errors.JobFailed, errors.JobCancelled))
    else:
        job.cancel()
        assert isinstance(error_of(job), errors.JobCancelled)


# ---- the controller -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_controller_that_is_restarted_costs_no_job(
    slurm: BreakableSlurm, cluster: Cluster, how: signal.Signals
) -> None:
    runs, dies = cluster.submit(nap())(3), cluster.submit(task(_killed_soon()))()
    waits = cluster.submit(nap(), hold=True)(0)
    runner_pid(runs)
    runner_pid(dies)
    if how is signal.SIGKILL:
        # A killed controller forgets what it was told in the last five seconds.
        age(time.time(), 6)
    slurm.cluster.stop_daemon("slurmctld", signal=how)
    # A value that lies on disk needs no controller.
    assert runs.result(SOON) == "slept"
    slurm.start("slurmctld")
    assert isinstance(error_of(dies), errors.JobFailed)
    waits.release()
    assert waits.result(SOON) == "slept"


def _killed_soon() -> Any:
    def killed_soon() -> None:
        time.sleep(8)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed_soon


def test_a_waiting_job_that_the_controller_forgot_is_lost_and_its_ids_new_owner_is_untouched(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, tmp_path: Path
) -> None:
    job = slurm.crash_and_forget(lambda: cluster.submit(nap(), hold=True)(0))
    other = slurm.run(
        "sbatch", "--parsable", "--chdir", str(tmp_path), "--wrap", "sleep 300", "-o", "other"
    )
    assert other == job.id, "the id was to be given out again"
    assert not job.cancel()
    error = error_of(job)
    assert isinstance(error, errors.JobLost)
    assert job.id in str(error)
    assert not job.cancel()
    with pytest.raises(errors.CommandRefused):
        job.hold()
    eventually(lambda: slurm.state(other) == "RUNNING")


@pytest.mark.full
def test_a_running_job_that_the_controller_forgot_is_lost(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, tmp_path: Path
) -> None:
    def submit() -> Job[Any]:
        job = cluster.submit(nap())(300)
        runner_pid(job)
        return job

    job = slurm.crash_and_forget(submit)
    error = error_of(job)
    assert isinstance(error, errors.JobLost)
    assert job.id in str(error)


def test_a_running_job_that_ends_well_although_it_was_forgotten_keeps_its_value(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None
) -> None:
    def stubborn(ctx: JobContext) -> str:
        time.sleep(2)
        return "done"

    def submit() -> Job[Any]:
        job = cluster.submit(task(stubborn))()
        runner_pid(job)
        return job

    assert slurm.crash_and_forget(submit).result(SOON) == "done"


def run_again_elsewhere(slurm: BreakableSlurm, job: Job[Any], ran_on: str) -> None:
    """Let a job start anew that the controller believes held.

    The node where it ran calls its id a duplicate until the old credential has expired, and Slurm
    drains that node: another one starts it at once.
    """
    slurm.run("scontrol", "update", f"jobid={job.id}", f"ExcNodeList={ran_on}")
    slurm.run("scontrol", "release", job.id)


@pytest.mark.parametrize("requeue", [False, True], ids=["no requeue", "requeue"])
def test_a_job_that_a_forgetful_controller_starts_anew_runs_once(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, tmp_path: Path, requeue: bool
) -> None:
    marks = tmp_path / "marks"

    def work(marks: str) -> str:
        with open(marks, "a") as f:
            f.write(os.environ["SLURM_JOB_ID"] + "\n")
        return os.environ["SLURMD_NODENAME"]

    # Held, so that the controller saves it as waiting; what comes then it will have forgotten.
    job = cluster.submit(task(work), hold=True, requeue=requeue)(str(marks))

    def let_it_run() -> str:
        job.release()
        return job.result(SOON)

    ran_on = slurm.crash_and_forget(let_it_run)
    run_again_elsewhere(slurm, job, ran_on)
    word = "nothing to run" if requeue else "is not run again"
    eventually(lambda: word in job.stderr())
    eventually(lambda: slurm.state(job.id) == "COMPLETED")
    assert marks.read_text() == f"{job.id}\n"
    assert Cluster(job_base_dir=cluster.base).attach(job.run).result(SOON) == ran_on


@pytest.mark.full
def test_an_element_that_a_forgetful_controller_starts_anew_runs_once(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"

    def work(number: int, marks: str) -> str:
        with open(marks, "a") as f:
            f.write(f"{number}\n")
        return os.environ["SLURMD_NODENAME"]

    array = cluster.submit(task(work), hold=True).map([(n, str(marks)) for n in range(3)])

    def let_it_run() -> list[str]:
        for job in array:
            job.release()
        return array.results(SOON)

    for job, ran_on in zip(array, slurm.crash_and_forget(let_it_run), strict=True):
        run_again_elsewhere(slurm, job, ran_on)
    eventually(lambda: all("is not run again" in job.stderr() for job in array))
    assert sorted(marks.read_text().split()) == ["0", "1", "2"]


def test_a_controller_that_is_down_at_submission_is_named_and_no_job_runs_twice(
    slurm: BreakableSlurm, cluster: Cluster, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"

    def work(marks: str) -> str:
        with open(marks, "a") as f:
            f.write(os.environ["SLURM_JOB_ID"] + "\n")
        return os.environ["SLURM_JOB_ID"]

    assert cluster.submit(nap())(0).result(SOON) == "slept"
    slurm.cluster.stop_daemon("slurmctld")
    began = time.monotonic()
    with pytest.raises(errors.SchedulerUnreachable) as caught:
        cluster.submit(task(work))(str(marks))
    assert time.monotonic() - began < SOON
    assert "Unable to contact slurm controller" in "\n".join(caught.value.evidence)
    slurm.start("slurmctld")
    slurm.cluster.wait_ready(SOON)
    job_id = cluster.submit(task(work))(str(marks)).result(SOON)
    assert marks.read_text() == f"{job_id}\n"


def test_a_time_over_the_partitions_limit_is_refused_in_slurms_words(
    slurm: BreakableSlurm, cluster: Cluster
) -> None:
    with pytest.raises(errors.SubmitRefused) as caught:
        cluster.submit(nap(), partition="short", time="2h")(0)
    assert "time limit" in "\n".join(caught.value.evidence)
    assert "time=" in str(caught.value.hint)
    assert [n for n in os.listdir(cluster.base) if not n.startswith(".")] == []


# ---- accounting ---------------------------------------------------------------------------------


def test_without_slurmdbd_jobs_run_and_end_as_always(
    slurm: BreakableSlurm, cluster: Cluster
) -> None:
    def vanish() -> None:
        os._exit(3)

    slurm.cluster.stop_daemon("slurmdbd", signal=signal.SIGKILL)
    good, bad = cluster.submit(nap())(0), cluster.submit(task(vanish))()
    assert good.result(SOON) == "slept"
    assert isinstance(error_of(bad), errors.JobFailed)


def test_a_forgotten_job_is_not_called_lost_while_slurmdbd_is_away(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cluster.submit(nap())(300)
    pid = runner_pid(job)
    slurm.cluster.stop_daemon("slurmdbd")
    shell = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    scheduler: Any = cluster.backend.agent.scheduler  # type: ignore[attr-defined]
    # The controller forgets a job some minutes after its end.
    monkeypatch.setattr(scheduler, "status", lambda job_ids: [])
    # Nobody is left to write an exit event.
    os.kill(shell, signal.SIGKILL)
    eventually(lambda: "accounting" in job.reason)
    holds("not done", lambda: not job.done(), outcome.RESULT_GRACE + 2)
    # What happened meanwhile reaches accounting within a minute.
    monkeypatch.setattr(outcome, "RESULT_GRACE", SOON)
    slurm.start("slurmdbd")
    assert isinstance(error_of(job, 2 * SOON), errors.JobFailed)


def test_a_job_without_a_word_that_accounting_knows_is_explained_by_it(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cluster.submit(nap(), hold=True)(0)
    slurm.run("scancel", job.id)
    # The directory comes into accounting some seconds after the state.
    asked = ("sacct", "-n", "-P", "-X", "-j", job.id, "-o", "WorkDir")
    eventually(lambda: job.path in slurm.run(*asked))
    scheduler: Any = cluster.backend.agent.scheduler  # type: ignore[attr-defined]
    monkeypatch.setattr(scheduler, "status", lambda job_ids: [])
    monkeypatch.setattr(outcome, "RESULT_GRACE", SOON)
    again = Cluster(job_base_dir=cluster.base).attach(job.run)
    assert isinstance(error_of(again, 2 * SOON), errors.JobCancelled)


def test_munge_that_is_away_is_trouble_with_the_scheduler_not_the_end_of_jobs(
    slurm: BreakableSlurm, cluster: Cluster, impatient: None
) -> None:
    job = cluster.submit(nap())(4)
    runner_pid(job)
    slurm.cluster.stop_daemon("munged")
    eventually(lambda: cluster._watcher.trouble or job.done())
    assert job.result(SOON) == "slept"
    slurm.start("munged")


def test_no_process_of_a_client_is_left_behind(slurm: BreakableSlurm, cluster: Cluster) -> None:
    assert cluster.submit(nap())(0).result(SOON) == "slept"

    def asking() -> set[str]:
        ps = ["ps", "--ppid", str(os.getpid()), "-o", "comm="]
        mine = subprocess.run(ps, capture_output=True, text=True).stdout.split()
        return {"sbatch", "squeue", "sacct", "scontrol"} & set(mine)

    # A question that is under way is none that was left behind.
    eventually(lambda: not asking())
