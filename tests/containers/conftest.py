"""Every test in this folder has real images: built with podman, pushed to a registry on loopback.

The engines' store, a registry and a Slurm with oci.conf are the session's own, in one folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm import Cluster

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

sys.path.insert(0, str(Path(__file__).parent))

from needed import need
from programs import free_port, podman

#: What the tests of this folder start.
PROGRAMS = ("podman", "buildah", "runc", "docker-registry", "mmdebstrap", "sbatch")

# crun needs control groups of one kind; the defaults for limits are more than a container may
# have. Locks and state of its own keep this store apart from the machine's.
_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=32768:32768"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
lock_type = "file"
tmp_dir = "{place}/libpod"
volume_path = "{place}/volumes"
"""
_STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{place}/graph"
runroot = "{place}/runroot"
"""
_REGISTRY = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {place}/registry}}, delete: {{enabled: true}}}}
http: {{addr: 127.0.0.1:{port}}}
"""
#: Create and start would hang with runc; 22.05 knows no keys about variables.
_OCI_CONF = """
RunTimeQuery="runc --root={place}/runc state %n.%u.%j.%s.%t"
RunTimeRun="runc --root={place}/runc run %n.%u.%j.%s.%t -b %b"
RunTimeKill="runc --root={place}/runc kill -a %n.%u.%j.%s.%t"
RunTimeDelete="runc --root={place}/runc delete --force %n.%u.%j.%s.%t"
"""


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """The session's own folder for engines, registry and caches."""
    need(*PROGRAMS, root=True)
    folder = Path(tempfile.mkdtemp(prefix="slurm-con-", dir="/tmp"))
    files = {"containers.conf": _CONTAINERS_CONF, "storage.conf": _STORAGE_CONF}
    for name, text in files.items():
        (folder / name).write_text(text.format(place=folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder
        podman("rm", "--all", "--force", "--time=0")
    _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder in which the engines have mounted things."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for path in reversed([path for path in mounted if path.startswith(f"{folder}/")]):
        subprocess.run(["umount", "-l", path], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def base_image(place: Path) -> str:
    """A small Debian with Python, made from packages: there is no registry to pull one from."""
    wanted = "python3,dash,coreutils,base-files,base-passwd"
    archive = place / "base.tar"
    words = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={wanted}"]
    subprocess.run([*words, _codename(), str(archive)], check=True, timeout=600)
    podman("import", "--quiet", str(archive), "localhost/slurm-test/base:1")
    archive.unlink()
    return "localhost/slurm-test/base:1"


def _codename() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.split("=")[1] for line in lines if line.startswith("VERSION_CODENAME="))


@pytest.fixture(scope="session")
def registry(place: Path) -> Iterator[str]:
    """A registry on loopback, without TLS: `127.0.0.1:PORT`."""
    port = free_port()
    conf = place / "registry.yml"
    conf.write_text(_REGISTRY.format(place=place, port=port))
    with (place / "registry.log").open("wb") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(conf)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline and server.poll() is None
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="session")
def app_image(base_image: str, registry: str) -> str:
    """An image in the registry, by name and tag."""
    name = f"{registry}/slurm-test/app:1"
    podman("tag", base_image, name)
    podman("push", "--quiet", "--tls-verify=false", name)
    return name


@pytest.fixture(scope="session")
def slurm_files(place: Path) -> dict[str, str]:
    """The session's Slurm can start OCI containers."""
    (place / "runc").mkdir()
    return {"oci.conf": _OCI_CONF.format(place=place)}


@pytest.fixture
def project(tmp_path: Path, base_image: str) -> Path:
    """A folder with a Dockerfile that copies a file into the image."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("first\n")
    (folder / "Dockerfile").write_text(f"FROM {base_image}\nCOPY data.txt /data.txt\n")
    return folder


@pytest.fixture
def make_cluster(
    slurm_cluster: RunningCluster, place: Path, tmp_path: Path
) -> Iterator[Callable[..., Cluster]]:
    """The session's Slurm, with the options of a container as its packaging."""
    made: list[Cluster] = []

    def make(**packaging: Any) -> Cluster:
        given = {"type": "container", "runtime": "podman", "tls_verify": False, **packaging}
        cluster = Cluster(job_base_dir=tmp_path / "jobs", packaging=given, time="5m", mem="200M")
        made.append(cluster)
        cluster.__enter__()
        return cluster

    yield make
    for cluster in reversed(made):
        cluster.__exit__(None, None, None)
