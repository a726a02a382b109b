"""Files as arguments and values where client and jobs share a file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm import Cluster, File, TransferFailed, task


@task
def shout(file: File) -> File:
    target = Path(file).with_name("loud.txt")
    target.write_text(Path(file).read_text().upper())
    return File(target)


@task
def place(file: File) -> str:
    return str(file.path)


def test_an_argument_is_the_file_itself(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("hello")
    assert place(File(tmp_path / "data.txt")).result(timeout=60) == str(tmp_path / "data.txt")


def test_a_value_is_kept_when_its_original_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("hello")
    loud = shout(File(tmp_path / "data.txt")).result(timeout=60)
    (tmp_path / "loud.txt").unlink()
    assert Path(loud).read_text() == "HELLO"
    assert loud.fetch(tmp_path / "copy.txt").read_text() == "HELLO"


def test_put_and_get_copy(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    there = cluster.put(tmp_path / "a", str(tmp_path / "b" / "c"))
    assert cluster.get(there, tmp_path / "d").read_text() == "a"
    with pytest.raises(TransferFailed):
        cluster.get(str(tmp_path / "nothing"), tmp_path / "x")
