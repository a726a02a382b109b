"""Images that are built: when, what of them is pinned, and what a failed build says."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import work

from programs import free_port, podman
from slurm import BuildFailed, Cluster, ContainerFailed, ImageUnusable, PackagingError
from slurm.packaging import progress

Make = Callable[..., Cluster]


@pytest.fixture
def told() -> Iterator[list[tuple[str, str]]]:
    """The steps and lines that packaging told."""
    lines: list[tuple[str, str]] = []
    with progress.listening(lambda event: lines.append((event.stage, event.text))):
        yield lines


def steps(told: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(step for step, _ in told))


def manifest(registry: str, name: str, reference: str) -> str:
    """The digest that the registry has for a name."""
    kinds = ["vnd.oci.image.manifest.v1+json", "vnd.docker.distribution.manifest.v2+json"]
    accept = ", ".join(f"application/{kind}" for kind in kinds)
    url = f"http://{registry}/v2/{name}/manifests/{reference}"
    asked = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return str(answer.headers["Docker-Content-Digest"])


def test_what_runs_is_the_digest_that_was_built_and_only_a_change_builds_anew(
    make_cluster: Make, project: Path, registry: str, told: list[tuple[str, str]], tmp_path: Path
) -> None:
    name = f"slurm-test/{tmp_path.name.replace('_', '-')}"
    cluster = make_cluster(image=f"{registry}/{name}:dev", dockerfile=str(project / "Dockerfile"))
    assert work.read("/data.txt").result(timeout=120) == "first\n"
    assert steps(told) == ["build", "push"]
    assert any("COPY data.txt" in line for _, line in told)
    plan = cluster.explain(work.read)("/data.txt")
    pinned = plan.environment.details["image"]
    assert pinned == f"{registry}/{name}@{manifest(registry, name, 'dev')}"
    assert pinned in plan.script

    told.clear()
    started = time.perf_counter()
    cluster.explain(work.read)("/data.txt")
    assert time.perf_counter() - started < 5
    # Another one takes the tag: the job runs what was built.
    podman("tag", "localhost/slurm-test/base:1", f"{registry}/{name}:dev")
    podman("push", "--quiet", "--tls-verify=false", f"{registry}/{name}:dev")
    assert work.read("/data.txt").result(timeout=120) == "first\n"
    assert told == []

    (project / "data.txt").write_text("second\n")
    assert work.read("/data.txt").result(timeout=120) == "second\n"
    assert steps(told) == ["build", "push"]


def test_secrets_of_a_build_are_in_no_layer_log_or_argument(
    make_cluster: Make,
    project: Path,
    registry: str,
    told: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("INDEX_TOKEN", "hush-4711")
    recipe = (project / "Dockerfile").read_text()
    run = "RUN --mount=type=secret,id=INDEX_TOKEN cat /run/secrets/INDEX_TOKEN > /dev/stderr"
    (project / "Dockerfile").write_text(f"{recipe}ARG SIZE\n{run}\nRUN echo $SIZE > /size\n")
    cluster = make_cluster(
        image=f"{registry}/slurm-test/hush:1",
        context=str(project),
        build_secrets=["INDEX_TOKEN"],
        build_args={"SIZE": "large"},
    )
    job = cluster.submit(work.read)("/size")
    assert job.result(timeout=120) == "large\n"
    assert any("***" in line for _, line in told)
    assert not any("hush-4711" in line for _, line in told)
    image = cluster.explain(work.read)("/size").environment.details["image"]
    assert "hush-4711" not in podman("image", "inspect", image) + podman("history", image)
    for blob in Path(os.environ["CONTAINERS_CONF"]).parent.glob("registry/**/data"):
        data = blob.read_bytes()
        assert b"hush-4711" not in (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    words = ["grep", "-r", "-l", "hush-4711", str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True).stdout == ""


def test_a_failed_build_shows_its_last_lines_and_the_command(
    make_cluster: Make, project: Path, registry: str
) -> None:
    recipe = (project / "Dockerfile").read_text()
    (project / "Dockerfile").write_text(f"{recipe}RUN echo the cause >&2; exit 3\n")
    make_cluster(image=f"{registry}/slurm-test/bad:1", context=str(project))
    with pytest.raises(BuildFailed) as caught:
        work.square(2)
    assert "the cause" in "\n".join(caught.value.evidence)
    command = str(caught.value.hint).partition(": ")[2]
    again = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert again.returncode != 0 and "the cause" in again.stderr + again.stdout


def test_a_registry_that_is_down_is_said(make_cluster: Make, project: Path) -> None:
    make_cluster(image=f"127.0.0.1:{free_port()}/x:1", context=str(project))
    with pytest.raises(BuildFailed, match="push ended with exit code") as caught:
        work.square(2)
    assert "is the registry up?" in str(caught.value.hint)
    assert "refused" in "\n".join(caught.value.evidence)


def test_an_image_without_python_is_refused_before_submission(
    make_cluster: Make, project: Path, registry: str
) -> None:
    (project / "Dockerfile").write_text("FROM scratch\nCOPY data.txt /data.txt\n")
    make_cluster(image=f"{registry}/slurm-test/bare:1", context=str(project))
    with pytest.raises(ImageUnusable, match="has no program 'python3'"):
        work.square(2)


@pytest.mark.parametrize("runtime", ["podman", pytest.param("oci", marks=pytest.mark.full)])
def test_an_existing_image_without_python_is_said_by_the_job(
    runtime: str, make_cluster: Make, project: Path, registry: str
) -> None:
    (project / "Dockerfile").write_text("FROM scratch\nCOPY data.txt /data.txt\n")
    name = f"{registry}/slurm-test/without:1"
    podman("build", "--quiet", f"--tag={name}", str(project))
    podman("push", "--quiet", "--tls-verify=false", name)
    make_cluster(image=name, runtime=runtime)
    with pytest.raises(ContainerFailed, match="has no Python") as caught:
        work.square(2).result(timeout=120)
    assert caught.value.node


def test_an_image_for_another_machine_is_refused(
    make_cluster: Make, project: Path, registry: str
) -> None:
    make_cluster(image=f"{registry}/slurm-test/arm:1", context=str(project), platform="linux/arm64")
    with pytest.raises((ImageUnusable, BuildFailed)) as caught:
        work.square(2)
    assert re.search("linux/arm64|platform", str(caught.value))


def test_a_dockerfile_that_is_not_there_is_named(make_cluster: Make, tmp_path: Path) -> None:
    make_cluster(image="x:1", dockerfile=str(tmp_path / "Dockerfil"))
    with pytest.raises(PackagingError, match=re.escape(str(tmp_path / "Dockerfil"))):
        work.square(2)


@pytest.mark.full
def test_buildah_builds_as_podman_does(make_cluster: Make, project: Path, registry: str) -> None:
    make_cluster(image=f"{registry}/slurm-test/buildah:1", context=str(project), engine="buildah")
    assert work.read("/data.txt").result(timeout=120) == "first\n"


@pytest.mark.full
def test_an_image_that_was_not_pushed_runs_on_this_machine(
    make_cluster: Make, project: Path
) -> None:
    make_cluster(image="slurm-test-local:1", context=str(project))
    assert work.read("/data.txt").result(timeout=120) == "first\n"


@pytest.mark.full
def test_two_clients_build_an_image_once(
    make_cluster: Make, project: Path, registry: str, told: list[tuple[str, str]]
) -> None:
    import concurrent.futures
    import contextvars

    cluster = make_cluster(image=f"{registry}/slurm-test/once:1", context=str(project))

    def submit(_: int) -> Any:
        return cluster.submit(work.read)("/data.txt")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(contextvars.copy_context().run, submit, n) for n in range(2)]
        assert [job.result().result(timeout=120) for job in jobs] == ["first\n"] * 2
    assert len([line for step, line in told if step == "build" and "STEP 1" in line]) == 1
