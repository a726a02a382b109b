"""A job from submission to its end on the embedded scheduler: environment, logs, limits, cancel."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from test_scheduler_bench import Bench, alive, bench

from slurm.errors import CommandRefused, SubmitRefused

__all__ = ["bench"]


def test_a_job_runs_and_its_exit_code_is_known(bench: Bench) -> None:
    good, bad = bench.submit("true"), bench.submit("exit 3")
    rows = bench.ended(good, bad)
    assert [(row.state, row.exit_code, row.signal) for row in rows] == [
        ("COMPLETED", 0, None),
        ("FAILED", 3, None),
    ]
    assert rows[0].work_dir == str(bench.work)
    assert rows[0].submit is not None and rows[0].start is not None


def test_a_script_killed_by_a_signal_has_failed_with_that_signal(bench: Bench) -> None:
    (row,) = bench.ended(bench.submit("kill -9 $$"))
    assert (row.state, row.exit_code, row.signal) == ("FAILED", 0, 9)


def test_ids_nobody_gave_are_left_out_of_the_status(bench: Bench) -> None:
    job = bench.submit("true")
    assert [row.job_id for row in bench.scheduler.status([job, "99999", "99999_1"])] == [job]


def test_a_status_of_no_job_in_particular_names_all_recent_ones(bench: Bench) -> None:
    ended, held = bench.submit("true"), bench.submit("true", "--hold --array=1-2")
    bench.ended(ended)
    ids = {row.job_id for row in bench.scheduler.status([])}
    assert ids == {ended, f"{held}_1", f"{held}_2"}


def test_the_log_goes_where_output_and_error_say(bench: Bench) -> None:
    bench.ended(
        bench.submit("echo out; echo err >&2", "--job-name='a b'", "--output=%x-%j%%.out -e e-%u")
    )
    (out,) = bench.work.glob("a b-*%.out")
    assert out.read_text() == "out\n"
    (err,) = bench.work.glob("e-*")
    assert err.read_text() == "err\n"


def test_without_output_the_log_is_slurm_and_the_id(bench: Bench) -> None:
    job = bench.submit("echo one; echo two >&2")
    bench.ended(job)
    assert (bench.work / f"slurm-{job}.out").read_text() == "one\ntwo\n"


def test_a_log_that_cannot_be_opened_fails_the_job_as_slurm_does(bench: Bench) -> None:
    (row,) = bench.ended(bench.submit("true", "--output=missing/dir/log"))
    assert (row.state, row.exit_code, row.signal) == ("FAILED", 0, 53)


def test_chdir_is_where_the_script_starts_and_relative_logs_lie(bench: Bench) -> None:
    (bench.work / "sub").mkdir()
    job = bench.submit("pwd", "--chdir=sub", "-o log")
    assert bench.ended(job)[0].work_dir == str(bench.work / "sub")
    assert (bench.work / "sub" / "log").read_text() == f"{bench.work}/sub\n"


def test_the_script_is_copied_when_it_is_submitted(bench: Bench) -> None:
    job = bench.submit("echo old", "--hold", "-o log")
    for script in bench.work.glob("script-*"):
        script.write_text("#!/bin/bash\necho new\n")
    bench.scheduler.release([job])
    bench.ended(job)
    assert (bench.work / "log").read_text() == "old\n"


def test_the_script_s_first_line_names_its_interpreter(bench: Bench) -> None:
    bench.ended(bench.submit("print(6 * 7)", "-o log", first=f"#!{sys.executable} -I"))
    assert (bench.work / "log").read_text() == "42\n"


def test_a_script_without_an_interpreter_line_is_refused(bench: Bench) -> None:
    with pytest.raises(SubmitRefused, match="does not look like a batch script"):
        bench.submit("true", first="true")


def environment_of(bench: Bench, *flags: str, **env: str) -> dict[str, str]:
    dump = "import json, os; print(json.dumps(dict(os.environ)))"
    job = bench.submit(f"{sys.executable} -c '{dump}'", "-o env.json", *flags, **env)
    assert bench.ended(job)[0].state == "COMPLETED"
    found: dict[str, str] = json.loads((bench.work / "env.json").read_text())
    return found


def test_a_job_sees_slurm_s_variables(bench: Bench) -> None:
    env = environment_of(bench, "-J named -n 2 -c 2 --mem=1G -t 5 --gpus=2 --ntasks-per-node=2")
    expected = {
        "SLURM_JOB_NAME": "named",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_JOB_CPUS_PER_NODE": "4",
        "SLURM_MEM_PER_NODE": "1024",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_PARTITION": "local",
        "SLURM_CLUSTER_NAME": "embedded",
        "SLURM_SUBMIT_DIR": str(bench.work),
        "SLURM_PROCID": "0",
        "SLURM_JOB_GPUS": "0,1",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert env["SLURM_JOB_ID"] == env["SLURM_JOBID"]
    assert env["SLURM_JOB_NODELIST"] == env["SLURM_NODELIST"] == env["SLURMD_NODENAME"]
    assert int(env["SLURM_JOB_END_TIME"]) - int(env["SLURM_JOB_START_TIME"]) == 300


def test_variables_of_things_not_asked_for_are_not_set(bench: Bench) -> None:
    env = environment_of(bench, CUDA_VISIBLE_DEVICES="7")
    for name in ("NTASKS", "CPUS_PER_TASK", "MEM_PER_NODE", "RESTART_COUNT", "ARRAY_JOB_ID"):
        assert f"SLURM_{name}" not in env
    assert env["CUDA_VISIBLE_DEVICES"] == "7"


def test_variables_of_an_outer_job_do_not_leak_in(bench: Bench) -> None:
    env = environment_of(bench, SLURM_NTASKS="64", SLURM_CONF="/c", SLURM_SDK_X="y", MINE="m")
    assert "SLURM_NTASKS" not in env
    assert (env["SLURM_CONF"], env["SLURM_SDK_X"], env["MINE"]) == ("/c", "y", "m")


def test_export_names_what_passes(bench: Bench) -> None:
    env = environment_of(bench, "--export=ONE,THREE=3", ONE="1", TWO="2")
    assert (env.get("ONE"), env.get("TWO"), env.get("THREE")) == ("1", None, "3")


def test_secrets_are_readable_by_the_user_alone_and_gone_with_the_job(bench: Bench) -> None:
    job = bench.submit("cat", "--hold", WANDB_API_KEY="hush-hush")
    assert (bench.private.stat().st_mode & 0o777) == 0o700

    def holding() -> list[str]:
        found = subprocess.run(
            ["grep", "-rl", "hush-hush", str(bench.private)], capture_output=True, text=True
        )
        return found.stdout.split()

    files = holding()
    assert files and all(os.stat(name).st_mode & 0o777 == 0o600 for name in files)
    bench.scheduler.release([job])
    bench.ended(job)
    assert holding() == []


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        ("--ntasks=5", "5 CPUs, this machine has 4"),
        ("--mem=5000", "5000 MiB of memory, this machine has 4000"),
        ("--gpus-per-node=5", "5 GPUs, this machine has 4"),
    ],
)
def test_more_than_the_machine_has_is_refused(bench: Bench, flag: str, what: str) -> None:
    with pytest.raises(SubmitRefused, match=re.escape(what)) as caught:
        bench.submit("true", flag)
    assert "4 CPUs, 4000 MiB of memory and 4 GPUs" in str(caught.value)


@pytest.mark.parametrize(
    "flag",
    ["--time=soon", "--mem=much", "--array=9-1", "--dependency=before:1", "--begin=someday",
     "--signal=NOPE@3", "--dependency=afterok:424242", "--nice=x", "stray"],
)  # fmt: skip
def test_a_value_that_cannot_be_understood_is_refused(bench: Bench, flag: str) -> None:
    with pytest.raises(SubmitRefused):
        bench.submit("true", flag)
    assert bench.scheduler.queue() == []


def test_options_that_mean_nothing_here_are_accepted(bench: Bench) -> None:
    (row,) = bench.ended(bench.submit("true", "-p gpu -A lab --qos=high --mail-type=ALL"))
    assert row.state == "COMPLETED"


def test_cancel_ends_a_job_that_waits_and_one_that_runs(bench: Bench) -> None:
    waiting = bench.submit("true", "--hold")
    running = bench.submit("touch started; echo x > started; sleep 600")
    bench.await_file("started")
    bench.scheduler.cancel([waiting, running, "4711"])
    rows = bench.ended(waiting, running)
    assert [row.state for row in rows] == ["CANCELLED", "CANCELLED"]
    bench.scheduler.cancel([waiting, running])


def test_cancel_right_after_the_submission_is_not_lost(bench: Bench) -> None:
    jobs = [bench.submit("sleep 600") for _ in range(4)]
    bench.scheduler.cancel(jobs)
    assert {row.state for row in bench.ended(*jobs)} == {"CANCELLED"}


def test_cancel_kills_what_does_not_listen_and_what_left_the_session(bench: Bench) -> None:
    stubborn = "import os, signal, time; signal.signal(15, signal.SIG_IGN);"
    stubborn += "print(os.getpid(), file=open('PID', 'w')); time.sleep(600)"
    away = f'setsid env -i {sys.executable} -c "{stubborn.replace("PID", "far")}" &'
    job = bench.submit(f'({away})\n{sys.executable} -c "{stubborn.replace("PID", "near")}"')
    far, near = int(bench.await_file("far")), int(bench.await_file("near"))
    bench.scheduler.cancel([job])
    assert bench.state(job) == "COMPLETING"
    assert bench.ended(job)[0].state == "CANCELLED"
    assert not alive(near) and not alive(far)


def test_what_a_script_leaves_running_ends_with_it(bench: Bench) -> None:
    job = bench.submit("setsid nohup sleep 600 & echo $! > left")
    bench.ended(job)
    assert not alive(int((bench.work / "left").read_text()))


def test_the_time_limit_ends_a_job_with_term_first(bench: Bench) -> None:
    job = bench.submit("trap 'echo term > got; exit 9' TERM\nsleep 600 & wait", "--time=0:01")
    assert bench.ended(job)[0].state == "TIMEOUT"
    assert (bench.work / "got").read_text() == "term\n"


def test_the_time_limit_kills_what_ignores_term(bench: Bench) -> None:
    job = bench.submit("trap '' TERM\nsleep 600", "--time=0:01")
    row = bench.ended(job)[0]
    assert (row.state, row.signal) == ("TIMEOUT", 9)


def test_a_signal_comes_before_the_limit_to_the_batch_shell(bench: Bench) -> None:
    job = bench.submit(
        "trap 'echo usr2 > got; exit 0' USR2\nsleep 600 & wait",
        "--time=10:00 --signal=B:USR2@599",
    )
    assert bench.ended(job)[0].state == "COMPLETED"
    assert (bench.work / "got").read_text() == "usr2\n"


def test_a_signal_without_b_goes_to_the_steps_only(bench: Bench) -> None:
    job = bench.submit(
        "trap 'echo shell > shell' USR1\n"
        "srun bash -c 'trap \"echo step > step; exit 0\" USR1; sleep 600 & wait'",
        "--time=10:00 --signal=USR1@597",
    )
    assert bench.ended(job)[0].state == "COMPLETED"
    assert bench.has("step") and not bench.has("shell")


def test_a_signal_can_be_sent_to_a_running_job(bench: Bench) -> None:
    job = bench.submit("trap 'exit 5' USR1\necho x > ready\nwhile :; do sleep 0.05; done")
    bench.await_file("ready")
    bench.scheduler.signal([job], signal.SIGUSR1)
    assert bench.ended(job)[0].exit_code == 5


def test_a_signal_can_be_meant_for_the_steps(bench: Bench) -> None:
    job = bench.submit(
        "trap 'echo x > shell' USR1\n"
        "srun bash -c 'trap \"exit 5\" USR1; echo x > ready; while :; do sleep 0.05; done'"
    )
    bench.await_file("ready")
    bench.scheduler.signal([job], signal.SIGUSR1, steps=True)
    assert bench.ended(job)[0].exit_code == 5
    assert not bench.has("shell")


def test_hold_keeps_a_job_and_release_lets_it_go(bench: Bench) -> None:
    job = bench.submit("true", "--begin=now+1hour")
    assert bench.row(job).reason == "BeginTime"
    bench.scheduler.hold([job])
    assert (bench.state(job), bench.row(job).reason) == ("PENDING", "JobHeldUser")
    held = bench.submit("true", "-H")
    bench.scheduler.release([held])
    assert bench.ended(held)[0].state == "COMPLETED"


def test_what_cannot_be_done_to_a_job_is_refused(bench: Bench) -> None:
    ended = bench.submit("true")
    bench.ended(ended)
    scheduler = bench.scheduler
    for ask in (scheduler.hold, scheduler.release, scheduler.requeue):
        for job in (ended, "4711"):
            with pytest.raises(CommandRefused):
                ask([job])
    with pytest.raises(CommandRefused):
        scheduler.signal([ended], 10)
    with pytest.raises(CommandRefused, match="not a job id"):
        scheduler.cancel(["1; touch x"])


def test_begin_lets_a_job_wait_for_its_time(bench: Bench) -> None:
    job = bench.submit("true", "--begin=now+1")
    submitted = bench.row(job).submit
    row = bench.ended(job)[0]
    assert submitted is not None and row.start is not None
    assert row.start >= submitted + 1


def test_a_requeued_job_counts_its_restarts_and_goes_on_with_its_log(bench: Bench) -> None:
    job = bench.submit(
        'echo "attempt ${SLURM_RESTART_COUNT:-none}"\n[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n'
        "echo x > first; sleep 600",
        "--open-mode=append --requeue -o log",
    )
    bench.await_file("first")
    bench.scheduler.requeue([job])
    row = bench.ended(job)[0]
    assert (row.state, row.restarts) == ("COMPLETED", 1)
    assert (bench.work / "log").read_text() == "attempt none\nattempt 1\n"


def test_a_job_that_must_not_be_requeued_is_left_alone(bench: Bench) -> None:
    job = bench.submit("echo x > first; sleep 600", "--no-requeue")
    bench.await_file("first")
    with pytest.raises(CommandRefused, match="--no-requeue"):
        bench.scheduler.requeue([job])
    assert bench.state(job) == "RUNNING"
