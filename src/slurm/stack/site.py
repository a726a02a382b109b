"""What is found where a cluster will run: GPUs, cgroups, the calling user, what kind of host."""

from __future__ import annotations

import os
import platform as machine
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from slurm.stack.topology import User

SOMEBODY = User("user", 1000)


@dataclass(frozen=True)
class Gpu:
    """One GPU: who made it, its type as jobs ask for it, its device file."""

    vendor: str
    type: str
    file: str


@dataclass(frozen=True)
class Site:
    """The facts about a host that a plan needs; the defaults are those of an ordinary Linux host.

    `subnet` is one that was found free; without it the first that fits the cluster's name.
    `cgroup` is `v1`, `v2` or `none`: what may hold jobs to their memory. `without` names services
    whose image cannot be had here. `joined_gpus` are those of other hosts, by the host's name, as
    they were found when it joined.
    """

    user: User = SOMEBODY
    platform: str = "ubuntu"
    cgroup: str = "v2"
    gpus: tuple[Gpu, ...] = ()
    subnet: str = ""
    without: tuple[str, ...] = ()
    joined_gpus: dict[str, tuple[Gpu, ...]] = field(default_factory=dict)

    def gpus_of(self, host: str) -> tuple[Gpu, ...]:
        """The GPUs of a host; the empty name is the host where `up` runs."""
        return self.joined_gpus.get(host, ()) if host else self.gpus


def look() -> Site:
    """This host's facts; nothing is started or changed."""
    return Site(calling_user(), host_platform(), cgroup_version(), find_gpus())


def calling_user() -> User:
    """Who calls; root and accounts of the system become `user` with the first ordinary id."""
    import pwd

    uid = int(os.environ.get("SUDO_UID") or os.geteuid())
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        entry = None
    if entry is None or not 1000 <= uid <= 59999:
        return SOMEBODY
    name = entry.pw_name.lower()
    return User(name if re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", name) else "user", uid)


def host_platform(system: str = "", qnap_mark: Path = Path("/etc/config/qpkg.conf")) -> str:
    """`mac`, `qnap` or `ubuntu`, which stands for every other Linux."""
    if (system or machine.system()) == "Darwin":
        return "mac"
    return "qnap" if qnap_mark.exists() else "ubuntu"


def cgroup_version(mount: Path = Path("/sys/fs/cgroup")) -> str:
    """Which cgroups have a memory controller here."""
    try:
        if "memory" in (mount / "cgroup.controllers").read_text().split():
            return "v2"
    except OSError:
        pass
    return "v1" if (mount / "memory" / "cgroup.procs").exists() else "none"


#: Lists the GPUs of a host, one a line.
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader")


def find_gpus() -> tuple[Gpu, ...]:
    """This host's GPUs, NVIDIA's as nvidia-smi lists them, AMD's by their device files."""
    program = shutil.which(NVIDIA_SMI[0])
    if program:
        argv = [program, *NVIDIA_SMI[1:]]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ()
        if done.returncode == 0:
            return parse_nvidia(done.stdout)
    return amd_gpus()


def parse_nvidia(text: str) -> tuple[Gpu, ...]:
    """GPUs from what `NVIDIA_SMI` prints."""
    rows = re.findall(r"^\s*(\d+)\s*,\s*(\S.*?)\s*$", text, re.MULTILINE)
    return tuple(Gpu("nvidia", gpu_type(name), f"/dev/nvidia{index}") for index, name in rows)


def gpu_type(name: str) -> str:
    """`h200` of `NVIDIA H200`: the word that Slurm's own detection finds within the name."""
    words = re.sub(r"^(nvidia|amd|tesla|geforce|quadro)\s+", "", name.strip().lower())
    words = re.sub(r"^(tesla|geforce)\s+", "", words)
    return re.sub(r"[^a-z0-9.-]+", "_", words).strip("_") or "gpu"


def amd_gpus(sysfs: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> tuple[Gpu, ...]:
    """AMD's GPUs, from what the kernel's driver tells about them."""
    found = []
    for node in sorted(sysfs.glob("*/properties"), key=lambda path: int(path.parent.name)):
        properties = dict(
            line.split(maxsplit=1) for line in node.read_text().splitlines() if " " in line
        )
        minor = int(properties.get("drm_render_minor", 0))
        if int(properties.get("simd_count", 0)) and minor:
            kind = (node.parent / "name").read_text().strip() or "amd"
            found.append(Gpu("amd", gpu_type(kind), f"/dev/dri/renderD{minor}"))
    return tuple(found)
