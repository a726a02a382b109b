"""Programs that a test needs and this machine may not have: unpacked from Debian's archive."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
    "http://deb.debian.org/debian trixie main\n"
)


def from_debian(place: Path, package: str, program: str) -> str:
    """The path of a program, out of a package of Debian trixie that is unpacked in `place`."""
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
    subprocess.run([*apt, "download", package], cwd=place, check=True, timeout=300)
    (archive,) = place.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(archive), str(place / "x")], check=True, timeout=60)
    return str(place / "x" / program)


def docker_compose(place: Path) -> list[str]:
    """docker-compose v2: the installed one, else Debian's."""
    found = shutil.which("docker-compose")
    for argv in (["docker", "compose"], [found or "docker-compose"]):
        if shutil.which(argv[0]) and _says_v2([*argv, "version", "--short"]):
            return argv
    return [from_debian(place, "docker-compose", "usr/libexec/docker/cli-plugins/docker-compose")]


def docker(place: Path) -> str:
    """docker's command line: the installed one, else Debian's."""
    return shutil.which("docker") or from_debian(place, "docker-cli", "usr/bin/docker")


def _says_v2(argv: list[str]) -> bool:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return done.returncode == 0 and done.stdout.lstrip("v").startswith("2.")
