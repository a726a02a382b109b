"""The disk on the cluster is full: a typed error, and no half a run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import Sshd

from slurm import Cluster, RunDirError, task


@task
def same(x: int) -> int:
    return x


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("NOT RUN: a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_said_and_the_next_call_works_when_there_is_room(
    slurm_sshd: Sshd, small_disk: Path
) -> None:
    with Cluster(job_base_dir=str(small_disk / "jobs"), **slurm_sshd.arguments()) as cluster:
        assert same(1).result(timeout=60) == 1
        filler = small_disk / "filler"
        with open(filler, "wb", buffering=0) as f, pytest.raises(OSError, match="No space"):
            while True:
                f.write(bytes(4096))
        runs = _runs(cluster)
        with pytest.raises(RunDirError, match="No space left"):
            same(2)
        assert _runs(cluster) == runs
        filler.unlink()
        assert same(3).result(timeout=60) == 3


def test_no_room_for_the_sdk_is_said_as_well(slurm_sshd: Sshd, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(5_900_000))
    with (
        Cluster(job_base_dir=str(small_disk / "jobs"), **slurm_sshd.arguments()),
        pytest.raises(RunDirError, match="No space left"),
    ):
        same(1)


def _runs(cluster: Cluster) -> set[str]:
    return {name for name in os.listdir(cluster.base) if not name.startswith(".")}
