"""The `slurm` command's own behaviour: help, exit codes, errors without a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slurm import errors
from slurm.cli import exit_code, main


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from slurm.cli import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_the_verb_groups(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "cluster" in capsys.readouterr().out


def test_help_loads_neither_the_parser_nor_a_verb_group() -> None:
    code = (
        "import sys, slurm.cli\n"
        "try:\n    slurm.cli.main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'cyclopts', 'rich', 'msgspec', 'slurm.stack'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_help_of_a_verb_shows_its_flags() -> None:
    done = run("cluster", "up", "--help")
    assert done.returncode == 0
    for flag in ("--engine", "--nodes", "--dir", "--cpus", "--memory", "--conf-line", "--file",
                 "--no-accounting", "--json"):  # fmt: skip
        assert flag in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["cluster", "upp"],
        ["cluster", "up"],
        ["cluster", "up", "--dir", "/tmp/x", "--nodes", "three"],
        ["cluster", "up", "--dir", "/tmp/x", "--engine", "steam"],
        ["cluster", "up", "--dir", "/tmp/x", "--file", "oci.conf"],
        ["cluster", "up", "--dir", "/tmp/x", "--file", "oci.conf=/no/such/file"],
        ["clutser"],
    ],
)
def test_wrong_usage_ends_with_2_and_words_on_stderr(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.strip() and not done.stdout
    assert "Traceback" not in done.stderr


def test_an_error_of_ours_is_its_text_and_a_code_without_traceback() -> None:
    done = run("cluster", "down", "--dir", "/tmp/no-such-cluster-of-ours")
    assert done.returncode == 4
    assert done.stderr.startswith("SLURM-E500 StackError: no cluster was ever made")
    assert "fix: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.JobFailed("x"), 1),
        (errors.RemoteError("x"), 1),
        (errors.OptionError("x"), 2),
        (errors.NoScheduler("x"), 2),
        (errors.SchedulerUnreachable("x"), 3),
        (errors.SubmitRefused("x"), 4),
        (errors.StackError("x"), 4),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: errors.SlurmError, code: int) -> None:
    assert exit_code(error) == code
