"""Rendering is pure: the scripts are compared as text, and odd text goes through bash unchanged."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurm.errors import OptionError
from slurm.model.options import normalize
from slurm.prelude import PRELUDE
from slurm.rendering import (
    Environment,
    Submission,
    directive,
    render_job_script,
    shell_quote,
    warning_seconds,
    warning_signal,
)

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "UPDATE_GOLDEN"


def submission(*, dependency: str | None = None, **options: object) -> Submission:
    base = "/home/ada/slurm_jobs"
    return Submission(
        run=f"{base}/train-20260101-120000-abc123",
        base=base,
        name="train",
        sdk=f"{base}/.sdk/0123456789",
        workdir="/home/ada/project",
        environment=Environment(python="/usr/bin/python3.11", kind="none"),
        options=normalize(options, where="test"),
        dependency=dependency,
    )


def changed(job: Submission, **fields: Any) -> Submission:
    return dataclasses.replace(job, **fields)


SUBMISSIONS = {
    "plain": submission(),
    "resources": submission(
        time="2h",
        mem="8GiB",
        cpus_per_task=4,
        gpus="a100:2",
        partition=["gpu", "long"],
        account="lab",
        qos="high",
        constraint="a100|h100",
        exclusive=True,
        nice=100,
        licenses="matlab:2",
        mail_type="END",
        mail_user="ada@example.org",
        comment="it's $(mine)",
        begin="now+2hours",
        signal="USR1@120",
        requeue=True,
        output="logs/%j.txt",
    ),
    "ranks": submission(nodes=2, ntasks_per_node=4, cpus_per_task=2, time=5),
    "setup_and_teardown": submission(
        modules=["gcc/12", "cuda/12.4"],
        venv="/home/ada/my venv",
        setup=["ulimit -c 0", "source env.sh"],
        teardown="rm -rf /tmp/scratch",
    ),
    "conda": submission(conda="torch"),
    "dependency": submission(dependency="afterok:17:18"),
    "dependency_of_both": changed(
        submission(dependency="afterok:17"),
        options=normalize({"dependency": "singleton"}, where="test"),
    ),
    "step": replace(submission(ntasks=2), step=True),
    "torchrun": submission(nodes=2, ntasks_per_node=4, cpus_per_task=2, launch="torchrun"),
    "once": submission(nodes=4, launch="once"),
    "odd_environment": submission(
        env={"QUOTES": 'it\'s "so"', "CODE": "$(rm -rf ~) `id` ${HOME}", "LINES": "a\nb", "NO": ""}
    ),
}


def _shown(script: str) -> str:
    """The script with the part that is the same in all of them left out."""
    assert PRELUDE in script
    return script.replace(PRELUDE, "# ---- prelude.sh stands here ----")


def _compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.write_text(text)
    assert text == path.read_text(), f"run the tests with {UPDATE}=1 where the change is meant"


@pytest.mark.parametrize("name", sorted(SUBMISSIONS))
def test_the_script_is_the_recorded_one(name: str) -> None:
    _compare(f"{name}.sh", _shown(render_job_script(SUBMISSIONS[name])))


def test_the_part_that_all_scripts_share_is_the_recorded_one() -> None:
    _compare("prelude.sh", PRELUDE + "\n")


def test_no_recorded_script_is_left_over() -> None:
    expected = {f"{name}.sh" for name in SUBMISSIONS} | {"prelude.sh"}
    assert {path.name for path in GOLDEN.iterdir()} == expected


@pytest.mark.parametrize("name", sorted(SUBMISSIONS))
def test_bash_can_read_every_recorded_script(name: str) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=render_job_script(SUBMISSIONS[name]).encode(), timeout=60
    )
    assert done.returncode == 0


def test_equal_submissions_give_the_same_text() -> None:
    assert render_job_script(submission(time="1h")) == render_job_script(submission(time=60))


@pytest.mark.parametrize("name", sorted(SUBMISSIONS))
def test_directives_stand_before_the_first_command(name: str) -> None:
    """sbatch stops reading them there."""
    lines = render_job_script(SUBMISSIONS[name]).splitlines()
    assert lines[0] == "#!/bin/bash"
    body = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(not line.startswith("#SBATCH") for line in lines[body:])
    assert [line for line in lines[:body] if line.startswith("#SBATCH --chdir=")]


# What bash 3.2, the shell of macOS, does not have.
NEWER_BASH = {
    r"\b(declare|local|typeset)\s+-[a-zA-Z]*[An]": "associative arrays and references",
    r"\$\{\w+(\^|,)": "${x^^} and ${x,,}",
    r"\$\{\w+@": "${x@Q}",
    r"\b(mapfile|readarray|coproc)\b": "mapfile and coproc",
    r"&>>": "&>>",
    r"\|&": "|&",
    r";;?&": ";& and ;;&",
    r"\bwait\s+-n": "wait -n",
    r"-v\s+\w+\s*\]": "[ -v x ]",
    r"\b(EPOCHSECONDS|EPOCHREALTIME|BASHPID|SRANDOM)\b": "newer variables",
    r"\bread\b[^\n]* -[a-z]*[Nit]\b": "read -N, -i and fractions of -t",
}


@pytest.mark.parametrize("name", sorted(SUBMISSIONS))
def test_scripts_keep_to_what_bash_3_2_has(name: str) -> None:
    script = render_job_script(SUBMISSIONS[name])
    assert [what for pattern, what in NEWER_BASH.items() if re.search(pattern, script)] == []
    for line in script.splitlines():
        if re.search(r"printf[^\n]*%\([^)]*\)T", line):
            assert "|| " in line, "the time format of printf came with bash 4.2: it needs a way out"


# ---- single rules -------------------------------------------------------------------------------


def _flags(job: Submission) -> dict[str, str | None]:
    lines = [x for x in render_job_script(job).splitlines() if x.startswith("#SBATCH --")]
    parts = [x[len("#SBATCH --") :].partition("=") for x in lines]
    assert len({name for name, *_ in parts}) == len(parts), "a flag stands twice"
    return {name: value if equals else None for name, equals, value in parts}


def test_a_job_is_not_requeued_unless_somebody_asks() -> None:
    assert "no-requeue" in _flags(submission())
    assert "no-requeue" in _flags(submission(requeue=False))
    asked = _flags(submission(requeue=True))
    assert "requeue" in asked
    assert "no-requeue" not in asked


def test_logs_are_appended_to_and_lie_in_the_run() -> None:
    flags = _flags(submission())
    assert (flags["open-mode"], flags["output"], flags["error"]) == (
        "append",
        "logs/%j.out",
        "logs/%j.err",
    )


def test_a_percent_sign_in_the_path_of_the_run_is_no_pattern_of_slurm() -> None:
    job = submission()
    odd = changed(job, base="/b/100%j", run="/b/100%j/r")
    flags = _flags(odd)
    assert flags["output"] == "/b/100%%j/r/logs/%j.out"


def test_our_dependency_joins_the_users_own() -> None:
    flags = _flags(SUBMISSIONS["dependency_of_both"])
    assert flags["dependency"] == "singleton,afterok:17"
    assert flags["kill-on-invalid-dep"] == "yes"


@pytest.mark.parametrize(
    ("options", "seconds"), [({}, 60), ({"time": 60}, 6), ({"time": 5}, 1), ({"time": 86400}, 60)]
)
def test_the_warning_comes_in_proportion_to_the_limit(
    options: dict[str, object], seconds: int
) -> None:
    assert warning_seconds(options) == seconds


@pytest.mark.parametrize(
    ("given_", "name", "flag"),
    [
        ("USR1@120", "USR1", "B:USR1@120"),
        ("B:TERM@60", "TERM", "B:TERM@60"),
        ("10@60", "USR1", "B:10@60"),
        ("R:USR2@9", "USR2", "B:USR2@9"),
    ],
)
def test_the_users_own_warning_goes_to_the_script(given_: str, name: str, flag: str) -> None:
    job = changed(submission(), options={"signal": given_})
    assert warning_signal(job.options) == name
    assert _flags(job)["signal"] == flag


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({}, False),
        ({"ntasks": 1}, False),
        ({"nodes": 1}, False),
        ({"ntasks": 2}, True),
        ({"nodes": 2}, True),
        ({"nodes": "1-4"}, True),
        ({"ntasks_per_node": 2}, True),
        ({"cpus_per_task": 8}, False),
        ({"srun_args": ["--cpu-bind=none"]}, True),
    ],
)
def test_srun_starts_ranks_where_there_is_more_than_one(
    options: dict[str, Any], ranks: bool
) -> None:
    script = render_job_script(submission(**options))
    assert ("exec srun --kill-on-bad-exit=1" in script) is ranks


# ---- quoting ------------------------------------------------------------------------------------

_text = st.text(
    st.one_of(
        st.sampled_from(list("$`\"'\\!*?[]{}()<>|&;# \t~%=-\n\u00e9\U0001f600")),
        st.characters(codec="utf-8", exclude_characters="\0"),
    ),
    max_size=25,
)
_line = _text.map(lambda t: re.sub(r"[\n\r]", "", t))
# One part of a path, at most 255 bytes.
_part = _line.map(lambda t: t.replace("/", "") or "x").filter(lambda t: t not in (".", ".."))


@given(_text)
def test_a_quoted_word_is_one_word_for_bash(text: str) -> None:
    command = f"printf '%s\\0' {shell_quote(text)}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert done.stdout == text.encode() + b"\0"


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\n", "a\0b"])
def test_a_line_break_cannot_end_a_directive(text: str) -> None:
    with pytest.raises(OptionError, match=r"comment=.* contains a line break"):
        directive("comment", text)


@given(_line)
def test_a_directive_is_one_line_that_begins_with_its_flag(text: str) -> None:
    line = directive("comment", text)
    assert line.startswith("#SBATCH --comment=")
    assert "\n" not in line
    assert _as_sbatch_reads(line.removeprefix("#SBATCH --comment=")) == text


def _as_sbatch_reads(value: str) -> str:
    """sbatch: an argument ends at white space; inside double quotes a backslash takes the next."""
    if not value.startswith('"'):
        assert not re.search(r"[\s\"'\\#]", value)
        return value
    assert value.endswith('"')
    assert re.fullmatch(r'(?:[^"\\]|\\.)*', value[1:-1], re.DOTALL)
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)


@pytest.mark.parametrize("field", ["name", "run"])
def test_a_line_break_in_a_name_or_the_run_is_refused(field: str) -> None:
    job = changed(submission(), base="/b", run="/b/r")
    with pytest.raises(OptionError, match="line break"):
        render_job_script(changed(job, **{field: "/b/a\nb"}))


def test_a_nul_byte_is_refused() -> None:
    with pytest.raises(OptionError, match="NUL"):
        shell_quote("a\0b")


_SEEN = """#!/bin/bash
printf '%s\\0' "$@" "$PWD" "$SLURM_SDK_RUN" "$SLURM_SDK_NAME" "$SLURM_SDK_BASE" "$VALUE" > "$SEEN"
"""


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_part, _part, _part, _part, _text)
@example(*["$(touch canary)"] * 5)
@example(*["`touch canary`"] * 5)
@example(*["'; touch canary; '"] * 5)
@example(*['"; touch canary; "'] * 5)
@example(*["\\"] * 5)
@example(*["%j \\n"] * 5)
@example(*["-e"] * 5)
@example(*["a\ud7ff\u2028b"] * 5)
def test_bash_sees_exactly_the_text_of_paths_names_and_variables(
    tmp_path_factory: pytest.TempPathFactory,
    base: str,
    run: str,
    work: str,
    python: str,
    value: str,
) -> None:
    top = tmp_path_factory.mktemp("odd") / base[:60]
    job = Submission(
        run=f"{top}/run/{run[:60]}",
        base=f"{top}",
        name=run,
        sdk=f"{top}/sdk {work[:60]}",
        workdir=f"{top}/work/{work[:60]}",
        environment=Environment(python=f"{top}/python/{python[:60]}"),
        options={"env": {"VALUE": value}},
    )
    for folder in ("submit", "events", "logs"):
        os.makedirs(os.path.join(job.run, folder))
    for folder in (job.workdir, f"{top}/python", f"{top}/.events"):
        os.makedirs(folder)
    with open(job.environment.python, "w") as file:
        file.write(_SEEN)
    os.chmod(job.environment.python, 0o700)
    script, seen = top.parent / "script.sh", top.parent / "seen"
    script.write_bytes(render_job_script(job).encode())
    assert subprocess.run(["bash", "-n", script], timeout=60).returncode == 0
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SEEN": str(seen), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", script], env=env, cwd=top, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    runner = f"{job.sdk}/slurm/runner/__main__.py"
    expected = [runner, job.run, job.workdir, job.run, job.relative, job.base, value]
    assert seen.read_bytes().decode().split("\0")[:-1] == expected
    assert list(top.parent.rglob("canary")) == []
