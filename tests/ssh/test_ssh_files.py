"""Files to and from the cluster: verified, resumed, sent once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm import Cluster, File, errors, task


@task
def count(file: File) -> int:
    with open(file, "rb") as f:
        return len(f.read())


@task
def shout(file: File) -> File:
    Path("loud.txt").write_text(Path(file).read_text().upper())
    return File("loud.txt")


def test_a_file_is_an_argument(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(100_000))
    assert count(File(data)).result(timeout=60) == 100_000


def test_a_file_is_sent_once_however_many_calls_use_it(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(1_000_000))
    link = cluster.backend._connected(0.0)  # type: ignore[attr-defined]
    jobs = count.map([File(data)] * 4)
    count(File(data))
    assert jobs.results(timeout=60) == [1_000_000] * 4
    assert link.bytes_out < 2_500_000  # the file, the agent and the SDK


def test_a_file_is_a_value(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "quiet.txt"
    data.write_text("hello")
    job = shout(File(data))
    loud = job.result(timeout=60)
    with pytest.raises(errors.TransferFailed, match="fetch"):
        os.stat(loud)
    assert loud.fetch(tmp_path / "here.txt").read_text() == "HELLO"
    assert loud.fetch(tmp_path).name == "loud.txt"


def test_a_file_that_one_job_made_is_read_by_another(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "quiet.txt"
    data.write_text("hello")
    assert count(shout(File(data))).result(timeout=100) == 5  # type: ignore[arg-type]


def test_put_and_get_bring_the_same_bytes_and_tell_how_far_they_are(
    cluster: Cluster, tmp_path: Path
) -> None:
    data = tmp_path / "it's $HOME; a file"
    data.write_bytes(os.urandom(9_000_000))
    told: list[tuple[int, int]] = []
    there = cluster.put(data, "~/in/x y;z.bin", progress=lambda *p: told.append(p))
    assert there.endswith("/home/in/x y;z.bin")
    assert told[-1] == (9_000_000, 9_000_000) and len(told) == 3
    back = cluster.get(there, tmp_path / "back")
    assert back.read_bytes() == data.read_bytes()


def test_an_empty_file_is_a_file(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    there = cluster.put(tmp_path / "empty", "empty")
    assert cluster.get(there, tmp_path / "back").read_bytes() == b""


def test_a_copy_that_was_cut_off_goes_on_where_it_stopped(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(9_000_000))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.put(data, "resumed.bin", progress=stop)
    told: list[int] = []
    there = cluster.put(data, "resumed.bin", progress=lambda done, _: told.append(done))
    assert told[0] == 8 << 20
    with pytest.raises(KeyboardInterrupt):
        cluster.get(there, tmp_path / "back", progress=stop)
    told.clear()
    back = cluster.get(there, tmp_path / "back", progress=lambda done, _: told.append(done))
    assert told[0] == 8 << 20
    assert back.read_bytes() == data.read_bytes()


def test_what_an_earlier_attempt_left_damaged_is_sent_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    from slurm.files import hash_of

    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(5_000_000))
    part = hash_of(str(data))[:16]
    home = cluster.backend.hello()["home"]
    Path(home, f".damaged.bin.{part}.part").write_bytes(b"x" * 1000)
    there = cluster.put(data, "damaged.bin")
    assert Path(there).read_bytes() == data.read_bytes()


def test_what_is_not_there_is_a_typed_error(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(errors.TransferFailed, match="not a file"):
        cluster.get("~/nothing", tmp_path / "x")
    with pytest.raises(errors.TransferFailed, match="cannot be read"):
        cluster.put(tmp_path / "nothing", "x")
    with pytest.raises(errors.TransferFailed, match="folder"):
        cluster.put(tmp_path, "x")
    (tmp_path / "a").write_text("a")
    with pytest.raises(errors.TransferFailed, match="cannot be written"):
        cluster.put(tmp_path / "a", "/proc/a")


def test_a_disk_that_is_full_is_a_typed_error(cluster: Cluster, tmp_path: Path) -> None:
    from slurm.files import hash_of

    (tmp_path / "a").write_bytes(b"a" * 100_000)
    part = hash_of(str(tmp_path / "a"))[:16]
    (tmp_path / f".full.{part}.part").symlink_to("/dev/full")
    with pytest.raises(errors.TransferFailed, match="No space left"):
        cluster.put(tmp_path / "a", str(tmp_path / "full"))


def test_a_large_value_comes_in_pieces(cluster: Cluster) -> None:
    make = task(os.urandom)
    assert len(make(9_000_000).result(timeout=60)) == 9_000_000
