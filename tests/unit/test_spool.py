"""Spool: large arguments as they were when they were given, in a file that goes by itself."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from slurm import rundir, spool


def pieces(buffer: bytearray) -> rundir.Pieces:
    return rundir.Pieces([b"head", memoryview(buffer)])


def test_what_is_large_lies_in_a_file_and_no_later_change_reaches_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spool.tempfile, "tempdir", str(tmp_path))
    buffer = bytearray(b"x" * (spool.FROM + 5))
    kept = spool.keep(pieces(buffer))
    buffer[:] = b"y" * len(buffer)
    assert isinstance(kept, spool.Spooled)
    assert rundir.size_of(kept) == spool.FROM + 9
    for _ in range(2):  # it is sent again where a worker dies
        assert rundir.joined(kept) == b"head" + b"x" * (spool.FROM + 5)
    assert os.listdir(tmp_path) == []
    before = len(spool._open)
    del kept
    gc.collect()
    assert len(spool._open) == before - 1


@pytest.mark.parametrize("trouble", ["no room", "too many files", "small"])
def test_what_cannot_go_to_a_file_is_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: str
) -> None:
    if trouble == "no room":
        monkeypatch.setattr(spool.tempfile, "tempdir", str(tmp_path / "gone"))
    if trouble == "too many files":
        monkeypatch.setattr(spool, "MOST_FILES", 0)
    buffer = bytearray(b"x" * (1000 if trouble == "small" else spool.FROM))
    kept = spool.keep(pieces(buffer))
    buffer[:] = b"y" * len(buffer)
    assert kept == b"head" + b"x" * len(buffer)


def test_what_nothing_can_change_is_not_copied() -> None:
    content = rundir.Pieces([b"head", b"x" * spool.FROM])
    assert spool.keep(content) is content
