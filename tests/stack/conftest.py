"""Every test in this folder has real clusters in podman's containers, made by the product itself.

Images are named by their content and kept between sessions; containers, networks and volumes are
the session's own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab import Lab

from needed import need

#: What the tests of this folder start.
PROGRAMS = ("podman", "runc", "catatonit", "netavark", "mmdebstrap", "sshd", "ip")

# crun refuses control groups of two kinds, and high limits need CAP_SYS_RESOURCE.
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=16384:16384","nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""
# Waits for the end of the test session, whatever way it ends, then removes what it left.
_GUARD = """
import sys
from pathlib import Path
sys.stdin.read()
from slurm.errors import SlurmError
from slurm.stack import life, record
for index in Path(sys.argv[1]).glob("*/stack.json"):
    try:
        life.destroy(index.parent, print)
    except SlurmError as error:
        print(error)
"""


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """The session's own folder: podman's settings, the index of clusters, their directories."""
    need(*PROGRAMS, root=True)
    folder = Path(tempfile.mkdtemp(prefix="slurm-stack-", dir="/tmp"))
    (folder / "containers.conf").write_text(_CONTAINERS_CONF)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        yield folder
        guard.communicate(timeout=300)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def make_lab(place: Path) -> Callable[..., Lab]:
    """Brings a cluster up from the text of a cluster.toml, under a name of its own."""

    def make(text: str = "") -> Lab:
        name = f"t{uuid.uuid4().hex[:8]}"
        # A port that is taken is replaced by a free one, so the default fits all.
        return Lab(place / name, f'name = "{name}"\n{text}').up()

    return make
