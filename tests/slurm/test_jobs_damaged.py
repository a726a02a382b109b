"""Results that were cut, soiled or planted: whole records are found, foreign ones never loaded."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, Job, errors, outcome, pace, rundir, task

SOON = 60


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture
def cluster(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    # How long a missing record is waited for, and how often the scheduler is asked: only the
    # numbers are smaller here.
    monkeypatch.setattr(outcome, "RESULT_GRACE", 1.0)
    monkeypatch.setattr(pace, "REFILL", 0.1)
    with Cluster(job_base_dir=base) as cluster:
        yield cluster


def finished(cluster: Cluster, size: int = 10) -> Job[bytes]:
    def value(size: int) -> bytes:
        return b"v" * size

    job = cluster.submit(task(value))(size)
    assert job.result(SOON) == b"v" * size
    return job


def segment(job: Job[Any]) -> Path:
    (found,) = Path(job.path, "results").glob("*.seg")
    return found


def again(job: Job[Any]) -> Job[Any]:
    return job.cluster.attach(job.path)


@pytest.mark.parametrize("keep", [0, 4, 12, 20, 60, -1])
def test_a_result_that_was_cut_short_is_lost_and_said_to_be(cluster: Cluster, keep: int) -> None:
    job = finished(cluster)
    path = segment(job)
    path.write_bytes(path.read_bytes()[:keep])
    error = again(job).exception(SOON)
    assert isinstance(error, errors.ResultLost)
    assert job.path in str(error)


def test_garbage_around_a_record_is_passed_over(cluster: Cluster) -> None:
    job = finished(cluster)
    path = segment(job)
    whole = path.read_bytes()
    torn = whole[: len(whole) // 2]
    path.write_bytes(b"\0\xff garbage" + torn + whole + torn + os.urandom(100))
    assert again(job).result(SOON) == b"v" * 10


def test_a_record_with_a_flipped_bit_does_not_count(cluster: Cluster) -> None:
    job = finished(cluster)
    path = segment(job)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert isinstance(again(job).exception(SOON), errors.ResultLost)


def test_a_later_attempt_is_found_behind_a_torn_record(cluster: Cluster) -> None:
    job = finished(cluster)
    path = segment(job)
    whole = path.read_bytes()
    who = rundir.Identity(job.id, 0, 0, 1)
    later = rundir.encode_record(who, rundir.VALUE, {}, pickle.dumps("later"))
    path.write_bytes(whole[:-5] + later)
    rundir.append_event(job.path, rundir.format_event("exit", who, code=0, signal=0))
    assert again(job).result(SOON) == "later"


@pytest.mark.parametrize("change", ["cut", "flipped", "gone"])
def test_a_damaged_large_value_is_an_unreadable_result(cluster: Cluster, change: str) -> None:
    job = finished(cluster, 3 << 20)
    (path,) = Path(job.path, "values").iterdir()
    data = bytearray(path.read_bytes())
    if change == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data[:1000] if change == "cut" else data)
    error = again(job).exception(SOON)
    assert isinstance(error, errors.ResultUnreadable), error
    assert path.name in str(error)


# ---- planted ------------------------------------------------------------------------------------


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def plant(job: Job[Any], mark: Path) -> None:
    """What an attacker would put there: a record whose value does harm when it is unpickled."""
    who = rundir.Identity(job.id, 0, 0, 0)
    data = rundir.encode_record(who, rundir.VALUE, {}, pickle.dumps(Bomb(str(mark))))
    segment(job).write_bytes(data)


FORGERIES: dict[str, Callable[[Job[Any]], None]] = {
    "segment of another user": lambda job: os.chown(segment(job), 12345, -1),
    "segment that others may write": lambda job: segment(job).chmod(0o660),
    "folder of another user": lambda job: os.chown(segment(job).parent, 12345, -1),
    "folder that others may write": lambda job: segment(job).parent.chmod(0o777),
    "run of another user": lambda job: os.chown(job.path, 12345, -1),
    "run that others may write": lambda job: os.chmod(job.path, 0o770),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_others_could_have_written_is_never_unpickled(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    job = finished(cluster)
    mark = tmp_path / "unpickled"
    plant(job, mark)
    if os.getuid() != 0 and "another user" in name:
        pytest.skip("only root can give a file away")
    FORGERIES[name](job)
    error: BaseException | None
    try:
        error = again(job).exception(SOON)
    except errors.UntrustedRun as refused:  # where already its metadata may be another's
        error = refused
    assert isinstance(error, errors.UntrustedRun)
    assert job.run in str(error)
    assert not mark.exists()


def test_a_planted_segment_that_is_a_link_is_not_followed(cluster: Cluster, tmp_path: Path) -> None:
    job = finished(cluster)
    mark = tmp_path / "unpickled"
    plant(job, mark)
    path = segment(job)
    path.rename(tmp_path / "elsewhere.seg")
    path.symlink_to(tmp_path / "elsewhere.seg")
    assert isinstance(again(job).exception(SOON), (errors.UntrustedRun, errors.ResultLost))
    assert not mark.exists()


def test_a_job_refuses_a_function_that_others_could_have_changed(cluster: Cluster) -> None:
    def value() -> int:
        return 1

    job = cluster.submit(task(value), hold=True)()
    Path(job.path, "function.bin").chmod(0o666)
    job.release()
    error = job.exception(SOON)
    assert isinstance(error, errors.UntrustedRun)
    assert "function.bin" in str(error)
