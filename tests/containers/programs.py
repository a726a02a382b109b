"""What tests of containers ask programs and the system for."""

from __future__ import annotations

import socket
import subprocess
from contextlib import closing


def podman(*words: str) -> str:
    """What podman says."""
    done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
