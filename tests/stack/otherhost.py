"""A second machine for tests: a network namespace with its own address, sshd and containers."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

import slurm

_SSHD = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
StrictModes no
UsePAM no
PidFile {folder}/sshd-{address}.pid
SetEnv {variables}
"""
_SSH = """\
Host *
  User root
  Port {port}
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile {folder}/known_hosts
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
[storage.options]
additionalimagestores = ["{images}"]
"""


def run(*words: str, input: str | None = None) -> str:
    """Run a program; it must succeed."""
    done = subprocess.run(words, input=input, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class OtherHost:
    """A host beside this one: `here` is this host's address on their common network.

    It shares this machine's files and images, and has its own network and its own containers.
    """

    port = 2022

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        net = f"10.214.{random.randrange(1, 255)}"
        self.here, self.address = f"{net}.1", f"{net}.2"
        self.name = f"sj{os.urandom(4).hex()}"
        self._daemons: list[int] = []

    def __enter__(self) -> OtherHost:
        self.folder.mkdir(parents=True)
        self._write_files()
        outer, inner = f"{self.name}a", f"{self.name}b"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        run("ip", "address", "add", f"{self.here}/24", "dev", outer)
        run("ip", "link", "set", outer, "up")
        self.inside("ip", "address", "add", f"{self.address}/24", "dev", inner)
        for link in ("lo", inner):
            self.inside("ip", "link", "set", link, "up")
        self.inside("ip", "route", "add", "default", "via", self.here)
        self._sshd(self.address, "nsenter", f"--net=/run/netns/{self.name}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        try:
            listed = self.podman("ps", "--all", "--quiet").split()
            if listed:
                self.podman("rm", "--force", "--depend", "--time", "5", *listed)
        finally:
            for pid in self._daemons:
                os.kill(pid, 15)
            run("ip", "netns", "delete", self.name)
        # Overlays that were mounted below are gone with their containers.
        subprocess.run(["umount", f"{self.folder}/storage/overlay"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_files(self) -> None:
        folder = self.folder
        images = run("podman", "info", "--format", "{{.Store.GraphRoot}}").strip()
        (folder / "storage.conf").write_text(_STORAGE.format(folder=folder, images=images))
        (folder / "ssh_config").write_text(_SSH.format(folder=folder, port=self.port))
        (folder / "home").mkdir()
        for key in ("host_key", "client_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))

    def _sshd(self, address: str, *before: str) -> None:
        variables = {
            "HOME": f"{self.folder}/home",
            "CONTAINERS_CONF": os.environ["CONTAINERS_CONF"],
            "CONTAINERS_STORAGE_CONF": f"{self.folder}/storage.conf",
            "PYTHONPATH": str(Path(slurm.__file__).parents[1]),
        }
        text = _SSHD.format(
            address=address,
            port=self.port,
            folder=self.folder,
            variables=" ".join(f"{name}={value}" for name, value in variables.items()),
        )
        file = self.folder / f"sshd-{address}.conf"
        file.write_text(text)
        Path("/run/sshd").mkdir(exist_ok=True)
        log = str(self.folder / "sshd.log")
        run(*before, "/usr/sbin/sshd", "-f", str(file), "-E", log)
        pid = self.folder / f"sshd-{address}.pid"
        end = time.monotonic() + 60
        while not (pid.exists() and pid.read_text().strip()):
            assert time.monotonic() < end, Path(log).read_text()
            time.sleep(0.1)
        self._daemons.append(int(pid.read_text()))

    def let_ssh_in_here(self) -> None:
        """An sshd of this host, too, for commands that are typed there."""
        self._sshd(self.here)

    @property
    def ssh(self) -> list[str]:
        """The words with which ssh reaches it."""
        return ["-F", str(self.folder / "ssh_config"), self.address]

    def inside(self, *words: str) -> str:
        """Run a program in its network, without ssh."""
        return run("nsenter", f"--net=/run/netns/{self.name}", *words)

    def shell(self, command: str) -> str:
        """Run a line in its shell, by ssh; programs in `bin` come first."""
        return run("ssh", *self.ssh, f"PATH={self.folder}/bin:$PATH; {command}")

    def podman(self, *words: str) -> str:
        """Its own podman."""
        return self.shell(" ".join(["podman", *words]))
