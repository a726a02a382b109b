"""Daemons of the tests: started with a log, waited for, stopped by their own process id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATIENCE = 180.0
# Waits for the end of the tests, whatever way they end (SIGKILL too), then ends the daemon.
_GUARD = 'cat > /dev/null; kill -9 "-$0" 2> /dev/null'


class Daemon:
    def __init__(
        self, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.command, self.folder = name, list(command), folder
        self.env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> Daemon:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.env, start_new_session=True
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, str(self.process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None:
            return
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        for each in (how, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                # Its own session, so its children go with it.
                os.killpg(self.process.pid, each)
            try:
                self.process.wait(15)
                break
            except subprocess.TimeoutExpired:
                continue
        self.process = None

    def until(self, ready: Callable[[], bool], patience: float = PATIENCE) -> Daemon:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended:\n{self.tail()}")
            if ready():
                return self
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} is not ready after {patience} s:\n{self.tail()}")

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
