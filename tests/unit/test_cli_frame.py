"""The frame of the `slurm` command: names of runs, screens, errors, completion; no scheduler."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm import rundir
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.api.listing import find_run
from slurm.api.slurm_commands import JobStatus
from slurm.cli import SECTIONS, _verb_first, build_app, overview, verbs
from slurm.cli.completion import candidates
from slurm.cli.frame import Answer, Common, Said
from slurm.cli.screen import Column, Screen, screen_of, table
from slurm.errors import SlurmError


def slurm(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slurm.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


# ---- which run is meant -------------------------------------------------------------------------

OLD, NEW = "train-20260101-120000-aaaaaa", "train-20260102-120000-bbbbbb"
OTHER = "evaluate-20260101-130000-cccccc"
CHILD = f"{OTHER}/tasks/fit/fit-20260101-130001-dddddd"


class Idle:
    """Stands in the place of a scheduler that knows no job any more."""

    kind = "slurm"

    def status(self, _: object) -> list[JobStatus]:
        return []


def find(base: Path, text: str) -> str:
    return find_run(Agent(Idle(), str(base)), text)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    ids = {"7": OLD, "8": NEW, "9": OTHER, "10": CHILD}
    (tmp_path / rundir.BASE_IDS).mkdir()
    for job, run in ids.items():
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / rundir.METADATA).write_text("{}")
        (tmp_path / rundir.BASE_IDS / job).symlink_to(Path("..") / run)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("last", NEW),
        (OLD, OLD),
        ("7", OLD),
        ("8_3", NEW),
        ("8;east", NEW),
        ("evaluate", OTHER),
        ("eva", OTHER),
        ("train-20260101", OLD),
        (CHILD, CHILD),
        ("fit", CHILD),
        ("10", CHILD),
    ],
)
def test_a_run_is_found_by_what_a_person_calls_it(base: Path, text: str, run: str) -> None:
    assert find(base, text) == run


def test_a_run_is_found_by_its_directory(base: Path) -> None:
    assert find(base, str(base / OLD)) == OLD


def test_a_name_of_several_runs_is_refused_with_all_of_them_newest_first(base: Path) -> None:
    with pytest.raises(AgentError) as refused:
        find(base, "train")
    assert refused.value.kind == "ambiguous"
    assert refused.value.evidence == [NEW, OLD]


@pytest.mark.parametrize("text", ["trian", "trainn", "train-20260101-120000-aaaaab"])
def test_an_unknown_name_is_answered_with_the_nearest(base: Path, text: str) -> None:
    with pytest.raises(AgentError) as refused:
        find(base, text)
    assert refused.value.kind == "not-found"
    assert "did you mean train-" in str(refused.value.hint)


@pytest.mark.parametrize("text", ["99", "zzz", "", "..", "../..", ".ids"])
def test_what_names_no_run_is_refused(base: Path, text: str) -> None:
    with pytest.raises(AgentError, match="no run"):
        find(base, text)


def test_last_of_an_empty_base_says_that_there_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="there are no runs"):
        find(tmp_path, "last")


# ---- which cluster is meant ---------------------------------------------------------------------


def test_the_cluster_is_that_of_the_slurmfile_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[default]\njob_base_dir = "one"\n[lab]\njob_base_dir = "two"\n'
    (tmp_path / "Slurmfile.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert Common().connect().directory == str(tmp_path / "one")
    assert Common(cluster="lab").connect().directory == str(tmp_path / "two")
    assert Common(job_base_dir="three").connect().directory == "three"
    assert Common(cluster="embedded").connect().backend_type == "embedded"


def test_without_a_slurmfile_the_cluster_is_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Common(job_base_dir="x").connect().backend_type == "local"


# ---- the screen ---------------------------------------------------------------------------------

COLUMNS = (
    Column("run"),
    Column("state", is_state=True),
    Column("node", spare=1),
    Column("time", right=True, spare=2),
)
ROWS = [("train-with-a-long-name-20260101-120000-aaaaaa", "RUNNING", "n1", 12)]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b31m\u202etxt.exe\r\u2028\x00"


@pytest.mark.attack
def test_json_holds_no_character_that_a_terminal_obeys() -> None:
    words = "a\u202eb\x9b2J\x1b[2J\x7f\u2028\n\tä"
    told = Said(True, words).as_json()
    assert json.loads(told)["message"] == words
    assert all(letter.isprintable() or letter == "\n" for letter in told)
    assert "ä" in told


@pytest.mark.attack
@given(
    text=st.text(
        st.sampled_from("ab[]m0;?\x1b\x9b\x07\x08\r\x7f\u202e\u2066\u2028\x00"), max_size=40
    )
)
@example(text=HOSTILE)
def test_no_text_of_others_commands_the_terminal(text: str) -> None:
    for screen in (Screen(), Screen(colour=True), Screen(width=40, colour=True, unicode=False)):
        row = ["FAILED" if column.is_state else text for column in COLUMNS]
        for line in table(COLUMNS, [row], screen):
            told = re.sub(r"\x1b\[(0|1|31)m", "", screen.shown(line))
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", told)
        assert "\x1b" not in screen.shown(text)
        logged = re.sub(r"\x1b\[[0-9;]*m", "", screen.shown(screen.log(text)))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", logged)


@pytest.mark.attack
def test_no_error_of_ours_commands_the_terminal() -> None:
    error = SlurmError(f"job {HOSTILE} is gone", hint=HOSTILE, evidence=[HOSTILE])
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", str(error))


def test_a_log_keeps_its_colours_and_the_last_state_of_a_line_drawn_again() -> None:
    screen = Screen(colour=True)
    assert screen.shown(screen.log("\x1b[1;31mred\x1b[0m end")) == "\x1b[1;31mred\x1b[0m end\x1b[0m"
    assert screen.shown(screen.log(" 10%\r 20%\r")) == " 20%"
    assert Screen().log("\x1b[31mred\x1b[0m") == "red"


def test_a_table_in_a_pipe_is_whole() -> None:
    assert list(table(COLUMNS, ROWS, Screen())) == [
        "run                                            state    node  time",
        "train-with-a-long-name-20260101-120000-aaaaaa  RUNNING  n1      12",
    ]


def test_a_table_in_forty_columns_leaves_out_what_can_be_spared_and_cuts_the_rest() -> None:
    head, row = table(COLUMNS, ROWS, Screen(width=40))
    assert head.split() == ["run", "state"]
    assert len(row) <= 40 and "…" in row and row.endswith("RUNNING")


def test_a_terminal_without_utf_8_gets_ascii() -> None:
    _, row = table(COLUMNS, ROWS, Screen(width=40, unicode=False))
    assert row.isascii() and "~" in row


def test_states_have_colours_only_where_there_are_some() -> None:
    screen = Screen(colour=True)
    assert screen.shown(screen.state("FAILED")) == "\x1b[31mFAILED\x1b[0m"
    assert screen.shown(screen.state("COMPLETED")) == "\x1b[32mCOMPLETED\x1b[0m"
    assert Screen().state("FAILED") == "FAILED"


def test_what_is_no_terminal_has_neither_width_nor_colour() -> None:
    assert screen_of(io.StringIO()) == Screen(width=None, colour=False, unicode=False)


# ---- the program --------------------------------------------------------------------------------


def test_every_verb_has_help_and_says_how_json_is_asked_for() -> None:
    app = build_app()
    for verb in verbs():
        shown = app[verb.name]
        assert shown.help, verb.name
        if shown.default_command is not None:
            names = [n for a in shown.assemble_argument_collection() for n in a.names]
            assert "--json" in names and "--debug" in names, verb.name


def test_every_field_of_every_answer_says_what_it_means() -> None:
    from slurm.cli.schema import answers

    for verb, kind in [(verb, kind) for verb, kinds in answers().items() for kind in kinds]:
        assert issubclass(kind, Answer), verb
        hints = get_type_hints(kind, include_extras=True)
        for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
            assert hasattr(hints[name], "__metadata__"), f"{kind.__name__}.{name}"


def test_help_names_every_verb_in_lines_that_fit() -> None:
    text = overview()
    assert all(f"\n  {verb.name}" in text for section in SECTIONS.values() for verb in section)
    assert max(map(len, text.splitlines())) <= 82


def test_common_options_may_stand_before_the_verb() -> None:
    assert _verb_first(["--json", "--cluster", "lab", "ls", "-a"]) == [
        *("ls", "--json", "--cluster", "lab", "-a")
    ]
    assert _verb_first(["ls", "--json"]) == ["ls", "--json"]


def test_a_misspelt_command_is_answered_with_the_nearest_alone() -> None:
    done = slurm("lss")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].endswith('Unknown command "lss". Did you mean "ls"?')


def test_a_doctor_without_a_slurm_conf_says_what_to_set(tmp_path: Path) -> None:
    """Slurm's commands are installed, but no cluster is configured: a laptop with packages."""
    for name in ("sbatch", "squeue", "sinfo", "scontrol"):
        command = tmp_path / name
        words = "fatal: Could not establish a configuration source"
        command.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
        command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = slurm("doctor", "--cluster", "local", PATH=path, HOME=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert "Could not establish a configuration source" in done.stdout
    assert "SLURM_CONF" in done.stdout


def test_an_error_is_one_json_object_where_json_was_asked_for(tmp_path: Path) -> None:
    done = slurm("logs", "nope", "--json", "--cluster", "embedded", "--job-base-dir", str(tmp_path))
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "SLURM-E210" and error["kind"] == "RunNotFound"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = slurm("--debug", "logs", "nope", "--job-base-dir", str(tmp_path))
    assert done.returncode == 2
    assert "Traceback" in done.stderr and "SLURM-E210" in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m slurm.cli completion bash | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_help_is_ascii_where_the_terminal_has_no_utf_8() -> None:
    done = slurm("logs", "--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 0 and done.stdout.isascii()


# ---- completion ---------------------------------------------------------------------------------


def test_verbs_options_profiles_and_runs_are_completed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f'[default]\nbackend_type = "embedded"\njob_base_dir = "{base}"\n[lab]\n'
    (tmp_path / "Slurmfile.toml").write_text(text)
    assert candidates(["lo"]) == ["logs", "login"]
    assert candidates(["logs", "--fol"]) == ["--follow"]
    assert candidates(["cluster", "do"]) == ["down"]
    assert candidates(["logs", "--cluster", "l"]) == ["lab", "local"]
    assert candidates(["logs", "tr"]) == [NEW, OLD]
    assert candidates(["logs", "la"]) == ["last"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_completes_a_verb(shell: str, tmp_path: Path) -> None:
    import shutil

    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    program = tmp_path / "slurm"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m slurm.cli "$@"\n')
    program.chmod(0o755)
    asks = {
        "bash": 'eval "$(slurm completion bash)"; COMP_WORDS=(slurm lo); COMP_CWORD=1; '
        '_slurm_sdk; echo "${COMPREPLY[@]}"',
        "zsh": 'compdef() { :; }; eval "$(slurm completion zsh)"; words=(slurm lo); CURRENT=2; '
        'compadd() { shift 2; echo "$@"; }; _slurm_sdk',
        "fish": "slurm completion fish | source; complete -C 'slurm lo'",
    }
    done = subprocess.run(
        [shell, "-c", asks[shell]],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )
    assert sorted(done.stdout.split()) == ["login", "logs"], done.stderr


@dataclass(frozen=True)
class _Two(Answer):
    number: Annotated[int, "A number."]


def test_an_answer_is_its_fields() -> None:
    assert json.loads(_Two(3).as_json()) == {"number": 3}
