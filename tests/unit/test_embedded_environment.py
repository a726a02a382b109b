"""What a job of the embedded scheduler sees: variables, log names, node and task layout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm.api.embedded import srun
from slurm.api.embedded.environment import (
    Attempt,
    compressed,
    fill_pattern,
    inherited,
    job_environment,
    log_files,
    node_list,
    split_export,
    spread,
)
from slurm.api.embedded.host import descendants
from slurm.api.embedded.request import Request

ATTEMPT = Attempt(
    job_id=18, batch_id=17, index=3, restarts=0, start=1000, request=Request("name", array=(1, 3)),
    host="box", user="ann", submit_directory="/home/ann", scheduler_directory="/tmp/s", cpus=1,
    devices=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("%A_%a.out", "17_3.out"), ("%j-%x-%u-%N", "18-name-ann-box"), ("100%%", "100%"),
        ("%%j", "%j"), ("%4a", "0003"), ("%q%", "%q%"), ("\\%j", "%j"), ("%5x", "name"),
    ],
)  # fmt: skip
def test_patterns_in_log_names(pattern: str, name: str) -> None:
    output, error = log_files(replace(ATTEMPT, request=Request("name", output=pattern)))
    assert output == error == f"/home/ann/{name}"


def test_logs_without_a_name_are_named_as_slurm_names_them() -> None:
    assert log_files(ATTEMPT)[0] == "/home/ann/slurm-17_3.out"
    assert log_files(replace(ATTEMPT, index=None))[0] == "/home/ann/slurm-18.out"


def test_a_pattern_of_many_digits_is_bounded() -> None:
    assert len(fill_pattern("%999999j", {"j": "1"})) == 10


def test_the_private_bin_is_first_on_the_path_once() -> None:
    env = job_environment(ATTEMPT, {"PATH": "/tmp/s/bin:/usr/bin"})
    assert env["PATH"] == "/tmp/s/bin:/usr/bin"


def test_a_restart_is_counted_from_the_second_attempt_on() -> None:
    assert "SLURM_RESTART_COUNT" not in job_environment(ATTEMPT, {})
    again = job_environment(replace(ATTEMPT, restarts=2), {})
    assert again["SLURM_RESTART_COUNT"] == "2"


def test_export_none_leaves_the_least() -> None:
    env = {"HOME": "/h", "SECRET": "s", "SLURM_SDK_A": "1", "SLURM_JOB_ID": "9", "PATH": "/p"}
    assert inherited(env, "NONE") == {
        "HOME": "/h",
        "SLURM_SDK_A": "1",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    assert inherited(env, "SECRET,PATH")["PATH"] == "/p"


def test_quotes_protect_a_comma_in_export() -> None:
    assert split_export("ALL,A='1,2',B=\"x\"") == ["ALL", "A=1,2", "B=x"]


def test_tasks_are_spread_in_blocks() -> None:
    assert spread(5, 2) == [3, 2]
    assert spread(5, 3, 2) == [2, 2, 1]
    assert compressed([2, 2, 1]) == "2(x2),1"
    assert node_list("box", 2) == "box,box"


def test_srun_reads_its_command_line_as_srun_does() -> None:
    options, program = srun.parse_command_line(
        ["-n2", "-N", "1", "--export=ALL,A=1", "-K", "--label", "--cpu-bind", "none", "prog", "-n"]
    )
    assert options == {
        "ntasks": "2", "nodes": "1", "export": "ALL,A=1", "kill-on-bad-exit": "", "label": "",
        "cpu-bind": "none",
    }  # fmt: skip
    assert program == ["prog", "-n"]


@pytest.mark.parametrize("words", [["--nope", "x"], ["-n"], [], ["-n", "2"], ["-Z", "x"]])
def test_srun_refuses_what_it_does_not_know(words: list[str]) -> None:
    with pytest.raises(srun.Misuse):
        srun.parse_command_line(words)


def test_descendants_are_found_through_every_generation() -> None:
    table = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
    assert sorted(descendants(table, 2)) == [3, 4]
    assert sorted(descendants(table, 1)) == [2, 3, 4, 5, 6]
