"""Clusters of podman's containers by other programs: docker, docker-compose, podman-compose."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Lab, until

import programs
from slurm.stack import health, life
from slurm.stack.build import ensure_image
from slurm.stack.image import images
from slurm.stack.plan import container_plan
from slurm.stack.ports import free_ports
from slurm.stack.read import parse_topology
from slurm.stack.render import rendered, write
from slurm.stack.site import look

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def socket(place: Path) -> Iterator[str]:
    """podman's service, which speaks docker's language."""
    path = place / "podman.sock"
    service = subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{path}"])
    until(path.exists, lambda: "podman's service does not come up")
    yield f"unix://{path}"
    service.terminate()
    service.wait(timeout=60)


def test_up_down_and_destroy_go_through_docker_as_well(
    socket: str,
    make_lab: Callable[..., Lab],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docker = programs.docker(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(docker).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", socket)
    lab = make_lab('engine = "docker"\n')
    assert health.look(lab.directory).state == "up"
    waiting = lab.batch("true", "--begin=now+1hour")
    life.down(lab.directory, lab.said.append)
    lab.up()
    assert lab.user("squeue", "-h", "-o", "%i") == waiting
    life.destroy(lab.directory, lab.said.append)
    mine = ("--filter", f"label=slurm-sdk.cluster={lab.name}", "--quiet")
    assert lab.podman("ps", "--all", *mine) == lab.podman("volume", "ls", *mine) == ""


@pytest.mark.parametrize("program", ["docker-compose", "podman-compose"])
def test_rendered_files_alone_are_a_cluster_that_runs_jobs(
    program: str, socket: str, place: Path, tmp_path: Path
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    login, prometheus = free_ports(2)
    lab = Lab(
        place / name,
        f'name = "{name}"\n[login]\nport = {login}\n'
        f"[monitoring]\nenabled = true\ngrafana = false\nprometheus_port = {prometheus}\n",
    )
    plan = container_plan(parse_topology(lab.text), look())
    write(lab.directory, rendered(plan))
    for image in images(plan).values():
        ensure_image("podman", image, plan.suite)
    subprocess.run(["./make-secrets.sh"], cwd=lab.directory, check=True, timeout=60)
    compose = [str(Path(sys.executable).with_name("podman-compose"))]
    if program == "docker-compose":
        compose = programs.docker_compose(tmp_path)

    def call(*words: str) -> None:
        environment = {**os.environ, "DOCKER_HOST": socket}
        subprocess.run(
            [*compose, *words], cwd=lab.directory, env=environment, check=True, timeout=300
        )

    try:
        call("up", "-d")
        until(lambda: len(nodes(lab, "idle")) == 2, lambda: nodes(lab))
        job = lab.batch("true")
        lab.wait_empty()
        assert lab.accounted(job) == ["COMPLETED"]
        address = f"127.0.0.1:{prometheus}"
        until(lambda: lab.targets(address).get("slurm") == "up", lambda: lab.targets(address))
    finally:
        call("down", "-v")
    assert lab.podman("ps", "--all", "--quiet", "--filter", f"name={name}-") == ""


def nodes(lab: Lab, state: str = "") -> list[str]:
    """The nodes, or those in a state; none while the cluster comes up."""
    words = ["podman", "exec", f"{lab.name}-login", "sinfo", "-N", "-h", "-o", "%N %T"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return [line for line in done.stdout.splitlines() if line.endswith(state)]
