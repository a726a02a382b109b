"""Rendered compose files, read by docker-compose's own parser; it needs no daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_topology_files import CASES, plan

from slurm.stack.render import rendered, write

pytestmark = pytest.mark.full

_SOURCE = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
    "http://deb.debian.org/debian trixie main\n"
)


@pytest.fixture(scope="module")
def docker_compose(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """docker-compose v2: the installed one, else Debian's package, unpacked."""
    found = shutil.which("docker-compose")
    for argv in (["docker", "compose"], [found or "docker-compose"]):
        if shutil.which(argv[0]) and _says_v2([*argv, "version", "--short"]):
            return argv
    place = tmp_path_factory.mktemp("docker-compose")
    for folder in ("lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True)
    (place / "sources").write_text(_SOURCE)
    apt = [
        "apt-get", "-qq",
        "-o", f"Dir::Etc::SourceList={place}/sources", "-o", "Dir::Etc::SourceParts=/dev/null",
        "-o", f"Dir::State::lists={place}/lists", "-o", f"Dir::Cache={place}/cache",
        "-o", "APT::Sandbox::User=root", "-o", "Acquire::Check-Valid-Until=false",
    ]  # fmt: skip
    subprocess.run([*apt, "update"], check=True, timeout=300)
    subprocess.run([*apt, "download", "docker-compose"], cwd=place, check=True, timeout=300)
    (package,) = place.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(place / "x")], check=True, timeout=60)
    return [str(place / "x/usr/libexec/docker/cli-plugins/docker-compose")]


def _says_v2(argv: list[str]) -> bool:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return done.returncode == 0 and done.stdout.lstrip("v").startswith("2.")


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
