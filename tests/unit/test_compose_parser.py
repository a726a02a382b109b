"""Rendered compose files, read by docker-compose's own parser; it needs no daemon."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_topology_files import CASES, plan

import programs
from slurm.stack.render import rendered, write

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def docker_compose(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return programs.docker_compose(tmp_path_factory.mktemp("docker-compose"))


@pytest.mark.parametrize("platform", ["ubuntu", "mac", "qnap"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.timeout(900)
def test_docker_compose_reads_every_rendered_file(
    case: str, platform: str, docker_compose: list[str], tmp_path: Path
) -> None:
    write(tmp_path, rendered(plan(case), platform))
    subprocess.run(["sh", "./make-secrets.sh"], cwd=tmp_path, check=True, timeout=60)
    services = _read(docker_compose, tmp_path)
    assert {node.hostname for node in plan(case).on_host("")} <= set(services)
    assert services["slurmctld"]["stop_grace_period"] == "2m0s"
    assert services["slurmctld"]["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    if platform == "mac":
        assert services["slurmctld"]["platform"] == "linux/arm64"


@pytest.mark.timeout(900)
def test_docker_compose_reads_the_project_of_every_other_host(
    docker_compose: list[str], tmp_path: Path
) -> None:
    write(tmp_path, rendered(plan("reference-site")))
    found = {
        node.host: _read(docker_compose, tmp_path / "hosts" / node.host)[node.hostname]
        for node in plan("reference-site").joined
    }
    assert found["macbook"]["platform"] == "linux/arm64"
    assert found["nas1"]["volumes"][0]["source"] == "/share/Container/slurm/spool-qnap1"
    assert {service["mem_limit"] for service in found.values()} == {str(2 * 2**30)}


def _read(docker_compose: list[str], folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*docker_compose, "config", "--format", "json"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith(("COMPOSE", "DOCKER"))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "level=warning" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found
