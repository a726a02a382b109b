"""The list of runs: one listing and a cache, states out of events, ten thousand runs at once."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.api.connect import LocalBackend
from slurm.api.slurm_commands import JobStatus
from slurm.cli.gc import old_runs
from slurm.runlist import ListedRun, RunList


class Scheduler:
    """Stands in a scheduler's place; counts how often it is asked."""

    kind = "slurm"

    def __init__(self) -> None:
        self.rows: list[JobStatus] = []
        self.asked = 0

    def status(self, _: Any) -> list[JobStatus]:
        self.asked += 1
        return self.rows

    def row(self, job: str, state: str, work_dir: Path, reason: str = "") -> None:
        row = JobStatus(job, state, reason, "", None, None, 1, None, None, 0, str(work_dir), "x")
        self.rows.append(row)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "base" / rundir.BASE_EVENTS).mkdir(parents=True)
    return Scheduler()


def look(base: Path, scheduler: Any, limit: int = 20) -> list[ListedRun]:
    backend = LocalBackend(scheduler, str(base))
    return RunList(str(base)).look(backend, limit)[0]


def make(base: Path, number: int, parts: Any = None) -> str:
    day, rest = divmod(number, 86400)
    run = (
        f"train-202601{day + 1:02}-{rest // 3600:02}{rest // 60 % 60:02}{rest % 60:02}-{number:06x}"
    )
    (base / run / rundir.SUBMIT).mkdir(parents=True)
    metadata = {"task": "train", "parts": parts, "submitted": 1e9 + number}
    (base / run / rundir.METADATA).write_text(json.dumps(metadata))
    (base / run / rundir.id_name(0)).write_text(str(number + 1))
    return run


def end_line(run: str, code: int, index: int = 0, time: int = 100) -> str:
    return (
        f"exit job=1 index={index} rank=- attempt=0 run={run} phase=run code={code} signal=0 "
        f"elapsed=10 time={time} host=h\n"
    )


def end(base: Path, run: str, code: int, index: int = 0, time: int = 100) -> None:
    with (base / rundir.BASE_EVENTS / "h-1-20260101").open("a") as file:
        file.write(end_line(run, code, index, time))


def test_a_run_that_ended_well_is_known_without_the_scheduler(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    end(base, make(base, 1), 0)
    [run] = look(base, scheduler)
    assert (run.state, run.job_id, run.started, run.ended) == ("COMPLETED", "2", 90, 100)
    assert scheduler.asked == 0


def test_what_the_scheduler_said_of_a_bad_end_is_remembered(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    run = make(base, 1)
    end(base, run, 143)
    scheduler.row("2", "TIMEOUT", base / run)
    assert [one.state for one in look(base, scheduler)] == ["TIMEOUT"]
    scheduler.rows.clear()
    assert [one.state for one in look(base, scheduler)] == ["TIMEOUT"]
    assert scheduler.asked == 1


def test_a_waiting_run_shows_its_reason_and_an_array_how_far_it_is(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    waiting, array = make(base, 1), make(base, 2, parts=[[0, 0, 4]])
    scheduler.row("2", "PENDING", base / waiting, "Priority")
    scheduler.row("3_[2-3]", "PENDING", base / array, "Resources")
    end(base, array, 0, index=0)
    end(base, array, 0, index=1)
    newest, oldest = look(base, scheduler)
    assert (oldest.state, oldest.reason) == ("PENDING", "Priority")
    assert (newest.state, newest.done, newest.jobs) == ("RUNNING", 2, 4)


def test_a_job_that_was_given_the_same_id_is_not_taken_for_ours(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    make(base, 1)
    scheduler.row("2", "RUNNING", tmp_path / "elsewhere")
    assert [one.state for one in look(base, scheduler)] == ["UNKNOWN"]


def test_jobs_that_a_crashed_controller_forgot_ended_as_their_files_say(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    run, half = (make(base, number, parts=[[0, 0, 2]]) for number in (1, 2))
    for name in (run, half):
        for index in (0, 1):
            end(base, name, 1, index)
    # Accounting was never told of the end; of the other run the controller knows one job.
    scheduler.row("2_[0-1]", "RUNNING", base / run)
    forgotten = [scheduler.rows.pop()]
    scheduler.accounting = lambda ids, since: forgotten  # type: ignore[attr-defined]
    scheduler.row("3_0", "FAILED", base / half)
    found = look(base, scheduler)
    assert [(one.run, one.over, one.state) for one in found] == [
        (half, True, "FAILED"),
        (run, True, "FAILED"),
    ]


def test_a_second_attempt_counts_more_than_the_first(tmp_path: Path, scheduler: Scheduler) -> None:
    base = tmp_path / "base"
    run = make(base, 1)
    end(base, run, 0, time=200)
    end(base, run, 1, time=100)
    assert [one.state for one in look(base, scheduler)] == ["COMPLETED"]


def test_a_run_that_was_removed_is_gone_and_a_new_one_is_there(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    old = make(base, 1)
    end(base, old, 0)
    look(base, scheduler, 0)
    os.rename(base / old, tmp_path / "away")
    new = make(base, 2)
    assert [one.run for one in look(base, scheduler, 0)] == [new]


def test_a_damaged_cache_is_thrown_away(tmp_path: Path, scheduler: Scheduler) -> None:
    base = tmp_path / "base"
    end(base, make(base, 1), 0)
    look(base, scheduler)
    for file in (tmp_path / "cache" / "slurm-sdk" / "runs").iterdir():
        file.write_text("{")
    assert [one.state for one in look(base, scheduler)] == ["COMPLETED"]


def test_only_old_runs_that_are_over_may_go() -> None:
    def run(number: int, states: dict[str, int], ended: float | None) -> ListedRun:
        return ListedRun(f"r{number}", "train", "job", "1", 1, 1.0, states, 0.0, ended)

    newest = run(4, {"COMPLETED": 1}, 50.0)
    runs = [newest, run(3, {"RUNNING": 1}, None), run(2, {"FAILED": 1}, 40.0),
            run(1, {"COMPLETED": 1}, 90.0)]  # fmt: skip
    assert [one.run for one in old_runs(runs, 100.0, 40.0, 1, None, False)] == ["r2"]
    assert [one.run for one in old_runs(runs, 100.0, 0.0, 0, None, True)] == ["r2"]
    assert old_runs(runs, 100.0, 0.0, 0, "other", False) == []
    # Dated by a clock that was ahead: over, so it may go where no age is asked for.
    assert [one.run for one in old_runs(runs, 5.0, 0.0, 1, None, False)] == ["r2", "r1"]
    assert old_runs(runs, 5.0, 1.0, 0, None, False) == []


class Told(Scheduler):
    """An agent's scheduler that knows of no job."""


def test_removing_a_run_takes_its_links_and_keeps_what_lives(tmp_path: Path) -> None:
    base = tmp_path / "base"
    scheduler = Told()
    dead, alive, needed = make(base, 1), make(base, 2), make(base, 3)
    (base / rundir.BASE_IDS).mkdir()
    (base / rundir.BASE_IDS / "2").symlink_to(f"../{dead}")
    (base / alive / rundir.METADATA).write_text(json.dumps({"task": "t", "upstream": [needed]}))
    scheduler.row("3", "RUNNING", base / alive)
    kept = dict(Agent(scheduler, str(base)).remove_runs([dead, alive, needed, "nope-1"]))
    assert sorted(kept) == sorted([alive, needed, "nope-1"])
    assert not (base / dead).exists() and not (base / rundir.BASE_IDS / "2").is_symlink()
    assert (base / alive).exists() and (base / needed).exists()


def test_ten_thousand_runs_are_listed_at_once(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / rundir.BASE_EVENTS).mkdir(parents=True)
    lines = [end_line(make(base, number), 0) for number in range(10_000)]
    (base / rundir.BASE_EVENTS / "h-1-20260101").write_text("".join(lines))
    words = ["ls", "--json", "--cluster", "embedded", "--job-base-dir", str(base)]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "slurm.cli", *words], capture_output=True, env=env, timeout=150
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = json.loads(done.stdout)
        assert (answer["total"], len(answer["runs"])) == (10_000, 20)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # 0.2 s on an idle machine; the guard is for a list that opens a file per run.
    assert any(cpu_seconds() < 0.6 for _ in range(8))


# ---- the cache never gets worse -----------------------------------------------------------------


def test_runs_whose_ends_were_read_with_a_shorter_list_are_whole_in_a_longer_one(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    make(base, 0)
    look(base, scheduler, 0)
    runs = [make(base, number) for number in range(1, 10)]
    for run in runs:
        end(base, run, 0)
    look(base, scheduler, 2)
    found = {run.run: run for run in look(base, scheduler)}
    assert {found[run].state for run in runs} == {"COMPLETED"}
    assert all(found[run].job_id and found[run].submitted > 1e8 for run in runs)


def test_a_run_that_was_listed_in_the_middle_of_its_submission_gets_its_id(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    import time

    base = tmp_path / "base"
    run = time.strftime("train-%Y%m%d-%H%M%S-000000", time.localtime(time.time() - 60))
    later = time.strftime("train-%Y%m%d-%H%M%S-000001")
    for name in (run, later):
        (base / name / rundir.SUBMIT).mkdir(parents=True)
        (base / name / rundir.METADATA).write_text(json.dumps({"task": "train"}))
    (base / later / rundir.id_name(0)).write_text("2")
    assert [one.job_id for one in look(base, scheduler)] == ["2", ""]
    (base / run / rundir.id_name(0)).write_text("1")
    assert {one.job_id for one in look(base, scheduler)} == {"1", "2"}


def test_a_base_that_was_away_for_a_while_is_listed_as_before(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    runs = [make(base, number) for number in range(5)]
    for run in runs:
        end(base, run, int(run == runs[0]))
    before = look(base, scheduler, 0)
    away = tmp_path / "away"
    base.rename(away)
    assert look(base, scheduler, 0) == []
    away.rename(base)
    assert look(base, scheduler, 0) == before
    assert [run.state for run in before] == ["COMPLETED"] * 4 + ["FAILED"]


def test_what_a_scheduler_could_not_be_asked_is_not_kept(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    run = make(base, 0)
    end(base, run, 1)

    class Away(Scheduler):
        def accounting(self, *_: Any) -> Any:
            raise AgentError("unreachable", "slurmdbd does not answer")

    runs = RunList(str(base))
    (one,), _ = runs.look(LocalBackend(Away(), str(base)), 20)
    assert (one.state, runs.problem) == ("FAILED", "slurmdbd does not answer")
    scheduler.row("1", "TIMEOUT", base / run)
    assert look(base, scheduler)[0].state == "TIMEOUT"


@pytest.mark.parametrize("damage", ["cut", "empty", "words"])
def test_a_damaged_cache_costs_nothing_but_time(
    damage: str, tmp_path: Path, scheduler: Scheduler
) -> None:
    base = tmp_path / "base"
    end(base, make(base, 0), 0)
    before = look(base, scheduler, 0)
    (path,) = (tmp_path / "cache").rglob("runs/*")
    text = path.read_text()
    words = '{"format": 2, "sizes": [], "runs": 3}'
    path.write_text({"cut": text[:-9], "empty": "", "words": words}[damage])
    assert look(base, scheduler, 0) == before
