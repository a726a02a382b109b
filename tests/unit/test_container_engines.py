"""The command lines of podman, docker and buildah, and the names of images."""

from __future__ import annotations

import pytest

from slurm.errors import PackagingError
from slurm.packaging.container import engines
from slurm.packaging.container.engines import Build

_ALL = Build(
    engine="podman",
    dockerfile="/p/Dockerfile",
    context="/p",
    tag="ghcr.io/me/app:dev",
    build_args={"CUDA": "12.4", "NOTE": "two words"},
    secrets=["TOKEN"],
    platform="linux/amd64",
    no_cache=True,
    tls_verify=False,
    extra=["--target=run"],
)


def test_podman_gets_every_option_of_a_build_and_no_value_of_a_secret() -> None:
    assert engines.build_command(_ALL, "/t/id") == [
        "podman", "build", "--file=/p/Dockerfile", "--tag=ghcr.io/me/app:dev", "--iidfile=/t/id",
        "--platform=linux/amd64", "--build-arg=CUDA=12.4", "--build-arg=NOTE=two words",
        "--secret=id=TOKEN,env=TOKEN", "--no-cache", "--tls-verify=false", "--target=run", "/p",
    ]  # fmt: skip


def test_docker_has_no_flag_for_tls() -> None:
    build = Build("docker", "/p/Dockerfile", "/p", "app:1", tls_verify=False)
    assert engines.build_command(build, "/t/id") == [
        "docker", "build", "--file=/p/Dockerfile", "--tag=app:1", "--iidfile=/t/id",
        "--progress=plain", "/p",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("podman", ["podman", "push", "--tls-verify=false", "--digestfile=/t/d", "r:5000/a:1"]),
        ("buildah", ["buildah", "push", "--tls-verify=false", "--digestfile=/t/d", "r:5000/a:1"]),
        ("docker", ["docker", "push", "r:5000/a:1"]),
    ],
)
def test_each_engine_pushes_in_its_own_words(engine: str, words: list[str]) -> None:
    assert engines.push_command(engine, "r:5000/a:1", "/t/d", tls_verify=False) == words


def test_the_digest_of_a_push_is_read_from_what_docker_says() -> None:
    digest = "sha256:" + "ab" * 32
    said = f"The push refers to repository [r/a]\n1: Pushed\n1: digest: {digest} size: 528"
    assert engines.pushed_digest(said) == digest
    assert engines.pushed_digest("denied") is None


@pytest.mark.parametrize(
    ("image", "there"),
    [
        ("ghcr.io/me/app", True),
        ("localhost:5000/app", True),
        ("127.0.0.1:5000/app:1", True),
        ("me/app", False),
        ("localhost/app", False),
        ("app:1.2", False),
    ],
)
def test_a_registry_is_known_by_its_host(image: str, there: bool) -> None:
    assert engines.has_registry(image) is there


def test_a_digest_takes_the_place_of_the_tag() -> None:
    digest = "sha256:" + "0" * 64
    assert engines.pinned("localhost:5000/me/app:dev", digest) == f"localhost:5000/me/app@{digest}"
    assert engines.pinned("localhost:5000/app", digest) == f"localhost:5000/app@{digest}"


@pytest.mark.parametrize("image", ["App:1", "a b", "-v", "app;rm", "app:$(x)", "", "a\nb", "a/"])
def test_what_can_be_no_image_is_refused(image: str) -> None:
    with pytest.raises(PackagingError, match="is no name of an image"):
        engines.check_image(image)


@pytest.mark.parametrize(
    "image",
    ["python:3.12-slim", "nvcr.io/nvidia/pytorch:25.09-py3", "localhost:5000/a_b/c", "/d/x.sif"],
)
def test_names_and_files_are_images(image: str) -> None:
    assert engines.check_image(image) == image


def test_an_engine_that_does_not_answer_is_passed_over() -> None:
    assert engines.find_engine("auto", lambda name: name == "buildah") == "buildah"


def test_no_engine_at_all_is_said_with_the_fix() -> None:
    with pytest.raises(PackagingError, match="none works here"):
        engines.find_engine("auto", lambda _: False)
    with pytest.raises(PackagingError, match="engine='docker'"):
        engines.find_engine("docker", lambda _: False)
