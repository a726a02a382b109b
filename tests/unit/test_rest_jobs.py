"""sbatch's options as slurmrestd's words, and its rows as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.api.rest_facts import facts
from slurm.api.rest_options import NotOverRest, job_of
from slurm.api.rest_rows import (
    accounting_row,
    controller_row,
    default_partition,
    numbers_of,
    refusals,
    settings,
    submit_limit,
)
from slurm.api.rest_scheduler import RestScheduler

SCRIPT = """#!/bin/bash
#SBATCH --job-name=f
#SBATCH --chdir=/home/ada/run
#SBATCH --time=00:05:30
#SBATCH --mem=2G
#SBATCH --signal=B:TERM@30
#SBATCH --array=0-9%2
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --gpus-per-node=a100:2
true
#SBATCH --mem=1T
"""


def _variables(job: dict[str, object]) -> dict[str, str]:
    told = job["environment"]
    assert isinstance(told, list)
    return dict(pair.split("=", 1) for pair in told)


def test_the_lines_of_a_script_become_the_description_of_a_job() -> None:
    job = job_of(SCRIPT, {"PATH": "/bin"}, "/elsewhere")
    assert _variables(job)["PATH"] == "/bin"
    assert {key: value for key, value in job.items() if key != "environment"} == {
        "current_working_directory": "/home/ada/run",
        "oom_kill_step": 0xFFFE,
        "name": "f",
        "time_limit": {"set": True, "number": 6},
        "memory_per_node": {"set": True, "number": 2048},
        "kill_warning_signal": "TERM",
        "kill_warning_delay": {"set": True, "number": 30},
        "kill_warning_flags": ["BATCH_JOB"],
        "array": "0-9%2",
        "open_mode": ["APPEND"],
        "requeue": False,
        "tres_per_node": "gres/gpu:a100:2",
    }


def test_an_option_that_rest_has_no_word_for_is_refused_by_name() -> None:
    with pytest.raises(NotOverRest, match="propagate"):
        job_of("#!/bin/sh\n#SBATCH --propagate=NONE\n", {}, "/")
    hint = "#!/bin/sh\n#SBATCH --hint=memory_bound\n"
    assert job_of(hint, {}, "/", "v0.0.45")["cores_per_socket"] == 1
    with pytest.raises(NotOverRest, match=r"memory_bound .* v0\.0\.42"):
        job_of(hint, {}, "/", "v0.0.42")


def test_a_variable_of_sbatch_acts_as_with_sbatch() -> None:
    env = {"SBATCH_PARTITION": "long", "SBATCH_TIMELIMIT": "5", "SBATCH_NO_SUCH": "x"}
    job = job_of("#!/bin/sh\n#SBATCH --time=9\n", env, "/")
    assert job["partition"] == "long"
    assert job["time_limit"] == {"set": True, "number": 5}


@pytest.mark.parametrize(
    ("export", "there", "gone"),
    [
        ("ALL", {"A": "1\n2", "B": "b"}, {"SLURM_GET_USER_ENV"}),
        ("NONE", {"SLURM_GET_USER_ENV": "1", "SLURM_EXPORT_ENV": "NONE"}, {"A", "B"}),
        ("A,C=3", {"A": "1\n2", "C": "3", "SLURM_KEPT": "k"}, {"B"}),
        ("ALL,C=3", {"A": "1\n2", "B": "b", "C": "3"}, set()),
    ],
)
def test_export_says_which_variables_travel(
    export: str, there: dict[str, str], gone: set[str]
) -> None:
    env = {"A": "1\n2", "B": "b", "SLURM_KEPT": "k"}
    found = _variables(job_of(f"#!/bin/sh\n#SBATCH --export={export}\n", env, "/x"))
    assert there.items() <= found.items()
    assert not gone & set(found)
    assert found["SLURM_SUBMIT_DIR"] == "/x"


def test_what_each_rank_has_is_said_as_sbatch_says_it() -> None:
    lines = ("--ntasks=2", "--cpus-per-task=3", "--gpus-per-task=a100:2")
    job = job_of("#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines), {}, "/")
    assert job["tres_per_task"] == "cpu=3,gres/gpu:a100=2"
    assert job["tres_bind"] == "gres/gpu:per_task:2"
    assert job["cpus_per_task"] == 3
    assert _variables(job)["SLURM_CPUS_PER_TASK"] == "3"


def test_the_default_partition_is_told_seen_or_the_only_one() -> None:
    told = [{"name": "a", "flags": []}, {"name": "b", "flags": ["DEFAULT"]}]
    assert default_partition(told, list) == "b"
    assert default_partition([{"name": "a"}], list) == "a"
    untold = [{"name": "a"}, {"name": "b"}]
    jobs = [{"partition": "b", "flags": ["USING_DEFAULT_PARTITION"]}]
    assert default_partition(untold, lambda: jobs) == "b"
    assert default_partition(untold, list) == ""


def test_limits_are_the_lowest_that_are_told() -> None:
    none, three, nine = {"infinite": True}, {"set": True, "number": 3}, {"set": True, "number": 9}
    accounts = {"associations": [{"max": {"jobs": {"total": nine, "per": {"submitted": none}}}}]}
    qos = {"qos": [{"limits": {"max": {"jobs": {"count": none, "per": {"user": three}}}}}]}
    assert submit_limit(accounts, {}) == 9
    assert submit_limit(accounts, qos) == 3
    assert submit_limit({}, {}) is None
    answer = {"slurm_conf": {"MaxArraySize": 1001, "Enforce": ["limits", "qos"], "More": {}}}
    assert settings(answer) == {"MaxArraySize": "1001", "Enforce": "limits,qos"}


def test_what_waits_of_an_array_is_changed_whole_or_not_at_all() -> None:
    array = {"array_job_id": {"set": True, "number": 7}}
    begun = _row(**array, array_task_id={"set": True, "number": 0})
    rest = {**_row(**array, job_state=["PENDING"], array_task_string="1-2"), "job_id": 7}
    assert list(numbers_of(["7_0"], [begun, rest])) == [9]
    assert list(numbers_of(["7_1", "7_2"], [begun, rest])) == [7]
    with pytest.raises(AgentError, match="7_2 would change"):
        list(numbers_of(["7_1"], [begun, rest]))


def _row(**more: object) -> dict[str, object]:
    times = {k: {"set": True, "number": n} for n, k in enumerate(("submit_time", "start_time"), 5)}
    return {"job_id": 9, "job_state": ["RUNNING"], "name": "f", **times, **more}


def test_elements_of_an_array_have_ids_as_squeue_shows_them() -> None:
    array = {"array_job_id": {"set": True, "number": 7}}
    element = controller_row(_row(**array, array_task_id={"set": True, "number": 3}))
    rest = controller_row(_row(**array, job_state=["PENDING"], array_task_string="4-9%2"))
    assert (element.job_id, rest.job_id) == ("7_3", "7_[4-9%2]")


def test_an_element_that_a_cut_list_does_not_name_still_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"current_working_directory": str(tmp_path / "run")}
    array = {"array_job_id": {"set": True, "number": 7}, **run}
    begun = _row(**array, array_task_id={"set": True, "number": 1})
    rest = {**_row(**array, job_state=["PENDING"], array_task_string="4,9,16,..."), "job_id": 7}
    scheduler = RestScheduler("http://127.0.0.1:1")
    monkeypatch.setattr(scheduler, "_jobs", lambda: [begun, rest])
    wanted = [("7_1", "run", 0.0), ("7_25", "run", 0.0)]
    told = {row[0]: row[1] for row in Agent(scheduler, str(tmp_path)).status(wanted)}
    assert told == {"7_1": "RUNNING", "7_25": "PENDING"}


def test_a_forecast_is_no_start_and_a_time_limit_is_no_end() -> None:
    limit = {"end_time": {"set": True, "number": 99}}
    assert controller_row(_row(**limit)).end is None
    pending = controller_row(_row(job_state=["PENDING"], **limit))
    assert (pending.start, pending.end, pending.exit_code) == (None, None, None)


def test_an_end_has_its_exit_code_and_its_signal() -> None:
    status = {
        "return_code": {"set": True, "number": 0},
        "signal": {"id": {"set": True, "number": 9}},
    }
    row = controller_row(
        _row(job_state=["FAILED"], exit_code=status, end_time={"set": True, "number": 8})
    )
    assert (row.state, row.exit_code, row.signal, row.end) == ("FAILED", 0, 9, 8)


def test_accounting_tells_paths_as_far_as_it_can() -> None:
    row = accounting_row(
        {
            "job_id": 9,
            "array": {"job_id": 7, "task_id": {"set": True, "number": 2}},
            "state": {"current": ["COMPLETED"], "reason": "None"},
            "time": {"submission": 5, "start": 6, "end": 8},
            "working_directory": '/home/ada/"x"',
        }
    )
    assert (row.job_id, row.state, row.reason, row.end) == ("7_2", "COMPLETED", "", 8)
    assert row.work_dir == "/home/ada/`x`"


def test_why_a_job_waits_is_said_in_the_words_of_scontrol() -> None:
    held = {**_row(job_state=["PENDING"]), "job_id": 4, "partition": "main"}
    priority = {"set": True, "number": 7}
    waits = {
        **_row(job_state=["PENDING"], state_reason="Dependency", priority=priority),
        "job_id": 5,
        "partition": "main",
        "dependency": "afterok:4(unfulfilled)",
        "time_limit": {"set": True, "number": 90},
        "current_working_directory": "/home/ada/run",
    }
    other = {**_row(job_state=["PENDING"]), "job_id": 6, "partition": "side"}
    most = {"time": {"set": True, "number": 60}, "nodes": {"infinite": True}}
    answers: dict[str, dict[str, Any]] = {
        "jobs/": {"jobs": [held, waits, other]},
        "partition/main": {"partitions": [{"name": "main", "maximums": most}]},
    }
    found = facts(lambda path: answers.get(path, {}), "5")
    assert found["job"]["TimeLimit"] == "01:30:00"
    assert found["job"]["WorkDir"] == "/home/ada/run"
    assert found["upstream"] == [("4", "unfulfilled", "PENDING")]
    assert [row[0] for row in found["queue"]] == ["5", "4"]
    assert found["partition"]["MaxTime"] == "01:00:00"
    assert facts(lambda path: answers.get(path, {}), "99")["job"] == {}


def test_a_refusal_is_told_unless_the_job_has_ended() -> None:
    signalled = [{"error": {"code": code, "message": f"no {code}"}} for code in (0, 2017, 2002)]
    assert refusals({"status": signalled}, {2017}) == ["no 2002"]
    requeued = [[{"error": "fine", "error_code": 0}], [{"error": "no", "error_code": 2002}]]
    assert refusals({"status": requeued}, {2017}) == ["no"]
    assert refusals({}, {2017}) == []
