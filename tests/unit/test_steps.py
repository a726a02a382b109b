"""The pilot's decisions: what fits where, what srun is told, and when a step may begin."""

from __future__ import annotations

import pytest

from slurm.allocation import make_order
from slurm.launch import ranks_per_node, torchrun_flags
from slurm.model.options import normalize
from slurm.runner.steps import (
    MET,
    NEVER,
    OPEN,
    Place,
    Room,
    Shape,
    dependency_state,
    parse_counts,
    room_of,
    srun_flags,
    step_environment,
)
from slurm.runner.torchrun import rank_variables


def test_counts_are_read_as_slurm_writes_them() -> None:
    assert parse_counts("2(x3),1") == [2, 2, 2, 1]
    assert parse_counts("4") == [4]
    assert parse_counts("") == []


def test_the_room_is_that_of_the_job() -> None:
    told = {
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
    }
    room = room_of(told)
    assert room.names == ["n1", "n2", "n3"]
    assert str(room) == "3 node(s) with 4, 4, 2 CPU(s)"


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        (Shape(None, 1, 1), Place((0,), 1)),
        (Shape(None, 1, 4), Place((1,), 4)),
        (Shape(None, 6, 1), Place((1, 2), 3)),
        (Shape(2, 2, 3), Place((1, 2), 3)),
        (Shape(3, 3, 1), Place((0, 1, 2), 1)),
        (Shape(3, 2, 1), None),
        (Shape(None, 1, 5), None),
        (Shape(4, 4, 1), None),
    ],
)
def test_a_step_gets_the_first_nodes_that_hold_it(shape: Shape, place: Place | None) -> None:
    assert Room(["n1", "n2", "n3"], [2, 4, 4]).find(shape) == place


def test_what_is_taken_is_free_again_when_it_is_given_back() -> None:
    room = Room(["n1", "n2"], [2, 2])
    place = room.find(Shape(2, 4, 1))
    assert place is not None
    room.take(place)
    assert room.find(Shape(None, 1, 1)) is None
    assert room.could_ever_hold(Shape(None, 1, 1))
    room.give_back(place)
    assert room.find(Shape(None, 1, 2)) == Place((0,), 2)


def test_nodes_that_share_a_name_are_not_named_to_srun() -> None:
    assert Room(["here", "here"], [1, 1]).named(Place((0, 1), 1)) == []
    assert Room(["n1", "n2"], [1, 1]).named(Place((1,), 1)) == ["n2"]


def test_srun_is_told_exactly_what_the_step_gets() -> None:
    order = {"tasks": 4, "cpus": 2, "flags": ["--mem=0"]}
    assert srun_flags(order, Place((0, 1), 4), ["n1", "n2"], inside=False) == [
        "--exact", "--nodes=2", "--ntasks=4", "--cpus-per-task=2", "--nodelist=n1,n2", "--mem=0",
    ]  # fmt: skip
    assert "--overlap" in srun_flags(order, Place((0, 1), 4), [], inside=True)


def test_a_step_does_not_inherit_what_would_change_its_srun() -> None:
    told = {
        "PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_MEM_PER_CPU": "100",
        "SLURM_CPUS_PER_TASK": "4", "OMP_NUM_THREADS": "4", "MASTER_PORT": "1",
    }  # fmt: skip
    assert step_environment(told, 3, 2, ["--exact"], None) == {
        "PATH": "/bin",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ORDER": "3",
        "SLURM_STEP_FLAGS": "--exact",
        "SLURM_CPUS_PER_TASK": "2",
    }
    told["OMP_NUM_THREADS"] = "16"
    assert step_environment(told, 3, 2, [], 5)["OMP_NUM_THREADS"] == "16", "the user's own"
    assert step_environment(told, 3, 2, [], 5)["SLURM_ARRAY_TASK_ID"] == "5"


@pytest.mark.parametrize(
    ("text", "states", "state"),
    [
        (None, {}, MET),
        ("afterok:7.1", {}, OPEN),
        ("afterok:7.1", {"1": "RUNNING"}, OPEN),
        ("afterok:7.1", {"1": "COMPLETED"}, MET),
        ("afterok:7.1", {"1": "FAILED"}, NEVER),
        ("afterok:7.1:7.2", {"1": "COMPLETED"}, OPEN),
        ("afterok:7.1:7.2", {"1": "COMPLETED", "2": "CANCELLED"}, NEVER),
        ("afterok:7.1_3", {"1": "RUNNING", "1_3": "COMPLETED"}, MET),
        ("afterany:7.1", {"1": "TIMEOUT"}, MET),
        ("afternotok:7.1", {"1": "TIMEOUT"}, MET),
        ("afternotok:7.1", {"1": "COMPLETED"}, NEVER),
        ("after:7.1", {"1": "RUNNING"}, MET),
        ("after:7.1+5", {}, OPEN),
        ("afterok:7.1,afterany:7.2", {"1": "COMPLETED", "2": "FAILED"}, MET),
        ("aftercorr:7.1", {"1": "RUNNING", "1_2": "COMPLETED"}, MET),
        ("singleton", {}, MET),
    ],
)
def test_a_step_begins_when_its_condition_is_met(
    text: str | None, states: dict[str, str], state: str
) -> None:
    assert dependency_state(text, states, element=2) == state


def order(**options: object) -> dict[str, object]:
    plain = normalize(options, where="test")
    return make_order({"task": "train", "options": plain}, "#SBATCH --array=0-9%3\n")


def test_an_order_says_what_the_options_of_the_task_say() -> None:
    made = order(nodes=2, ntasks_per_node=3, cpus_per_task=2, gpus_per_task="a100:1", time="5min")
    assert (made["nodes"], made["tasks"], made["cpus"]) == (2, 6, 2)
    assert made["flags"] == ["--ntasks-per-node=3", "--gpus-per-task=a100:1", "--mem=0"]
    assert (made["time"], made["count"], made["throttle"]) == (300, 10, 3)


def test_a_step_with_its_own_memory_does_not_share_that_of_the_allocation() -> None:
    assert order(mem="2GiB")["flags"] == ["--mem=2048M"]


def test_torchrun_is_one_process_per_node_with_the_cpus_of_its_ranks() -> None:
    made = order(nodes=2, ntasks_per_node=4, cpus_per_task=2, launch="torchrun")
    assert (made["nodes"], made["tasks"], made["cpus"]) == (2, 2, 8)
    assert torchrun_flags(normalize({"nodes": 2, "ntasks_per_node": 4}, where="test")) == [
        '--nodes="$SLURM_JOB_NUM_NODES"',
        '--ntasks="$SLURM_JOB_NUM_NODES"',
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
    ]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"ntasks_per_node": 3}, 3),
        ({"nodes": 2, "ntasks": 8}, 4),
        ({"nodes": 2, "gpus_per_node": 4}, 4),
        ({"gpus": "a100:2"}, 2),
    ],
)
def test_the_ranks_of_a_node_follow_tasks_then_gpus(options: dict[str, object], count: int) -> None:
    assert ranks_per_node(normalize(options, where="test")) == count


def test_ranks_started_without_torch_are_told_what_torchrun_would_tell() -> None:
    told = {"SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_JOB_ID": "9"}
    found = rank_variables(told, 1, 3)
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == ("4", "1", "6")
