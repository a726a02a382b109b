"""Jobs in containers on a real Slurm: what runs, where, and what is left when they end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import work

from slurm import Cluster, ContainerFailed, JobCancelled

Make = Callable[..., Cluster]
IN_THE_IMAGE = "/usr/bin/python3"


@pytest.mark.parametrize("runtime", ["podman", "oci"])
def test_a_function_runs_in_an_image_that_exists(
    runtime: str,
    make_cluster: Make,
    app_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_TOKEN", "very secret")
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":/of/this/process")
    data = tmp_path / "data"
    data.mkdir()
    cluster = make_cluster(
        image=app_image,
        runtime=runtime,
        mounts=[f"{data}:/data"],
        env={"COLOUR": "deep blue"},
    )
    monkeypatch.chdir(tmp_path)
    job = cluster.submit(work.look, secrets=["A_TOKEN"], env={"N": "1"})("COLOUR", "A_TOKEN", "N")
    seen = job.result(timeout=120)
    assert seen["python"] == IN_THE_IMAGE
    assert (seen["COLOUR"], seen["A_TOKEN"], seen["N"]) == ("eulb peed", "terces yrev", "1")
    assert seen["cwd"] == str(tmp_path)
    assert seen["user"] == os.getuid()
    # The image's own, not the one of this process.
    assert "/of/this/process" not in str(seen["path"])
    cluster.submit(work.write)("/data/file").result(timeout=120)
    assert (data / "file").read_text() == "written\n"
    held = subprocess.run(
        ["grep", "-r", "--devices=skip", "-l", "very secret", str(tmp_path / "jobs")],
        capture_output=True,
        text=True,
    )
    assert held.stdout == ""


def test_ranks_in_containers_give_one_result(make_cluster: Make, app_image: str) -> None:
    cluster = make_cluster(image=app_image)
    assert cluster.submit(work.rank, ntasks=2, nodes=2)().result(timeout=120) == (0, 2)


def test_an_array_runs_in_the_image(make_cluster: Make, app_image: str) -> None:
    make_cluster(image=app_image)
    values = work.square.map(range(4)).get_results(timeout=120)
    assert values == [(n * n, IN_THE_IMAGE) for n in range(4)]


def test_the_children_of_a_workflow_run_in_its_image_also_unawaited(
    make_cluster: Make, app_image: str
) -> None:
    make_cluster(image=app_image)
    waited, left = work.flow(2).result(timeout=180)  # type: ignore[call-arg]
    assert waited == [(0, IN_THE_IMAGE), (1, IN_THE_IMAGE)]
    assert list(left) == [(49, IN_THE_IMAGE), (64, IN_THE_IMAGE)]


def test_a_cancelled_job_leaves_no_container_behind(
    make_cluster: Make, app_image: str, tmp_path: Path
) -> None:
    make_cluster(image=app_image)
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    job = work.sleep_with_a_child(mark)
    _until(lambda: _processes(mark) > 0)
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout=60)
    _until(lambda: _processes(mark) == 0)


def _processes(mark: str) -> int:
    found = subprocess.run(["pgrep", "-f", f"{mark}'; time.sleep"], capture_output=True, text=True)
    return len(found.stdout.split())


def _until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_image_that_no_registry_has_is_said_by_the_job(
    make_cluster: Make, registry: str
) -> None:
    make_cluster(image=f"{registry}/slurm-test/nothing:1")
    with pytest.raises(ContainerFailed) as caught:
        work.square(2).result(timeout=120)
    assert "there is no image" in str(caught.value)
    assert caught.value.hint
