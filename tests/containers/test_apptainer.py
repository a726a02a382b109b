"""Apptainer for real: Debian sid's, in a privileged container with Slurm, as an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from programs import free_port, podman

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
IN_THE_IMAGE = "/usr/bin/python3"
#: Apptainer needs a newer libc than this machine may have, so all of it is in the box.
_WANTED = "apptainer,python3,slurmd,slurmctld,slurm-client,squashfuse,fuse3,squashfs-tools"
_USER = r"""
RUN echo 'ada:x:1000:1000::/home/ada:/bin/bash' >> /etc/passwd \
 && echo 'ada:x:1000:' >> /etc/group \
 && mkdir /home/ada && chown 1000:1000 /home/ada
"""


@pytest.fixture(scope="session")
def box(place: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with Slurm and Apptainer of Debian sid."""
    archive = place / "sid.tar"
    fresh = '--aptopt=Acquire::Check-Valid-Until "false"'
    words = ["mmdebstrap", "--quiet", "--variant=apt", fresh, f"--include={_WANTED}", "sid"]
    subprocess.run([*words, str(archive)], check=True, timeout=1200)
    podman("import", "--quiet", str(archive), "localhost/slurm-test/sid:1")
    archive.unlink()
    folder = tmp_path_factory.mktemp("box")
    (folder / "Dockerfile").write_text(f"FROM localhost/slurm-test/sid:1\n{_USER}")
    podman("build", "--quiet", "--tag=localhost/slurm-test/box:1", str(folder))
    return "localhost/slurm-test/box:1"


def test_an_ordinary_user_runs_directories_files_and_images_of_a_registry(
    box: str, base_image: str, app_image: str, tmp_path: Path
) -> None:
    import cloudpickle

    import slurm

    root = tmp_path / "root"
    root.mkdir()
    container = podman("create", base_image, "none")
    podman("export", f"--output={tmp_path}/root.tar", container)
    podman("rm", container)
    subprocess.run(["tar", "-x", "-f", f"{tmp_path}/root.tar", "-C", str(root)], check=True)
    tmp_path.chmod(0o755)
    mounts = {
        str(Path(slurm.__file__).parent): "/sdk/slurm:ro",
        str(Path(cloudpickle.__file__).parent): "/sdk/cloudpickle:ro",
        str(HERE): "/tests:ro",
        str(root): "/images/root",
    }
    words = ["run", "--rm", "--privileged", "--network=host", "--uts=private", "--hostname=box"]
    words += ["--device=/dev/fuse", "--env=PYTHONPATH=/sdk", "--env=PYTHONDONTWRITEBYTECODE=1"]
    words += [f"--volume={source}:{target}" for source, target in mounts.items()]
    words += [box, "bash", "/tests/box.sh", str(free_port()), str(free_port())]
    words += ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    pull = f"apptainer --silent pull --no-https app.sif docker://{app_image}"
    use = f"python3 /tests/in_a_box.py /images/root /home/ada/app.sif {app_image}"
    words += ["env", "HOME=/home/ada", "bash", "-c", f"cd && {pull} >&2 && {use}"]
    done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "has no Python" in found.pop("")
    assert len(found) == 3
    for seen in found.values():
        assert seen["packaging"] == "apptainer"
        assert seen["look"]["A_TOKEN"] == "terces yrev"
        assert seen["look"]["user"] == 1000 != os.getuid()
        assert seen["ranks"] == [0, 2]
        assert seen["array"] == [[n * n, IN_THE_IMAGE] for n in range(3)]
        assert seen["workflow"] == [[[0, IN_THE_IMAGE]], [[49, IN_THE_IMAGE], [64, IN_THE_IMAGE]]]
