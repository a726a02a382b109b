"""A real sshd on loopback with keys, port and home of its own, and the words to reach it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def make_key(path: Path) -> Path:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True, timeout=60)
    return path


class Sshd:
    """One sshd. `home` is the HOME of whoever logs in; `arguments` are those of `Cluster`."""

    def __init__(self, env: dict[str, str] | None = None, settings: tuple[str, ...] = ()) -> None:
        assert SSHD is not None
        self.folder = Path(tempfile.mkdtemp(prefix="sshd-", dir="/tmp"))
        self.home = self.folder / "home"
        self.home.mkdir(mode=0o700)
        self.port = free_port()
        self.key = make_key(self.folder / "user_key")
        self.host_key = make_key(self.folder / "host_key")
        self.known_hosts = self.folder / "known_hosts"
        self.know()
        shutil.copy(f"{self.key}.pub", self.folder / "authorized_keys")
        self.env = {"HOME": str(self.home), **(env or {})}
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def know(self) -> None:
        public = Path(f"{self.host_key}.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {' '.join(public)}\n")

    def write_config(self) -> Path:
        words = " ".join(f'"{name}={value}"' for name, value in self.env.items())
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            f"PidFile {self.folder}/sshd.pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "PrintMotd no",
            *self.settings,  # of a keyword that comes twice sshd takes the first
            "MaxSessions 1",
            "MaxStartups 100",
            f"SetEnv {words}",
        ]
        path = self.folder / "sshd_config"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self) -> None:
        if os.getuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        assert SSHD is not None
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.write_config())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd does not listen")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """The arguments of `Cluster` that lead here."""
        options = {
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
        }
        options.update(changes.pop("ssh_options", {}))
        found: dict[str, Any] = {
            "hostname": "127.0.0.1",
            "username": getpass.getuser(),
            "port": self.port,
            "identity_file": str(self.key),
            "ssh_options": options,
        }
        return {**found, **changes}

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
