"""What Slurm or the file system refuses at submission: its own words, ours, and nothing left."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, errors, task

SOON = 60


def quick() -> Any:
    def quick() -> int:
        return 1

    return task(quick)


def runs(base: Path) -> list[str]:
    return [name for name in os.listdir(base) if not name.startswith(".")] if base.exists() else []


@pytest.mark.parametrize(
    ("options", "words", "option"),
    [
        ({"partition": "nowhere"}, "invalid partition", "partition="),
        ({"mem": "1T"}, "node configuration is not available", "mem="),
        ({"gpus": 4}, "invalid generic resource", "gpus="),
        ({"constraint": "unheard_of"}, "feature", "constraint="),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_refusal_carries_slurms_words_and_the_option_that_helps(
    tmp_path: Path, options: dict[str, Any], words: str, option: str
) -> None:
    cluster = Cluster(job_base_dir=tmp_path / "base")
    with pytest.raises(errors.SubmitRefused) as caught:
        cluster.submit(quick(), **options)()
    assert words in "\n".join(caught.value.evidence).lower()
    assert option in str(caught.value.hint)
    assert runs(tmp_path / "base") == []


def test_a_job_that_can_never_start_says_why_it_waits(tmp_path: Path) -> None:
    name = f"short{os.getpid()}"
    make = ["scontrol", "create", f"PartitionName={name}", "Nodes=n1", "MaxTime=1"]
    subprocess.run(make, check=True, timeout=SOON)
    try:
        job = Cluster(job_base_dir=tmp_path).submit(quick(), partition=name, time="2h")()
        end = time.monotonic() + SOON
        while job.reason != "PartitionTimeLimit":
            assert time.monotonic() < end, job.reason
            job.cluster._watcher.ask(job)
            assert not job.wait(1)
        job.cancel()
        with pytest.raises(errors.JobCancelled):
            job.result(SOON)
    finally:
        subprocess.run(["scancel", f"--partition={name}"], check=True, timeout=SOON)
        subprocess.run(["scontrol", "delete", f"PartitionName={name}"], check=True, timeout=SOON)


# ---- the directory ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "none", str(place)]
    if subprocess.run(mount, capture_output=True, timeout=SOON).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=SOON)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 65536)
        except OSError:
            pass
    # Small remains, too.
    for i in range(1000):
        try:
            (place / f"filler-{i}").write_bytes(b"x" * 4096)
        except OSError:
            return


def test_a_full_disk_at_submission_is_named_and_nothing_is_submitted(small_disk: Path) -> None:
    base = small_disk / "base"
    cluster = Cluster(job_base_dir=base)
    assert cluster.submit(quick())().result(SOON) == 1
    before = runs(base)
    fill(small_disk)
    queued = len(cluster.queue())
    with pytest.raises(errors.RunDirError, match="No space left") as caught:
        cluster.submit(quick())()
    assert str(base) in str(caught.value)
    assert "job_base_dir" in str(caught.value)
    assert runs(base) == before
    assert len(cluster.queue()) <= queued


def test_a_disk_too_small_for_the_sdk_is_named(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(errors.RunDirError, match="No space left"):
        Cluster(job_base_dir=small_disk / "base").submit(quick())()


@pytest.mark.parametrize("large", [False, True], ids=["small value", "large value"])
def test_a_result_that_does_not_fit_on_the_disk_is_not_written(
    small_disk: Path, large: bool
) -> None:
    def grow(place: str, large: bool) -> bytes:
        if large:
            return b"x" * (12 << 20)
        with open(f"{place}/filler", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 65536)
            except OSError:
                pass
        return os.urandom(200_000)

    job = Cluster(job_base_dir=small_disk / "base").submit(task(grow))(str(small_disk), large)
    error = job.exception(SOON)
    assert isinstance(error, errors.ResultNotWritten)
    assert "job_base_dir" in str(error)


def test_a_read_only_base_directory_is_named(small_disk: Path) -> None:
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True, timeout=SOON)
    with pytest.raises(errors.RunDirError, match="Read-only") as caught:
        Cluster(job_base_dir=small_disk / "base").submit(quick())()
    assert str(small_disk) in str(caught.value)


def test_a_base_directory_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.RunDirError, match="file/base"):
        Cluster(job_base_dir=tmp_path / "file" / "base").submit(quick())()


def test_everything_in_a_run_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    job = Cluster(job_base_dir=tmp_path / "base").submit(quick())()
    assert job.result(SOON) == 1
    for path in [Path(job.path), *Path(job.path).rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink() and path.parent.name != "logs":
            assert mode & 0o077 == 0, f"{path} has mode {mode:o}"
