"""What a failed call keeps for a debugger, and how frames are made of it again."""

from __future__ import annotations

import json
import linecache
import traceback
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.postmortem import KeptFrame, Shown, make_traceback
from slurm.runner.postmortem import frames_of, keep, picture


class Loud:
    """A class whose own code must not run."""

    def __repr__(self) -> str:
        raise RuntimeError("was called")


class Array:
    shape, dtype = (3, 4), "float32"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        ("a" * 400, "'" + "a" * 299 + "..."),
        ([1, "b", (2.5,)], "[1, 'b', (2.5,)]"),
        ({"n": 1, "api_key": "x", "deep": {"a": {"b": 1}}},
         "{'n': 1, 'api_key': <hidden>, 'deep': {'a': <builtins.dict>}}"),
        (list(range(99)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]"),
        ({1}, "{1}"),
        (frozenset([1]), "frozenset({1})"),
    ],
)  # fmt: skip
def test_values_are_shown_in_a_few_letters(value: Any, shown: str) -> None:
    assert picture(value) == shown


def test_code_of_a_value_is_not_called_and_arrays_show_their_shape() -> None:
    assert picture(Loud()) == f"<{__name__}.Loud>"
    assert picture([Loud()]) == f"[<{__name__}.Loud>]"
    assert picture(Array()) == f"<{__name__}.Array (3, 4) float32>"


def test_what_holds_a_secret_is_hidden_under_every_name() -> None:
    secrets = ["s3cr3t"]
    for value in ("xs3cr3ty", b"s3cr3t", ["s3cr3t"], {"a": "s3cr3t"}, "x" * 400 + "s3cr3t"):
        assert "s3cr" not in picture(value, 2, secrets), value
        assert "<hidden>" in picture(value, 2, secrets)


def _raise(n: int, password: str) -> None:
    half = n / 2
    raise ValueError(half)


def _caught(*args: Any) -> BaseException:
    try:
        _raise(*args)
    except ValueError as error:
        return error
    raise AssertionError


def test_frames_say_file_line_function_arguments_and_values() -> None:
    kept = frames_of(_caught(5, "hunter2"))[-1]
    assert kept["name"] == "_raise"
    assert kept["arguments"] == ["n", "password"]
    assert kept["locals"] == {"half": "2.5", "n": "5", "password": "<hidden>"}
    line = kept["source"].splitlines()[kept["line"] - kept["first"]]
    assert line.strip() == "raise ValueError(half)"


def test_what_was_kept_is_found_where_the_record_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / rundir.METADATA).write_text(json.dumps({"options": {"secrets": ["PIN"]}}))
    monkeypatch.setenv("PIN", "5.5")
    first, second = keep(str(tmp_path), _caught(5, "x")), keep(str(tmp_path), _caught(11, "x"))
    assert first is not None and second is not None and first[0] == second[0]
    for (name, offset, size), half in ((first, "2.5"), (second, "<hidden>")):
        data = (tmp_path / name).read_bytes()[offset : offset + size]
        assert json.loads(data)[-1]["locals"]["half"] == half
    assert (tmp_path / first[0]).stat().st_mode & 0o077 == 0


def test_a_run_directory_that_cannot_be_written_loses_only_the_frames(tmp_path: Path) -> None:
    assert keep(str(tmp_path / "nowhere"), _caught(1, "x")) is None


def test_a_debugger_finds_real_frames_with_the_arguments_and_the_source_of_the_job() -> None:
    source = "def work(n, *, scale):\n    return helper(n)\n"
    frames = [
        KeptFrame("/gone/a.py", 2, "work", ["n", "scale"], {"n": "7", "x": "<array>"}, 1, source),
        KeptFrame("/gone/a.py", 9, "helper", ["m"], {"m": "7"}, 8, "def helper(m):\n    1 / 0\n"),
    ]
    made = make_traceback(frames, [[1, 2]], {"scale": 3})
    assert made is not None and made.tb_next is not None
    assert made.tb_frame.f_locals["n"] == [1, 2]
    assert made.tb_frame.f_locals["scale"] == 3
    assert isinstance(made.tb_frame.f_locals["x"], Shown)
    assert repr(made.tb_frame.f_locals["x"]) == "<array>"
    summary = traceback.extract_tb(made)
    assert [(s.name, s.lineno) for s in summary] == [("work", 2), ("helper", 9)]
    linecache.clearcache()
