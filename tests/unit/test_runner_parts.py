"""The runner's pure parts: who it is, what it pickles, and where the kernel counts its dead."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from slurm import rundir
from slurm.runner import memory, ranks
from slurm.runner.memory import OomCounter, counter_files, oom_kills
from slurm.runner.run import dumps, extend_path, identity
from slurm.runner.trouble import exit_code

# ---- who ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({}, ("0", 0, 0, 0)),
        ({"SLURM_JOB_ID": "7"}, ("7", 0, 0, 0)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "3"}, ("7", 0, 0, 3)),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "2"}, ("7", 0, 2, 0)),
        (
            {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4"},
            ("7", 4, 0, 0),
        ),
        (
            {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4", "SLURM_SDK_OFFSET": "1000"},
            ("7", 1004, 0, 0),
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "", "SLURM_PROCID": ""}, ("7", 0, 0, 0)),
    ],
)
def test_a_process_knows_itself_from_what_slurm_sets(
    environ: dict[str, str], who: tuple[str, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert tuple(identity()) == who


def test_ranks_get_the_names_that_frameworks_read() -> None:
    environ = {
        "SLURM_SDK_RANKS": "1",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4",
        "WORLD_SIZE": "16",
    }
    ranks.announce(environ)
    assert (environ["RANK"], environ["LOCAL_RANK"], environ["WORLD_SIZE"]) == ("3", "1", "16")


def test_a_job_of_one_process_is_not_taken_for_a_distributed_one() -> None:
    environ = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    ranks.announce(environ)
    assert "RANK" not in environ


# ---- values -------------------------------------------------------------------------------------


def test_plain_values_are_pickled_by_the_standard_library() -> None:
    assert pickle.loads(rundir.joined(dumps([1, {"a": (2.5, None)}]))) == [1, {"a": (2.5, None)}]
    assert b"cloudpickle" not in dumps([1, 2])


def test_what_pickle_cannot_do_is_left_to_cloudpickle() -> None:
    function = pickle.loads(rundir.joined(dumps(lambda x: x + 1)))
    assert function(1) == 2


def test_what_nobody_can_pickle_raises() -> None:
    import threading

    with pytest.raises(TypeError):
        dumps(threading.Lock())


@pytest.mark.parametrize(
    ("argument", "code"),
    [(None, 0), (0, 0), (3, 3), (256, 0), (-1, 255), (True, 1), ("text", 1), (2.5, 1)],
)
def test_the_exit_code_is_the_one_that_python_gives(argument: object, code: int) -> None:
    assert exit_code(SystemExit(argument)) == code


def test_the_clients_path_comes_behind_the_sdk_and_before_pythons_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setattr(sys, "path", ["/sdk", "/usr/lib/python"])
    extend_path({"path": ["/project", "/usr/lib/python", "/lib"]})
    assert sys.path == ["/sdk", "/project", "/lib", "/usr/lib/python"]


# ---- memory -------------------------------------------------------------------------------------

V1 = """\
9:name=systemd:/
5:devices:/slurm/uid_0/job_12/step_batch
4:memory:/slurm/uid_0/job_12/step_batch/task_0
3:cpuset:/slurm/uid_0/job_12/step_batch
1:cpu,cpuacct:/
0::/
"""
V1_MANY_SLURMDS = "4:memory:/slurm_n1/uid_1000/job_7/step_0/task_2\n"
V2 = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n"
V2_MANY_SLURMDS = "0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0\n"
# 26.05 names the folder of a job by its SLUID: made after its documentation, not recorded.
V2_SLUID = "0::/system.slice/slurmstepd.scope/sF2M0A1BJW3400/step_batch/user/task_0\n"
NO_SLURM = "4:memory:/user.slice\n0::/user.slice/user-1000.slice/session-2.scope\n"


def test_the_counters_of_control_groups_v1() -> None:
    top = "/sys/fs/cgroup/memory/slurm/uid_0/job_12"
    assert counter_files(V1) == [
        f"{top}/step_batch/task_0/memory.oom_control",
        f"{top}/step_batch/memory.oom_control",
        f"{top}/memory.oom_control",
    ]


def test_the_counters_of_one_slurmd_of_several_on_a_host() -> None:
    assert counter_files(V1_MANY_SLURMDS)[-1] == (
        "/sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.oom_control"
    )
    assert counter_files(V2_MANY_SLURMDS)[-1].endswith("scope/job_12/memory.events")


def test_the_counters_of_control_groups_v2() -> None:
    top = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12"
    assert counter_files(V2) == [
        f"{top}/step_0/user/task_0/memory.events",
        f"{top}/step_0/user/memory.events",
        f"{top}/step_0/memory.events",
        f"{top}/memory.events",
    ]


def test_the_counters_where_the_folder_is_named_by_sluid() -> None:
    files = counter_files(V2_SLUID)
    step = "/sys/fs/cgroup/system.slice/slurmstepd.scope/sF2M0A1BJW3400/step_batch"
    assert f"{step}/memory.events" in files
    # The folder that all jobs of the node share would count other people's dead.
    assert "/sys/fs/cgroup/system.slice/slurmstepd.scope/memory.events" not in files


@pytest.mark.parametrize("text", ["", NO_SLURM, "nonsense", "0::/\n", ":::\n"])
def test_without_a_control_group_of_slurm_nothing_is_counted(text: str) -> None:
    assert counter_files(text) == []


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
        ("low 0\nhigh 0\nmax 31\noom 3\noom_kill 1\noom_group_kill 0\n", 1),
        ("oom_kill_disable 0\nunder_oom 0\n", 0),
        ("oom_kill x\n", 0),
        ("", 0),
    ],
)
def test_the_kernels_count_is_read_from_both_kinds_of_file(text: str, kills: int) -> None:
    assert oom_kills(text) == kills


def test_only_kills_since_the_start_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 4\n")
    monkeypatch.setattr(memory, "counter_files", lambda text: [str(counter), "/no/such/file"])
    oom = OomCounter()
    assert oom.kills() == 0
    counter.write_text("oom_kill 6\n")
    assert oom.kills() == 2
    counter.unlink()
    assert oom.kills() == 0
