"""JobContext: what a function can ask about its own job, from the variables of the scheduler."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from slurm import JobContext


def context(run: str = "/base/run", **environ: str) -> JobContext:
    return JobContext(environ, run)


# The variables of rank 3 of a job with two nodes and two ranks on each.
RANK = {
    "SLURM_JOB_ID": "812",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NAME": "train",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_CPUS_PER_TASK": "2",
    "SLURM_CPUS_ON_NODE": "8",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "MASTER_PORT": "20812",
    "SLURM_RESTART_COUNT": "2",
}


def test_a_rank_knows_itself_and_the_others() -> None:
    ctx = context(**RANK)
    assert (ctx.job_id, ctx.step_id, ctx.job_name) == ("812", "0", "train")
    assert (ctx.rank, ctx.local_rank, ctx.node_rank, ctx.world_size) == (3, 1, 1, 4)
    assert (ctx.nodes, ctx.hostnames, ctx.master_addr) == (2, ["n1", "n2"], "n1")
    assert (ctx.master_port, ctx.cpus, ctx.gpus) == (20812, 2, ["0", "1"])
    assert ctx.attempt == 2
    assert repr(ctx) == "<JobContext job 812 rank 3 of 4>"


def test_outside_of_a_job_everything_has_a_plain_answer() -> None:
    ctx = context()
    assert (ctx.job_id, ctx.step_id, ctx.job_name, ctx.array_job_id) == ("0", None, "", None)
    assert (ctx.array_index, ctx.attempt, ctx.rank, ctx.local_rank) == (None, 0, 0, 0)
    assert (ctx.node_rank, ctx.world_size, ctx.nodes, ctx.cpus, ctx.gpus) == (0, 1, 1, 1, [])
    assert ctx.hostnames == [os.uname().nodename]
    assert ctx.master_addr == os.uname().nodename
    assert ctx.master_port > 0
    assert ctx.should_stop is False
    assert ctx.stop_signal is None


def test_an_element_of_an_array_knows_its_array_and_index() -> None:
    ctx = context(SLURM_JOB_ID="99", SLURM_ARRAY_JOB_ID="95", SLURM_ARRAY_TASK_ID="0")
    assert (ctx.job_id, ctx.array_job_id, ctx.array_index) == ("99", "95", 0)


def test_what_the_user_set_for_distributed_work_comes_first() -> None:
    ctx = context(**{**RANK, "RANK": "7", "WORLD_SIZE": "16", "MASTER_ADDR": "head"})
    assert (ctx.rank, ctx.world_size, ctx.master_addr) == (7, 16, "head")


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a2b,GPU-3c4d"}, ["GPU-1a2b", "GPU-3c4d"]),
        ({"SLURM_STEP_GPUS": "2"}, ["2"]),
        ({"SLURM_JOB_GPUS": "0,3"}, ["0", "3"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_GPUS": "0,3"}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
    ],
)
def test_the_gpus_are_those_that_cuda_would_see(environ: dict[str, str], gpus: list[str]) -> None:
    assert context(**environ).gpus == gpus


def test_output_and_checkpoints_have_folders_of_their_own_made_on_first_use(run: Path) -> None:
    ctx = context(str(run), SLURM_ARRAY_TASK_ID="4")
    assert not (run / "output").exists()
    assert ctx.output_dir == run / "output" / "4"
    assert ctx.checkpoint_dir == run / "checkpoint" / "4"
    assert ctx.output_dir.is_dir()
    assert ctx.checkpoint_dir.stat().st_mode & 0o777 == 0o700


def test_a_checkpoint_survives_a_requeue(run: Path) -> None:
    (context(str(run)).checkpoint_dir / "state").write_text("epoch 3")
    again = context(str(run), SLURM_RESTART_COUNT="1")
    assert (again.checkpoint_dir / "state").read_text() == "epoch 3"


def test_a_warning_sets_should_stop_and_names_its_signal() -> None:
    ctx = context()
    ctx.request_stop(signal.SIGUSR2)
    assert ctx.should_stop is True
    assert ctx.stop_signal == "SIGUSR2"


def test_the_time_left_counts_down_to_the_end_that_slurm_told() -> None:
    left = context(SLURM_JOB_END_TIME=str(int(time.time()) + 1000)).time_left()
    assert left is not None
    assert 900 < left <= 1001


def _squeue(folder: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of squeue that counts how often it is asked."""
    program = folder / "squeue"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/asked"\n{answer}\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder / "asked"


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ("echo 5:00", 300),
        ("echo 1-00:00:10", 86410),
        ("echo UNLIMITED", None),
        ("echo INVALID", None),
        ("echo", None),
        ("exit 1", None),
    ],
)
def test_an_older_slurm_is_asked_for_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, seconds: int | None
) -> None:
    asked = _squeue(tmp_path, answer, monkeypatch)
    assert context(SLURM_JOB_ID="17").time_left() == seconds
    assert "-j 17" in asked.read_text()


def test_slurm_is_asked_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _squeue(tmp_path, "echo 10:00", monkeypatch)
    ctx = context(SLURM_JOB_ID="17")
    assert [ctx.time_left() is not None for _ in range(3)] == [True] * 3
    assert len(asked.read_text().splitlines()) == 1


def test_without_slurm_nobody_can_tell_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert context().time_left() is None


def test_the_context_of_a_process_comes_from_its_environment(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_SDK_RUN", str(run))
    ctx = JobContext.from_environment()
    assert ctx.job_id == "5"
    assert ctx.output_dir.parent.parent == run
