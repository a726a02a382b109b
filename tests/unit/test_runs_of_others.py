"""Who looks at a run of others hangs at nothing in it, and reads no other file by its name."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.api import run_files
from slurm.api.agent_error import AgentError
from slurm.metadata import read_metadata
from slurm.rundir.about import checked

pytestmark = pytest.mark.attack
as_root = pytest.mark.skipif(os.getuid() != 0, reason="makes files of another user")
OTHER = 12345
DEEP = '{"task": ' + "[" * 100_000 + "]" * 100_000 + "}"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    secret = path.parent / "secret"
    secret.write_text('{"task": "secret"}')
    path.symlink_to(secret)


def endless(path: Path) -> None:
    with open(path, "wb") as f:
        f.truncate(1 << 40)


def folder(path: Path) -> None:
    path.mkdir()


def words(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x1b[2J not a number")


def deep(path: Path) -> None:
    path.write_text(DEEP)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [pipe, link, endless, folder, words, deep])
def test_no_file_of_a_run_holds_up_or_misleads_who_looks(tmp_path: Path, make: Any) -> None:
    for part in (rundir.SUBMIT, rundir.EVENTS, rundir.BEATS):
        (tmp_path / part).mkdir()
    for name in (rundir.METADATA, rundir.id_name(0), f"{rundir.EVENTS}/a.txt"):
        make(tmp_path / name)
    assert run_files.metadata(str(tmp_path)) == {}
    assert run_files.ids(str(tmp_path)) == {}
    found = rundir.grown(str(tmp_path / rundir.EVENTS), {}, ".txt")
    assert [e for _, data in found for e in rundir.decode_events(data)[0] if e.job] == []


@pytest.mark.timeout(60)
def test_no_pipe_holds_up_who_reads_what_is_private(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    tmp_path.chmod(0o700)
    with rundir.open_trusted(str(tmp_path / "pipe")) as f:
        assert not f.read()


@pytest.mark.parametrize(
    "entry",
    [
        {"task": 5},
        {"task": ["a"]},
        {"options": None},
        {"options": "x"},
        {"options": [1, [2]]},
        {"submitted": "soon"},
        {"submitted": float("nan")},
        {"submitted": True},
        {"ranks": None},
        {"ranks": 0},
        {"parts": True},
        {"parts": [[0, 0]]},
        {"parts": [[0, 0, "3"]]},
        {"parts": [[0, 0, 10**12]]},
        {"parts": [[0, 0, 3], [1, 0, 3]]},
        {"parts": []},
        {"pack": [1]},
        {"pack": [0, 1, 1, 1, "x"]},
        {"parent": 5},
        {"parent": ["a"]},
        {"upstream": "abc"},
        {"upstream": [1]},
        {"retry": "x"},
        {"container": {}},
        {"scheduler": []},
    ],
    ids=str,
)
def test_metadata_that_is_none_of_ours_is_left_out(entry: dict[str, Any]) -> None:
    told = json.dumps({**entry, "format": 1}).encode()
    assert read_metadata(told) == {"format": 1}


def test_metadata_of_ours_is_whole() -> None:
    ours = {
        "task": "t", "options": {"time": "1h"}, "workdir": "/x", "submitted": 1.5, "ranks": 2,
        "parts": [[0, 0, 3], [1, 3, 2]], "pack": [2, 5, 1, 1, "why"], "item_retry": None,
        "container": None, "upstream": ["a"], "retry": {}, "parent": ["w", 0], "scheduler": None,
        "python": "3.11",
    }  # fmt: skip
    assert checked(ours) == ours and read_metadata(DEEP.encode()) == {}


@as_root
@pytest.mark.parametrize("hard", [False, True])
def test_a_log_of_another_user_s_run_is_that_user_s_file(tmp_path: Path, hard: bool) -> None:
    run, secret, log = tmp_path / "run", tmp_path / "secret", tmp_path / "run" / "1.out"
    run.mkdir()
    secret.write_text("mine")
    (log.hardlink_to if hard else log.symlink_to)(secret)
    with run_files.open_file(str(run), "1.out", False) as f:
        assert f.read() == b"mine"  # who made the run chose where its log lies
    os.chown(run, OTHER, OTHER)
    with pytest.raises(AgentError, match="leads to a file of user"):
        run_files.open_file(str(run), "1.out", False)
    os.chown(secret, OTHER, OTHER)
    with run_files.open_file(str(run), "1.out", False) as f:
        assert f.read() == b"mine"
