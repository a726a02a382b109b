"""Containers the other ways: over ssh, embedded, packed, in allocations, and on another Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import work

from programs import podman
from slurm import Cluster, PythonMismatch

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

pytestmark = pytest.mark.full

Make = Callable[..., Cluster]
IN_THE_IMAGE = "/usr/bin/python3"


@pytest.fixture(scope="session")
def newer_image(place: Path, registry: str) -> str:
    """An image with another Python than the client's."""
    archive = place / "newer.tar"
    suite = "bookworm" if sys.version_info >= (3, 13) else "trixie"
    wanted = "python3,dash,coreutils,base-files,base-passwd"
    words = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={wanted}", suite]
    subprocess.run([*words, str(archive)], check=True, timeout=600)
    name = f"{registry}/slurm-test/newer:1"
    podman("import", "--quiet", str(archive), name)
    archive.unlink()
    podman("push", "--quiet", "--tls-verify=false", name)
    return name


def test_a_function_of_a_module_runs_on_another_python(
    make_cluster: Make, newer_image: str
) -> None:
    make_cluster(image=newer_image)
    assert work.version().result(timeout=120) != list(sys.version_info[:2])


def test_code_by_value_is_refused_on_another_python_by_both_names(
    make_cluster: Make, newer_image: str
) -> None:
    cluster = make_cluster(image=newer_image)
    here = "{}.{}".format(*sys.version_info)
    with pytest.raises(PythonMismatch, match=f"Python {here}, and this job runs Python 3") as said:
        cluster.submit(lambda: 1)().result(timeout=120)
    assert "an image that has it" in str(said.value.hint)
    with pytest.raises(PythonMismatch):
        work.call(lambda: 1).result(timeout=120)


def test_a_known_image_of_another_python_is_refused_before_submission(
    make_cluster: Make, newer_image: str, project: Path, registry: str
) -> None:
    (project / "Dockerfile").write_text(f"FROM {newer_image}\nCOPY data.txt /\n")
    cluster = make_cluster(image=f"{registry}/slurm-test/on-newer:1", context=str(project))
    with pytest.raises(PythonMismatch, match=r"the image .* has Python 3"):
        cluster.submit(lambda: 1)()


def test_a_packed_map_runs_in_the_image(make_cluster: Make, app_image: str) -> None:
    make_cluster(image=app_image)
    packed = work.square.map(range(20), pack=10)
    assert packed.get_results(timeout=120) == [(n * n, IN_THE_IMAGE) for n in range(20)]


def test_steps_of_an_allocation_run_in_the_image(make_cluster: Make, app_image: str) -> None:
    cluster = make_cluster(image=app_image)
    with cluster.allocate(ntasks=2, time="5m"):
        assert work.square(3).result(timeout=120) == (9, IN_THE_IMAGE)
        assert work.rank.with_options(ntasks=2)().result(timeout=120) == (0, 2)


def test_workers_of_an_executor_run_in_the_image(make_cluster: Make, app_image: str) -> None:
    cluster = make_cluster(image=app_image)
    with cluster.executor(max_workers=1, time="5m") as pool:
        assert pool.submit(work.square.unwrapped, 3).result(timeout=120) == (9, IN_THE_IMAGE)


def test_a_function_that_uses_too_much_memory_is_stopped(
    make_cluster: Make, app_image: str
) -> None:
    from slurm import JobError

    make_cluster(image=app_image)
    with pytest.raises(JobError, match="memory"):
        work.eat(400).result(timeout=120)


@pytest.fixture
def embedded(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes clusters on an embedded scheduler of the test's own."""
    folder = tempfile.mkdtemp(prefix="emb-", dir="/tmp")
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", folder)

    def make(**packaging: Any) -> Cluster:
        given = {"type": "container", "tls_verify": False, **packaging}
        return Cluster("embedded", job_base_dir=tmp_path / "jobs", packaging=given)

    yield make
    shutil.rmtree(folder, ignore_errors=True)


def test_containers_and_workflows_run_on_the_embedded_scheduler(
    embedded: Any, app_image: str
) -> None:
    with embedded(image=app_image):
        assert work.square(3).result(timeout=120) == (9, IN_THE_IMAGE)
        waited, left = work.flow(1).result(timeout=180)  # type: ignore[call-arg]
        assert waited == [(0, IN_THE_IMAGE)]
        assert list(left) == [(49, IN_THE_IMAGE), (64, IN_THE_IMAGE)]


@pytest.fixture
def over_ssh(
    slurm_cluster: RunningCluster, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Makes clusters behind a real sshd; this process cannot reach the Slurm itself."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "ssh"))
    from server import Sshd

    from slurm.api import ssh

    names = ("SLURM_CONF", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "PATH")
    server = Sshd(env={name: os.environ[name] for name in names})
    monkeypatch.setenv("SLURM_SDK_SSH_DIR", str(server.folder))
    monkeypatch.delenv("SLURM_CONF")

    def make(**packaging: Any) -> Cluster:
        given = {"type": "container", "runtime": "podman", "tls_verify": False, **packaging}
        base = str(tmp_path / "jobs")
        return Cluster(job_base_dir=base, packaging=given, time="5m", **server.arguments())

    yield make
    for backend in list(ssh._backends.values()):
        backend.close()
    ssh._backends.clear()
    server.remove()


def test_over_ssh_the_code_goes_as_a_snapshot_into_the_image(over_ssh: Any, app_image: str) -> None:
    with over_ssh(image=app_image) as cluster:
        job = work.square(3)
        assert job.result(timeout=120) == (9, IN_THE_IMAGE)
        waited, _ = work.flow(1).result(timeout=180)  # type: ignore[call-arg]
        assert waited == [(0, IN_THE_IMAGE)]
        assert cluster.explain(work.square)(1).by == "reference"
