"""srun's place within a job of the embedded scheduler: ranks, their variables, signals and ends."""

from __future__ import annotations

import pytest
from test_scheduler_bench import Bench, alive, bench

__all__ = ["bench"]


def log_of(bench: Bench, body: str, *flags: str, state: str = "COMPLETED") -> list[str]:
    job = bench.submit(body, "-o log", *flags)
    row = bench.ended(job)[0]
    lines = (bench.work / "log").read_text().splitlines()
    assert row.state == state, lines
    return lines


def test_srun_starts_one_rank_per_task_of_the_job(bench: Bench) -> None:
    lines = log_of(
        bench,
        "srun bash -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID "
        "$SLURM_STEP_ID $SLURM_STEP_NUM_TASKS'",
        "-n 3",
    )
    assert sorted(lines) == ["0/3 0 0 0 3", "1/3 1 0 0 3", "2/3 2 0 0 3"]


def test_steps_are_numbered_in_order(bench: Bench) -> None:
    assert log_of(bench, "for i in 1 2 3; do srun bash -c 'echo $SLURM_STEP_ID'; done") == [
        "0",
        "1",
        "2",
    ]


def test_several_nodes_are_this_host_several_times(bench: Bench) -> None:
    lines = log_of(
        bench,
        "echo $SLURM_NNODES $SLURM_TASKS_PER_NODE\n"
        "srun bash -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURM_STEP_NUM_NODES'\n"
        'IFS=, read -r a b <<< "$SLURM_JOB_NODELIST"; [ "$a" = "$b" ] && echo same',
        "--nodes=2 --ntasks-per-node=2",
    )
    assert lines[0] == "2 2(x2)"
    assert sorted(lines[1:5]) == ["0 0 0 2", "1 0 1 2", "2 1 0 2", "3 1 1 2"]
    assert lines[5] == "same"


def test_srun_ends_with_the_highest_exit_code(bench: Bench) -> None:
    lines = log_of(bench, "srun -n 3 bash -c 'exit $SLURM_PROCID' 2>/dev/null; echo code $?")
    assert lines == ["code 2"]


def test_a_rank_killed_by_a_signal_counts_as_128_and_the_signal(bench: Bench) -> None:
    lines = log_of(bench, "srun bash -c 'kill -9 $$'; echo code $?")
    assert lines[-1] == "code 137"
    assert "task 0: SIGKILL" in lines[0]


def test_with_kill_on_bad_exit_one_failure_ends_all_ranks(bench: Bench) -> None:
    lines = log_of(
        bench,
        "srun -n 2 --kill-on-bad-exit=1 bash -c "
        "'[ $SLURM_PROCID = 1 ] && exit 7; echo $$ > rank; sleep 600'\necho code $?",
    )
    assert lines[-1] == "code 143"
    if bench.has("rank"):
        assert not alive(int((bench.work / "rank").read_text()))


def test_signals_to_srun_reach_every_rank(bench: Bench) -> None:
    lines = log_of(
        bench,
        'srun -n 2 bash -c \'trap "echo got; exit 0" USR1; echo x > ready$SLURM_PROCID; '
        "sleep 600 & wait' &\n"
        "until [ -s ready0 ] && [ -s ready1 ]; do sleep 0.02; done\n"
        "kill -USR1 $!; wait $!; echo code $?",
    )
    assert lines == ["got", "got", "code 0"]


def test_cancel_tells_each_rank_once(bench: Bench) -> None:
    job = bench.submit(
        'srun -n 2 bash -c \'trap "echo term >> told$SLURM_PROCID; sleep 0.3; exit 0" TERM; '
        "echo x > ready$SLURM_PROCID; while :; do sleep 0.02; done'"
    )
    for rank in "01":
        bench.await_file(f"ready{rank}")
    bench.scheduler.cancel([job])
    assert bench.ended(job)[0].state == "CANCELLED"
    assert [(bench.work / f"told{rank}").read_text() for rank in "01"] == ["term\n", "term\n"]


def test_gpus_per_task_are_split_among_the_ranks(bench: Bench) -> None:
    lines = log_of(
        bench,
        "srun --gpus-per-task=2 bash -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'",
        "-n 2 --gpus-per-task=2",
    )
    assert sorted(lines) == ["0 0,1", "1 2,3"]


def test_output_patterns_give_each_rank_its_file(bench: Bench) -> None:
    log_of(bench, "srun -n 2 --output='r-%t-%2t%%.txt' bash -c 'echo $SLURM_PROCID'")
    assert (bench.work / "r-0-00%.txt").read_text() == "0\n"
    assert (bench.work / "r-1-01%.txt").read_text() == "1\n"


def test_ranks_that_share_a_file_do_not_empty_it(bench: Bench) -> None:
    log_of(bench, "echo old > shared; srun -n 3 -o shared bash -c 'echo $SLURM_PROCID'")
    assert sorted((bench.work / "shared").read_text().split()) == ["0", "1", "2"]


def test_labels_name_the_rank_of_each_line(bench: Bench) -> None:
    lines = log_of(bench, "srun -n 2 --label bash -c 'echo a; echo b'")
    assert sorted(lines) == ["0: a", "0: b", "1: a", "1: b"]


def test_export_adds_variables_for_the_step(bench: Bench) -> None:
    assert log_of(bench, "K=2 srun --export=ALL,X=1 bash -c 'echo $X $K'") == ["1 2"]


def test_an_option_that_srun_does_not_know_is_refused(bench: Bench) -> None:
    lines = log_of(bench, "srun --frobnicate true", state="FAILED")
    assert "srun: error: unrecognized option '--frobnicate'" in lines[0]


@pytest.mark.parametrize("words", ["-n 2", "nowhere-to-be-found", "-n x true", "--jobid=9 true"])
def test_a_wrong_command_line_says_what_is_wrong(bench: Bench, words: str) -> None:
    lines = log_of(bench, f"srun {words}", state="FAILED")
    assert lines[0].startswith("srun: error: ")


def test_ranks_of_an_array_element_work_alike(bench: Bench) -> None:
    job = bench.submit("srun bash -c 'echo $SLURM_ARRAY_TASK_ID $SLURM_PROCID'", "-n 2 -a 1-2")
    assert {row.state for row in bench.ended(job)} == {"COMPLETED"}
    logs = [(bench.work / f"slurm-{job}_{n}.out").read_text().split("\n") for n in (1, 2)]
    assert [sorted(log) for log in logs] == [["", "1 0", "1 1"], ["", "2 0", "2 1"]]
