"""Every program from outside that the SDK and its tests start: its package and who needs it.

`hack/setup-packages` loads this file by itself, with nothing installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from glob import glob
from typing import NamedTuple

# ---- what needs programs ------------------------------------------------------------------------

NATIVE = "engine=native"
ACCOUNTING = "engine=native with accounting"
PODMAN = "engine=podman"
DOCKER = "engine=docker"
BASE_IMAGE = "an image without a registry"
IMAGES = "building images"
CONTAINER_RUNS = "jobs in containers"
CODE = "finding the files of a project"
WHEEL = "packaging=wheel"
SSH = "clusters over SSH"
LOGIN_NODE = "the login node of a cluster in containers"
NOTICES = "notifications"
GPUS = "GPUs of this host"
SUBMITIT = "submitit's RsyncSnapshot"
SLURM = "Slurm itself"

#: The targets of make that run tests; `hack/setup-packages` installs what these need.
T_UNIT, T_EMBEDDED, T_DOCS = "make test-unit", "make test-embedded", "make test-docs"
T_SLURM, T_SSH, T_SUBMITIT = "make test-slurm", "make test-ssh", "make test-submitit"
T_BROWSER, T_CONTAINERS = "make test-browser", "make test-containers"
T_BRIDGE, FAULTS = "make test-bridge", "make faults"
_ON_SLURM = (T_SLURM, T_SSH, T_SUBMITIT, T_BROWSER, T_CONTAINERS, T_BRIDGE)
#: Tiers of `make test` whose programs Debian has.
TIERS = (T_UNIT, T_EMBEDDED, T_DOCS, *_ON_SLURM)

#: Where daemons and helpers lie that an ordinary user's PATH lacks.
_PLACES = ("/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin", "/sbin", "/bin")


class Program(NamedTuple):
    """One program, or a file that a program loads."""

    name: str
    #: Debian's package, "" where Debian has none.
    package: str
    needed_by: tuple[str, ...]
    #: What does not work without it: the sentence for who lacks it.
    without: str
    #: Patterns of files that stand for it where it is not on the PATH.
    places: tuple[str, ...] = ()


def _helpers(name: str) -> tuple[str, ...]:
    folders = ("/usr/local/libexec", "/usr/local/lib", "/usr/libexec", "/usr/lib")
    return tuple(f"{folder}/podman/{name}" for folder in folders)


_JWT = "/usr/lib*/*/slurm-wlm/auth_jwt.so"
PROGRAMS = (
    # Slurm
    Program("slurmctld", "slurmctld", (NATIVE, *_ON_SLURM), "no controller can be started"),
    Program("slurmd", "slurmd", (NATIVE, *_ON_SLURM), "no node can be started"),
    Program("slurmdbd", "slurmdbd", (ACCOUNTING, *_ON_SLURM), "there is no accounting"),
    Program("sbatch", "slurm-client", (NATIVE, SLURM, T_UNIT, *_ON_SLURM), "no job is submitted"),
    Program("srun", "slurm-client", (NATIVE, SLURM, *_ON_SLURM), "no step is started"),
    Program("squeue", "slurm-client", (SLURM, *_ON_SLURM), "the queue cannot be read"),
    Program("scancel", "slurm-client", (SLURM, *_ON_SLURM), "no job can be cancelled"),
    Program("scontrol", "slurm-client", (NATIVE, SLURM, *_ON_SLURM), "jobs cannot be held"),
    Program("sinfo", "slurm-client", (NATIVE, SLURM, *_ON_SLURM), "nodes cannot be listed"),
    Program("sacct", "slurm-client", (ACCOUNTING, SLURM, *_ON_SLURM), "past jobs are unknown"),
    Program("sacctmgr", "slurm-client", (ACCOUNTING, *_ON_SLURM), "accounts cannot be made"),
    Program("sdiag", "slurm-client", (SLURM, *_ON_SLURM), "the scheduler's load is unknown"),
    Program("sprio", "slurm-client", (SLURM, *_ON_SLURM), "priorities are not explained"),
    Program("sshare", "slurm-client", (SLURM, *_ON_SLURM), "fair shares are not shown"),
    Program("slurmrestd", "slurmrestd", (T_CONTAINERS, T_BRIDGE), "nothing answers over REST"),
    Program("auth_jwt.so", "slurm-wlm-jwt-plugin", (T_BROWSER, T_BRIDGE),
            "Slurm gives no tokens", (_JWT,)),
    Program("munged", "munge", (NATIVE, *_ON_SLURM), "daemons cannot prove who they are"),
    Program("mariadbd", "mariadb-server", (ACCOUNTING, *_ON_SLURM), "accounting has no database"),
    Program("mariadb-install-db", "mariadb-server", (ACCOUNTING, *_ON_SLURM),
            "accounting has no database"),
    # containers
    Program("podman", "podman", (PODMAN, T_SLURM, T_CONTAINERS), "no container can be made"),
    Program("runc", "runc", (PODMAN, T_SLURM, T_CONTAINERS), "podman cannot start a container"),
    Program("catatonit", "catatonit", (PODMAN, T_CONTAINERS),
            "podman starts no container with an init process", _helpers("catatonit")),
    Program("netavark", "netavark", (PODMAN, T_CONTAINERS), "podman makes no networks",
            _helpers("netavark")),
    Program("iptables", "iptables", (PODMAN, T_CONTAINERS), "podman's networks have no rules"),
    Program("nft", "nftables", (PODMAN, T_CONTAINERS), "podman's networks have no rules"),
    Program("docker", "docker.io", (DOCKER,), "no container can be made"),
    Program("docker-compose", "docker-compose", (), "compose files are not checked by compose"),
    Program("buildah", "buildah", (T_SLURM, T_CONTAINERS), "images are built by podman alone"),
    Program("docker-registry", "docker-registry", (T_CONTAINERS,), "no image can be pushed"),
    Program("mmdebstrap", "mmdebstrap", (BASE_IMAGE, T_SLURM, T_CONTAINERS, T_BRIDGE),
            "no base image can be made here"),
    Program("apptainer", "", (), "images cannot be run by apptainer"),
    Program("singularity", "singularity-container", (), "images cannot be run by singularity"),
    Program("enroot", "", (), "images cannot be run by enroot"),
    Program("charliecloud", "charliecloud", (), "images cannot be run by charliecloud"),
    Program("ctr", "containerd", (), "images cannot be given to containerd"),
    # code and data
    Program("git", "git", (CODE, T_UNIT, T_EMBEDDED, T_DOCS), "files that git ignores travel too"),
    Program("uv", "", (), "wheels are built by pip, and no lock file is read: pip install uv"),
    Program("rsync", "rsync", (SUBMITIT, T_SUBMITIT), "RsyncSnapshot cannot copy"),
    Program("ssh", "openssh-client", (SSH, T_UNIT, T_SSH, T_CONTAINERS), "no login node answers"),
    Program("ssh-keygen", "openssh-client", (LOGIN_NODE, T_SSH, T_CONTAINERS),
            "the login node has no key"),
    Program("sshd", "openssh-server", (T_SSH, T_CONTAINERS), "there is no login node to test on"),
    # what else a user may have
    Program("notify-send", "libnotify-bin", (), "no notice on the desktop"),
    Program("osascript", "", (), "no notice on the desktop"),
    Program("sendmail", "exim4", (), "no mail"),
    Program("nvidia-smi", "nvidia-smi", (), "GPUs are not counted"),
    # tests alone
    Program("prometheus", "prometheus", (T_SLURM, T_CONTAINERS), "nothing scrapes the exporter"),
    Program("promtool", "prometheus", (T_UNIT, T_SLURM), "alert rules are not checked"),
    Program("chromium", "chromium", (T_BROWSER,), "no page is opened"),
    Program("curl", "curl", (T_BROWSER,), "the dashboard is not asked from outside"),
    Program("systemd-analyze", "systemd", (T_UNIT,), "the units of deploy/systemd are not checked"),
    Program("openssl", "openssl", (T_UNIT, T_SLURM), "no certificate can be made"),
    Program("ps", "procps", (T_EMBEDDED, *_ON_SLURM), "processes cannot be listed"),
    Program("sysctl", "procps", (), "the memory of a Mac is unknown"),
    Program("ip", "iproute2", (T_CONTAINERS,), "no network of its own for another host"),
    Program("pgrep", "procps", (T_CONTAINERS,), "processes cannot be listed"),
    Program("faketime", "faketime", (T_SLURM,), "no clock can be set wrong"),
    Program("zsh", "zsh", (T_UNIT, T_SSH), "its completion is not tested"),
    Program("tcsh", "tcsh", (T_SSH,), "it is not tested as a login shell"),
    Program("csh", "tcsh", (T_SSH,), "it is not tested as a login shell"),
    Program("fish", "fish", (T_UNIT, T_SSH), "its completion is not tested"),
    Program("make", "make", (T_DOCS,), "nothing of this runs"),
    Program("bindfs", "bindfs", (T_UNIT, T_EMBEDDED, FAULTS), "nothing of others is mounted"),
    Program("go", "", (), "Kubernetes, kubelet and helm cannot be built: Go 1.26 from go.dev"),
    Program("helm", "", (), "the chart is not rendered by helm itself"),
)  # fmt: skip
#: Part of every Debian, and of any system that runs Slurm.
EVERYWHERE = frozenset({
    "apt-config", "apt-get", "bash", "cat", "chroot", "cp", "dash", "dpkg", "echo", "env", "false",
    "getent", "grep", "hostname", "id", "kill", "ldd", "ln", "ls", "mount", "nsenter", "printf",
    "python", "python3", "rm", "setpriv", "setsid", "sh", "sleep", "stat", "tail", "tar", "timeout",
    "true", "umount", "unshare",
})  # fmt: skip
_BY_NAME = {program.name: program for program in PROGRAMS}


# ---- what is here -------------------------------------------------------------------------------


def find(name: str) -> str | None:
    """The path of a program, also where the PATH lacks the folders of daemons."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    found = shutil.which(name, path=path)
    if found is None and name in _BY_NAME:
        places = (file for place in _BY_NAME[name].places for file in glob(place))
        # A link that leads nowhere is left behind by a package that is gone.
        found = next(filter(os.path.exists, places), None)
    return found


def needs(*parts: str) -> list[Program]:
    """The programs that at least one of these needs."""
    return [program for program in PROGRAMS if set(parts) & set(program.needed_by)]


def missing(*parts: str) -> list[Program]:
    """Those of them that are not here."""
    return [program for program in needs(*parts) if find(program.name) is None]


def said(programs: Iterable[Program]) -> list[str]:
    """What is missing, a line for each."""
    return [f"{p.name} is not installed: {p.without}" for p in programs]


def install_command(programs: Iterable[Program]) -> str:
    """The command that installs them all on Debian and Ubuntu."""
    packages = {program.package: None for program in programs if program.package}
    return "apt-get install --no-install-recommends " + " ".join(packages)


def named(name: str) -> Program:
    """The entry of one program."""
    return _BY_NAME[name]
