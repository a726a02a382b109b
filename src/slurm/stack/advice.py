"""What helps when a container or a service does not come up: said before, or by its last words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from slurm.errors import StackError

#: What podman asks for by default: so many open files.
_OPEN_FILES = 1_048_576
_CAP_SYS_RESOURCE = 24
#: Settings of podman that work where root may not raise limits, and with cgroups of two kinds.
CONTAINERS_CONF = (
    "[containers]",
    'default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]',
    "[engine]",
    'runtime = "runc"',
    'cgroup_manager = "cgroupfs"',
)
#: Words in a log, and what they usually call for.
_LIKELY = (
    (r"error setting rlimit", "give podman lower limits: default_ulimits in containers.conf"),
    (r"crun: .*cgroup", 'let podman use runc: [engine] runtime = "runc" in containers.conf'),
    (r"address already in use", "another program has that port: name another in cluster.toml"),
    (r"(?i)no space left on device", "free some space on the disk of the engine's volumes"),
    (r"Access denied for user", "secrets/database_password is not what the database was made with"),
    (r"the secret \S+ is missing", "make the secrets: ./make-secrets.sh in the directory"),
    (
        r"(?i)exec format error",
        "the image is for another kind of machine: platform in cluster.toml",
    ),
    (
        r"(?i)incompatible version|can not recover \S+ state",
        "the state is of another release: slurm cluster upgrade, or restore a backup",
    ),
    (
        r"(?i)authentication error|munge decode failed|invalid credential",
        "the keys or the clocks of two services differ: make both anew from the same secrets",
    ),
    (
        r"(?i)cgroup.*(unable|fail|error|cannot)|(unable|fail|error|cannot).*cgroup",
        "this host does not let jobs be held by cgroups: [limits] enforce = false",
    ),
    (
        r"(?i)out of memory|cannot allocate memory|std::bad_alloc",
        "give it more memory: [limits.SERVICE] memory, or [[nodes]] memory",
    ),
    (
        r"find the specified plugin|cannot find \S+ plugin",
        "the image has no such plugin: mend [conf], or name its package in [images] packages",
    ),
    (r"(?i)fatal: .*(conf|pars|keyword)", "mend the line of [conf] in cluster.toml"),
    (r"(\S+) does not answer after", "the service that it waits for comes first: look at its log"),
)


def likely_fix(lines: Iterable[str]) -> str:
    """What the last words of a service call for; "" where they tell nothing that is known."""
    text = "\n".join(lines)
    return next((fix for words, fix in _LIKELY if re.search(words, text)), "")


def check_podman() -> None:
    """Refuse before podman does, with the settings that it needs, where its limits are too high."""
    capabilities = re.search(r"^CapEff:\s*(\w+)", _read(Path("/proc/self/status")), re.MULTILINE)
    may_raise = capabilities is None or int(capabilities[1], 16) >> _CAP_SYS_RESOURCE & 1
    if os.geteuid() == 0 and limits_too_high(bool(may_raise), _hard_limit(), podman_settings()):
        raise StackError(
            "podman gives containers more open files than this host lets root have: it is "
            "without CAP_SYS_RESOURCE",
            evidence=CONTAINERS_CONF,
            hint="put these lines into /etc/containers/containers.conf, then the same again",
        )


def limits_too_high(may_raise: bool, hard_limit: int, settings: str) -> bool:
    """Whether podman would ask for more than root has, and may not give itself more."""
    said = re.search(r"^\s*default_ulimits\s*=", settings, re.MULTILINE)
    return not (may_raise or said or hard_limit >= _OPEN_FILES)


def _hard_limit() -> int:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else hard


def podman_settings() -> str:
    """The text of all files that podman reads its settings from."""
    return "\n".join(map(_read, _settings()))


def _settings() -> list[Path]:
    """The files that podman reads: the one that is named alone, else all of the usual ones."""
    named = os.environ.get("CONTAINERS_CONF")
    if named:
        return [Path(named)]
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folders = [Path("/usr/share"), Path("/etc"), own]
    found = [folder / "containers/containers.conf" for folder in folders]
    return found + [f for file in found for f in sorted(Path(f"{file}.d").glob("*.conf"))]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
