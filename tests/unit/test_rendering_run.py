"""The rendered script under the real bash, with small programs in the place of Python."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.model.options import normalize
from slurm.rendering import Environment, Submission, render_job_script
from slurm.rundir import Event
from waiting import until

#: Far above any time of its own; only against hanging.
LIMIT = 60


@dataclass
class Script:
    """One job script in a run directory, and the program that it starts as Python."""

    run: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def start(self, program: str, **options: Any) -> subprocess.Popen[str]:
        python = self.run.parent / "python"
        first = "" if program.startswith("#!") else "#!/bin/bash\n"
        python.write_text(first + program + "\n")
        python.chmod(0o700)
        job = Submission(
            run=str(self.run),
            base=str(self.run.parent),
            name="add",
            sdk="/sdk",
            workdir=str(options.pop("workdir", self.run.parent)),
            environment=Environment(python=str(options.pop("python", python))),
            options=normalize(options, where="test"),
        )
        script = self.run / rundir.SCRIPT
        script.write_text(render_job_script(job))
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "RUN": str(self.run), **self.env}
        process = subprocess.Popen(
            ["bash", str(script)],
            env=env,
            cwd=self.run,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def finish(self, program: str, **options: Any) -> tuple[int, str]:
        process = self.start(program, **options)
        _, errors = process.communicate(timeout=LIMIT)
        return process.returncode, errors

    def events(self) -> list[Event]:
        files = list((self.run / rundir.EVENTS).iterdir())
        return [e for f in files for e in rundir.decode_events(f.read_bytes())[0]]

    def exit(self) -> dict[str, str]:
        (event,) = [e for e in self.events() if e.kind == "exit"]
        return event.fields

    def until(self, name: str) -> None:
        """Wait until a program of the job has made this file in the run directory."""
        deadline = time.monotonic() + LIMIT
        while not (self.run / name).exists():
            assert time.monotonic() < deadline, f"{name} never came"
            time.sleep(0.005)

    def ran(self) -> bool:
        return (self.run / "ran").exists()


@pytest.fixture
def script(run: Path) -> Iterator[Script]:
    made = Script(run)
    yield made
    for process in made.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


RAN = 'touch "$RUN/ran"'

# ---- the end of a job ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 5, 74, 255])
def test_the_exit_code_of_the_run_is_that_of_the_script(script: Script, code: int) -> None:
    assert script.finish(f"exit {code}")[0] == code
    found = script.exit()
    assert (found["code"], found["phase"], found["signal"]) == (str(code), "run", "0")
    assert (found["job"], found["index"], found["attempt"]) == ("7", "0", "0")


def test_a_run_killed_by_the_kernel_is_recorded_though_python_cannot(script: Script) -> None:
    assert script.finish("kill -9 $$")[0] == 137
    assert script.exit()["code"] == "137"


def test_a_python_that_is_not_there_is_recorded(script: Script) -> None:
    assert script.finish("", python="/no/such/python")[0] == 127
    assert script.exit()["code"] == "127"


def test_the_end_is_also_one_line_for_the_whole_base(script: Script) -> None:
    script.finish("exit 3")
    (file,) = (script.run.parent / rundir.BASE_EVENTS).iterdir()
    (event,), _ = rundir.decode_events(file.read_bytes())
    assert event.kind == "exit"
    assert event.fields["run"] == script.run.name
    assert event.fields["code"] == "3"


def test_a_begin_event_names_the_node(script: Script) -> None:
    script.env = {"SLURMD_NODENAME": "n4"}
    script.finish("exit 0")
    begin = script.events()[0]
    assert (begin.kind, begin.job, begin.fields["node"]) == ("begin", "7", "n4")


def test_bash_and_python_agree_on_the_name_of_the_host(script: Script) -> None:
    script.finish("exit 0")
    assert [f.name for f in (script.run / rundir.EVENTS).iterdir()] == [
        rundir.host_token() + ".txt"
    ]


def test_a_host_name_that_the_client_exported_is_not_the_nodes(script: Script) -> None:
    script.env = {"HOSTNAME": "login1"}
    script.finish("exit 0")
    assert [f.name for f in (script.run / rundir.EVENTS).iterdir()] == [
        rundir.host_token() + ".txt"
    ]


def test_files_of_the_script_are_closed_to_others(script: Script) -> None:
    script.finish("exit 0")
    made = [*(script.run / rundir.EVENTS).iterdir()]
    made += (script.run.parent / rundir.BASE_EVENTS).iterdir()
    assert {f.stat().st_mode & 0o777 for f in made} == {0o600}


def test_an_event_that_cannot_be_written_changes_no_exit_code(script: Script) -> None:
    """/dev/full answers every write as a full disk does."""
    (script.run / rundir.EVENTS / (rundir.host_token() + ".txt")).symlink_to("/dev/full")
    assert script.finish("exit 0")[0] == 0
    assert len(list((script.run.parent / rundir.BASE_EVENTS).iterdir())) == 1


# ---- signals ------------------------------------------------------------------------------------


def test_term_reaches_the_run_at_once_and_is_recorded(script: Script) -> None:
    process = script.start('touch "$RUN/ready"; exec sleep 60')
    script.until("ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    found = script.exit()
    assert (found["phase"], found["code"], found["signal"]) == ("run", "143", "TERM")


HANDLES_TERM = f"""#!{sys.executable} -IS
import os, signal, sys, time
def stop(number, frame):
    time.sleep(0.3)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
open(os.environ["RUN"] + "/ready", "w")
time.sleep(60)
"""


def test_a_run_that_ends_well_after_term_is_awaited_and_never_a_success(script: Script) -> None:
    process = script.start(HANDLES_TERM)
    script.until("ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    found = script.exit()
    assert (found["phase"], found["code"], found["signal"]) == ("run", "0", "TERM")


def test_two_terms_do_not_end_the_waiting(script: Script) -> None:
    process = script.start(HANDLES_TERM)
    script.until("ready")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    assert script.exit()["code"] == "0"


def test_term_to_the_whole_job_in_its_setup_is_recorded(script: Script) -> None:
    # One program, so that the signal does not come between two of them.
    process = script.start(RAN, setup=["sh -c 'touch \"$RUN/ready\"; exec sleep 60'"])
    script.until("ready")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    found = script.exit()
    assert (found["phase"], found["signal"]) == ("setup", "TERM")
    assert found["code"] == "143"
    assert not script.ran()


def test_term_while_the_setup_waits_is_recorded(script: Script) -> None:
    process = script.start(RAN, setup=['touch "$RUN/ready"', "sleep 60 & wait"])
    script.until("ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    assert script.exit()["phase"] == "setup"


def test_term_in_the_teardown_is_recorded_and_never_a_success(script: Script) -> None:
    process = script.start("exit 0", teardown=['touch "$RUN/ready"', "sleep 60 & wait"])
    script.until("ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    found = script.exit()
    assert (found["phase"], found["code"], found["signal"]) == ("teardown", "0", "TERM")


TAKES_WARNING = f"""#!{sys.executable} -IS
import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
open(os.environ["RUN"] + "/ready", "w")
for _ in range(6000):
    if got:
        sys.exit(0)
    time.sleep(0.01)
sys.exit(9)
"""


def test_the_warning_reaches_the_run_and_is_no_end(script: Script) -> None:
    process = script.start(TAKES_WARNING)
    script.until("ready")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(LIMIT) == 0
    assert script.exit()["signal"] == "0"


def test_a_warning_before_python_has_its_handler_kills_nothing(script: Script) -> None:
    process = script.start('touch "$RUN/ready"; sleep 0.3; exit 4')
    script.until("ready")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(LIMIT) == 4


def test_a_warning_in_the_setup_ends_nothing(script: Script) -> None:
    process = script.start(RAN, setup=['touch "$RUN/ready"', "sleep 0.3"])
    script.until("ready")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(LIMIT) == 0
    assert script.ran()


# ---- setup and teardown -------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "code"), [("false", 1), ("(exit 7)", 7), ("exit 3", 3)])
def test_a_failed_setup_line_ends_the_job_before_the_run(
    script: Script, line: str, code: int
) -> None:
    status, _ = script.finish(RAN, setup=["true", line])
    assert status == code
    found = script.exit()
    assert (found["phase"], found["code"]) == ("setup", str(code))
    assert not script.ran()


def test_a_failed_setup_line_is_named_in_the_log(script: Script) -> None:
    _, errors = script.finish(RAN, setup=["true", "false"])
    assert "setup line 2 failed with exit code 1" in errors


@pytest.mark.parametrize(
    "line", ["set -e; false", "set -u; echo $no_such_name", "set -eu; (exit 1)"]
)
def test_a_strict_shell_that_ends_itself_in_the_setup_is_recorded(
    script: Script, line: str
) -> None:
    status, _ = script.finish(RAN, setup=[line])
    assert status != 0
    assert script.exit()["phase"] == "setup"
    assert script.exit()["code"] == str(status)
    assert not script.ran()


@pytest.mark.parametrize(
    "line",
    [
        "set -e",
        "set -eu",
        "set -euo pipefail",
        "trap 'echo mine' EXIT",
        "trap 'echo mine' TERM EXIT INT",
        "trap '' TERM",
        "shopt -s nullglob; set -f",
        "IFS=,",
        "umask 0",
        "cd /",
        "unset HOSTNAME",
    ],
)
@pytest.mark.parametrize("code", [0, 6])
def test_what_the_setup_does_to_its_shell_does_not_break_the_script(
    script: Script, line: str, code: int
) -> None:
    status, _ = script.finish(f"exit {code}", setup=[line])
    assert status == code
    assert script.exit()["code"] == str(code)


def is_pending(pid: int, number: int) -> bool:
    """Whether a process has not taken a signal that it was sent."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [line.split()[1] for line in status.splitlines() if line[:7] in ("SigPnd:", "ShdPnd:")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("line", ["set -eu", "trap 'echo mine' TERM", "trap '' TERM"])
def test_term_is_recorded_whatever_the_setup_did(script: Script, line: str) -> None:
    process = script.start('touch "$RUN/ready"; exec sleep 60', setup=[line])
    script.until("ready")
    process.send_signal(signal.SIGTERM)
    until("bash takes it", lambda: not is_pending(process.pid, signal.SIGTERM))
    # A signal that was ignored when the run was forked stays ignored there.
    if line == "trap '' TERM":
        os.killpg(process.pid, signal.SIGINT)
    process.wait(LIMIT)
    assert process.returncode != 0
    assert script.exit()["signal"] in ("TERM", "INT")


def test_what_the_setup_exports_reaches_the_run(script: Script) -> None:
    assert script.finish('[ "$COLOUR" = "deep blue" ]', setup=["export COLOUR='deep blue'"])[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("if true; then\n  export A=1\nfi", id="if"),
        pytest.param("for x in 1 2; do\n  export A=1\ndone", id="for"),
        pytest.param("export A=\\\n1", id="continued"),
        pytest.param("read -r A <<END\n1\nEND\nexport A", id="here-document"),
        pytest.param("case x in\n  x) export A=1 ;;\nesac", id="case"),
        pytest.param("f() {\n  export A=1\n}\nf", id="function"),
    ],
)
def test_a_setup_of_several_lines_is_one_piece_of_shell(script: Script, text: str) -> None:
    status, errors = script.finish('[ "$A" = 1 ]', setup=text)
    assert (status, errors) == (0, "")


@pytest.mark.parametrize(
    "teardown", ["false", "exit 9", "kill -9 $(exec bash -c 'echo $$')", "set -e; false"]
)
@pytest.mark.parametrize("code", [0, 4])
def test_the_status_of_the_teardown_never_counts(script: Script, teardown: str, code: int) -> None:
    assert script.finish(f"exit {code}", teardown=teardown)[0] == code
    assert script.exit()["code"] == str(code)


@pytest.mark.parametrize("setup", ["true", "set -e", "set -euo pipefail"])
def test_the_teardown_runs_after_a_failed_run(script: Script, setup: str) -> None:
    assert script.finish("exit 4", setup=setup, teardown='touch "$RUN/torn down"')[0] == 4
    assert (script.run / "torn down").exists()


def test_a_working_directory_that_is_not_there_is_named(script: Script) -> None:
    status, errors = script.finish(RAN, workdir="/no/such/place")
    assert status != 0
    assert "cd to the working directory failed" in errors
    assert script.exit()["phase"] == "setup"


def test_a_virtual_environment_with_a_space_in_its_path_is_activated(script: Script) -> None:
    venv = script.run / "my venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text("export VIRTUAL_ENV='it is active'\n")
    assert script.finish('[ "$VIRTUAL_ENV" = "it is active" ]', venv=str(venv))[0] == 0


def test_a_virtual_environment_that_is_not_there_ends_the_setup(script: Script) -> None:
    status, _ = script.finish(RAN, venv="/no/such/venv")
    assert status != 0
    assert not script.ran()


def test_modules_are_loaded_in_order_and_a_missing_one_is_named(script: Script) -> None:
    script.env = {
        "BASH_FUNC_module%%": '() { echo "$@" >> "$RUN/modules"; [ "$2" != missing/1 ]; }'
    }
    status, errors = script.finish(RAN, modules=["gcc/12", "missing/1", "later/1"])
    assert status == 1
    assert (script.run / "modules").read_text() == "load gcc/12\nload missing/1\n"
    assert "module load missing/1 failed" in errors


def test_python_is_unbuffered_and_threads_follow_the_cpus(script: Script) -> None:
    script.env = {"SLURM_CPUS_PER_TASK": "6"}
    assert script.finish('[ "$PYTHONUNBUFFERED$OMP_NUM_THREADS" = 16 ]')[0] == 0


def test_a_number_of_threads_that_the_user_set_stays(script: Script) -> None:
    script.env = {"SLURM_CPUS_PER_TASK": "6"}
    assert script.finish('[ "$OMP_NUM_THREADS" = 2 ]', env={"OMP_NUM_THREADS": "2"})[0] == 0


# ---- the claim ----------------------------------------------------------------------------------


def test_a_run_that_another_job_claimed_is_left_alone(script: Script) -> None:
    (script.run / rundir.claim_name(0)).symlink_to("6")
    status, errors = script.finish(RAN, setup='touch "$RUN/setup"')
    assert status == 0
    assert "belongs to job 6; job 7 ends without running" in errors
    assert not script.ran()
    assert not (script.run / "setup").exists()
    assert script.events() == []


def test_the_job_that_claimed_the_run_goes_on_after_a_requeue(script: Script) -> None:
    (script.run / rundir.claim_name(0)).symlink_to("7")
    script.env = {"SLURM_RESTART_COUNT": "2"}
    status, errors = script.finish(RAN)
    assert status == 0
    assert script.ran()
    assert script.exit()["attempt"] == "2"
    assert "attempt 2 of job 7" in errors


def test_the_first_act_claims_the_run(script: Script) -> None:
    script.finish("exit 0")
    assert os.readlink(script.run / rundir.claim_name(0)) == "7"


def test_an_element_of_an_array_claims_for_its_array(script: Script) -> None:
    script.env = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}
    script.finish("exit 0")
    assert os.readlink(script.run / rundir.claim_name(0)) == "5"
    assert (script.exit()["job"], script.exit()["index"]) == ("5", "3")


def test_a_run_directory_that_cannot_be_written_ends_the_job_with_74(script: Script) -> None:
    (script.run / rundir.claim_name(0)).write_text("no link can be made here")
    status, errors = script.finish(RAN)
    assert status == rundir.EXIT_NOT_WRITTEN
    assert "cannot be written" in errors
    assert not script.ran()


def test_an_empty_directory_in_the_place_of_the_run_ends_the_job_with_72(script: Script) -> None:
    shutil.rmtree(script.run / rundir.SUBMIT)
    status, errors = script.finish(RAN)
    assert status == rundir.EXIT_NOT_VISIBLE
    assert "does not see the files" in errors
    assert not script.ran()


# ---- ranks --------------------------------------------------------------------------------------


def test_ranks_start_through_srun_with_a_place_to_meet(script: Script, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    srun = tools / "srun"
    srun.write_text(
        '#!/bin/bash\nprintf "%s\\n" "$@" > "$RUN/srun"\n'
        'echo "$MASTER_ADDR:$MASTER_PORT" > "$RUN/master"\nexit 3\n'
    )
    srun.chmod(0o700)
    script.env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    assert script.finish(RAN, ntasks=2, cpus_per_task=4)[0] == 3
    words = (script.run / "srun").read_text().splitlines()
    assert words[:3] == ["--kill-on-bad-exit=1", "--label", "--cpus-per-task=4"]
    assert words[-1] == str(script.run)
    host, _, port = (script.run / "master").read_text().strip().partition(":")
    assert host
    assert 1024 < int(port) < 65536


# ---- elements of arrays -------------------------------------------------------------------------


def _element(script: Script, index: int, program: str = RAN, **env: str) -> tuple[int, str]:
    (script.run / "ran").unlink(missing_ok=True)
    given = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(index)}
    script.env = {**given, **env}
    return script.finish(program)


def test_an_element_that_a_forgetful_controller_starts_again_does_not_run_again(
    script: Script,
) -> None:
    (script.run / rundir.begun_name(0)).write_bytes(rundir.none_begun(300))
    for index in (0, 7, 299):
        assert _element(script, index, f"{RAN}; exit 3")[0] == 3
        assert script.ran()
        code, said = _element(script, index)
        assert (code, script.ran()) == (3, False), said
        assert "is not run again" in said
    assert _element(script, 8)[0] == 0
    assert script.ran()
    exits = [e.number("index") for e in script.events() if e.kind == "exit"]
    assert exits == [0, 7, 299, 8]
    marks = (script.run / rundir.begun_name(0)).read_text()
    assert (len(marks), marks.count("x")) == (300, 4)


def test_an_element_that_was_requeued_runs_again(script: Script) -> None:
    (script.run / rundir.begun_name(0)).write_bytes(rundir.none_begun(3))
    assert _element(script, 2)[0] == 0
    assert _element(script, 2, SLURM_RESTART_COUNT="1")[0] == 0
    assert script.ran()
