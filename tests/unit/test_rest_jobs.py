"""sbatch's options as slurmrestd's words, and its rows as ours."""

from __future__ import annotations

import pytest

from slurm.api.rest_jobs import NotOverRest, accounting_row, controller_row, job_of

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


def test_the_lines_of_a_script_become_the_description_of_a_job() -> None:
    job = job_of(SCRIPT, {"PATH": "/bin"}, "/elsewhere")
    assert job == {
        "current_working_directory": "/home/ada/run",
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
        "environment": ["PATH=/bin"],
    }


def test_an_option_that_rest_has_no_word_for_is_refused_by_name() -> None:
    with pytest.raises(NotOverRest, match="spread-job"):
        job_of("#!/bin/sh\n#SBATCH --spread-job\n", {}, "/")


def _row(**more: object) -> dict[str, object]:
    times = {k: {"set": True, "number": n} for n, k in enumerate(("submit_time", "start_time"), 5)}
    return {"job_id": 9, "job_state": ["RUNNING"], "name": "f", **times, **more}


def test_elements_of_an_array_have_ids_as_squeue_shows_them() -> None:
    array = {"array_job_id": {"set": True, "number": 7}}
    element = controller_row(_row(**array, array_task_id={"set": True, "number": 3}))
    rest = controller_row(_row(**array, job_state=["PENDING"], array_task_string="4-9%2"))
    assert (element.job_id, rest.job_id) == ("7_3", "7_[4-9%2]")


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
