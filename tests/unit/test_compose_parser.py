"""Rendered compose files, read by docker-compose's own parser; it needs no daemon."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

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
    done = subprocess.run(
        [*docker_compose, "--profile", "*", "config", "--format", "json"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith(("COMPOSE", "DOCKER"))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "level=warning" not in done.stderr
    services = json.loads(done.stdout)["services"]
    assert {node.hostname for node in plan(case).nodes} <= set(services)
    assert services["slurmctld"]["stop_grace_period"] == "2m0s"
    assert services["slurmctld"]["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    if platform == "mac":
        assert services["slurmctld"]["platform"] == "linux/arm64"
