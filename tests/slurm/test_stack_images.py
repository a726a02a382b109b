"""Images of every release, built for real, and the files that their own Slurm accepts."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from needed import need
from slurm.stack.build import ensure_image
from slurm.stack.image import images
from slurm.stack.plan import Plan, container_plan
from slurm.stack.read import parse_topology
from slurm.stack.render import rendered, write

pytestmark = pytest.mark.full

# The default runtime refuses hybrid cgroups, and high limits need CAP_SYS_RESOURCE.
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=16384:16384","nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""
SLURM = {"22.05": "22.05.", "24.11": "24.11.", "26.05": "26.05."}


@pytest.fixture(scope="module", autouse=True)
def _podman() -> Iterator[None]:
    need("podman", "buildah", "runc", "mmdebstrap")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        conf = Path(folder) / "containers.conf"
        conf.write_text(CONTAINERS_CONF)
        patch.setenv("CONTAINERS_CONF", str(conf))
        yield


def plan(version: str) -> Plan:
    return container_plan(parse_topology(f'version = "{version}"'))


def inside(image: str, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["podman", "run", "--rm", "--network=none", *options, image, "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("version", SLURM)
def test_the_containerfile_builds_and_its_slurm_accepts_the_rendered_files(
    version: str, tmp_path: Path
) -> None:
    image = images(plan(version))["slurm"]
    ensure_image("podman", image, plan(version).suite)
    assert ensure_image("podman", image, plan(version).suite) is False

    assert SLURM[version] in inside(image.name, "slurmctld -V").stdout
    secrets = inside(image.name, "ls /etc/munge/munge.key /etc/ssh/ssh_host_* /etc/slurm/* 2>&1")
    assert secrets.stdout.count("No such file") == 3, secrets.stdout
    if version == "26.05":
        found = inside(image.name, "dpkg-query -W -f '${Version}' libmariadb3")
        assert found.stdout.startswith("1:11.8.6"), found.stdout

    write(tmp_path, rendered(plan(version)))
    mount = f"--volume={tmp_path}/shared:/etc/slurm:ro"
    assert inside(image.name, "scontrol show hostnames 'n[1-2]'", mount).stdout == "n1\nn2\n"


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("target", ["database", "monitoring"])
def test_database_and_monitoring_are_targets_of_the_same_file(target: str) -> None:
    image = images(plan("24.11"))[target]
    ensure_image("podman", image, "trixie")
    program = {"database": "mariadbd", "monitoring": "prometheus"}[target]
    assert inside(image.name, f"{program} --version").returncode == 0
    assert inside(image.name, "ls -A /var/lib/mysql 2>/dev/null").stdout == ""
