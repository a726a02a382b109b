"""How the embedded scheduler reads `#SBATCH` lines and the values of their options."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.api import sbatch_values as values
from slurm.api.embedded.host import Machine
from slurm.api.embedded.request import Need, Request, make_request, need_of
from slurm.api.sbatch_lines import (
    BadRequest,
    add_environment,
    read_options,
    split_words,
)
from slurm.api.sbatch_values import Dependency, EarlySignal, Edge

NOW = time.mktime((2030, 5, 17, 12, 30, 0, 0, 0, -1))
MACHINE = Machine(cpus=8, memory_mb=16000, gpus=2)


def request_of(*lines: str) -> Request:
    script = "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "true"])
    return make_request(read_options(script), "script", NOW)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-J 'a b'", ["-J", "a b"]),
        ('--comment="say \\"hi\\""', ['--comment=say "hi"']),
        ("--x=a\\ b c", ["--x=a", "b", "c"]),
        ("--x='\\n'", ["--x=n"]),
        ("-n 2 # two", ["-n", "2"]),
        ("--x=a#b", ["--x=a"]),
        ("--x='a#b'\\#", ["--x=a#b#"]),
        ("--empty=''", ["--empty="]),
        ("'' x", ["", "x"]),
        ("--open='never closed", ["--open=never closed"]),
        ("end\\", ["end"]),
    ],
)
def test_words_are_split_as_sbatch_splits_them(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_options_are_read_until_the_first_command() -> None:
    script = (
        "#!/bin/bash\n# a comment\n\n#SBATCH -J one --mem=1G\n#SBATCHED no\n #SBATCH -n 9\n"
        "#SBATCH --requeue -c2\necho hello\n#SBATCH --time=5\n"
    )
    assert read_options(script) == {
        "job-name": "one",
        "mem": "1G",
        "requeue": "",
        "cpus-per-task": "2",
    }


def test_a_later_line_wins() -> None:
    assert request_of("--time=1", "--time=2", "--no-requeue", "--requeue").time_limit == 120
    assert request_of("--no-requeue", "--requeue").requeue
    assert not request_of("--requeue", "--no-requeue").requeue


def test_variables_of_sbatch_stand_above_the_script() -> None:
    options = add_environment(
        {"time": "1", "no-requeue": ""}, {"SBATCH_TIMELIMIT": "7", "SBATCH_REQUEUE": "1", "X": "y"}
    )
    assert options == {"time": "7", "requeue": "1"}


def test_options_without_a_meaning_here_are_named() -> None:
    assert request_of("-p gpu --qos=x --mail-type=ALL -n 1").ignored == (
        "mail-type",
        "partition",
        "qos",
    )


@given(st.text(), st.text())
def test_no_script_crashes_the_reader(text: str, head: str) -> None:
    for script in (text, f"#!/bin/sh\n#SBATCH {text}\n", f"#SBATCH --{head}={text}"):
        try:
            make_request(read_options(script), "script", NOW)
        except BadRequest as problem:
            assert str(problem)


OPTION_NAMES = st.sampled_from(
    ["time", "mem", "array", "dependency", "begin", "signal", "nodes", "gpus", "gres", "nice"]
)


@given(OPTION_NAMES, st.text(alphabet="0123456789-:+,?%@_ abnowfterkUSGMT*=.", max_size=20))
def test_no_value_crashes_the_reader(name: str, text: str) -> None:
    try:
        make_request({name: text}, "script", NOW)
    except BadRequest as problem:
        assert str(problem)


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"))))
def test_quoted_words_come_back_whole(words: list[str]) -> None:
    line = " ".join("'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'" for word in words)
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300), ("5:30", 330), ("1:00:00", 3600), ("1-0", 86400), ("1-2:3", 93780),
        ("1-02:03:04", 93784), ("UNLIMITED", None), ("infinite", None), ("0", None), ("0:01", 1),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int | None) -> None:
    assert values.read_time(text) == seconds


@pytest.mark.parametrize(
    ("text", "mib"), [("100", 100), ("1G", 1024), ("1gb", 1024), ("1500K", 2), ("2T", 2097152)]
)
def test_memory_is_read_in_mib_and_rounded_up(text: str, mib: int) -> None:
    assert values.read_memory("mem", text) == mib


@pytest.mark.parametrize(
    ("text", "count"), [("2", 2), ("a100:2", 2), ("a100", 1), ("a100:2,v100:1", 3), ("0", 0)]
)
def test_gpus_are_counted_whatever_their_type(text: str, count: int) -> None:
    assert values.read_gpus("gpus", text) == count


@pytest.mark.parametrize(
    ("text", "count"), [("gpu:2", 2), ("gpu", 1), ("gpu:a100:2(S:0)", 2), ("none", 0)]
)
def test_gres_counts_gpus(text: str, count: int) -> None:
    assert values.read_gres(text) == count


def test_a_gres_that_does_not_exist_here_is_refused() -> None:
    with pytest.raises(BadRequest, match="fpga"):
        values.read_gres("fpga:1")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0-3", ((0, 1, 2, 3), None)),
        ("1-9:4,5%2", ((1, 5, 9), 2)),
        ("7", ((7,), None)),
        ("3,1,2%1", ((1, 2, 3), 1)),
    ],
)
def test_array_specifications(text: str, found: tuple[tuple[int, ...], int | None]) -> None:
    assert values.read_array(text) == found


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-99999", "1%", "1%0", "1-5:0", "-1"])
def test_a_wrong_array_specification_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        values.read_array(text)


def test_dependencies_are_all_of_their_edges_or_any() -> None:
    assert values.read_dependency("afterok:1:2_3,after:4+5") == Dependency(
        (Edge("afterok", 1), Edge("afterok", 2, 3), Edge("after", 4, None, 300))
    )
    either = values.read_dependency("afterok:1?afternotok:2")
    assert either == Dependency((Edge("afterok", 1), Edge("afternotok", 2)), any_one=True)
    assert values.read_dependency("singleton").edges == (Edge("singleton"),)


@pytest.mark.parametrize(
    "text", ["afterok", "afterok:x", "1", "before:1", "afterok:1,after:2?after:3", "singleton:1"]
)
def test_a_wrong_dependency_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        values.read_dependency(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("B:USR2@90", EarlySignal(12, 90, True)),
        ("SIGUSR1", EarlySignal(10, 60, False)),
        ("10@0", EarlySignal(10, 0, False)),
        ("RB:TERM@5", EarlySignal(15, 5, True)),
    ],
)
def test_early_signals(text: str, found: EarlySignal) -> None:
    assert values.read_signal(text) == found


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("now", 0), ("now+60", 60), ("now+2hours", 7200), ("now+1day", 86400), ("13:00", 1800),
        ("12:00", 84600), ("16:30:10", 14410), ("1:30pm", 3600), ("teatime", 12600),
        ("2030-05-17T13:00", 1800), ("2030-05-17T12:30:05", 5), ("midnight", 41400),
    ],
)  # fmt: skip
def test_begin_times(text: str, later: int) -> None:
    assert values.read_begin(text, NOW) - NOW == later


def test_tomorrow_is_the_next_day() -> None:
    assert time.localtime(values.read_begin("tomorrow", NOW))[:5] == (2030, 5, 18, 0, 0)


@pytest.mark.parametrize(
    ("line", "need"),
    [
        ("", Need(1, 100, 0)),
        ("-n 2 -c 3", Need(6, 600, 0)),
        ("-N 2 --ntasks-per-node=2 --mem=1G", Need(4, 2048, 0)),
        ("-n 4 --mem-per-cpu=10", Need(4, 40, 0)),
        ("--gpus=2 --mem-per-gpu=100", Need(1, 200, 2)),
        ("--gpus-per-task=1 -n 2", Need(2, 200, 2)),
        ("--gres=gpu:1 -N 2", Need(2, 200, 2)),
        ("--gpus=2 --cpus-per-gpu=4", Need(8, 800, 2)),
        ("--exclusive", Need(8, 800, 2)),
        ("--mem=0", Need(1, 16000, 0)),
        ("-N 4 -n 1", Need(1, 100, 0)),
        ("-n 20 --overcommit", Need(8, 800, 0)),
    ],
)
def test_what_a_request_takes_from_the_machine(line: str, need: Need) -> None:
    assert need_of(request_of(line), MACHINE) == need


def test_the_default_memory_never_makes_a_job_too_large() -> None:
    assert need_of(request_of("-n 8"), Machine(8, 200, 0)) == Need(8, 200, 0)
