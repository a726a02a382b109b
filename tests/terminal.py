"""A user at a terminal: runs the `slurm` command in a pseudo-terminal and reads what it shows."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

UPDATE = "UPDATE_GOLDEN"


class Shown(NamedTuple):
    """What a command showed, and how it ended."""

    text: str
    code: int

    @property
    def plain(self) -> str:
        """The text without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.text)


class Terminal:
    """A pseudo-terminal of a given size, with a `slurm` command running in it."""

    def __init__(
        self, *words: str, cwd: Path, columns: int = 100, env: Mapping[str, str] | None = None
    ) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        plain = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slurm.cli", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**inherited, **plain, **(env or {})},
            start_new_session=True,
        )
        os.close(slave)
        self._master = master
        self._seen = b""

    @property
    def text(self) -> str:
        """All that was shown so far."""
        return self._seen.decode("utf-8", "replace").replace("\r\n", "\n")

    def wait_for(self, words: str, timeout: float = 60) -> None:
        """Read until these words are there."""
        until = time.monotonic() + timeout
        while words not in self.text:
            assert time.monotonic() < until, f"{words!r} did not come:\n{self.text}"
            if not self._read(0.2) and self.process.poll() is not None:
                assert words in self.text, f"it ended without {words!r}:\n{self.text}"

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._master, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def finish(self, timeout: float = 90) -> Shown:
        """Read to the end."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it did not end:\n{self.text}"
            self._read(0.1)
        while self._read(0.1):
            pass
        os.close(self._master)
        return Shown(self.text, self.process.returncode)

    def _read(self, wait: float) -> bool:
        if not select.select([self._master], [], [], wait)[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self._seen += data
        return bool(data)


def slurm(*words: str, cwd: Path, env: Mapping[str, str] | None = None) -> Shown:
    """Run a `slurm` command in this process, without a terminal; what it printed, its exit code."""
    from slurm.cli import main

    out = io.StringIO()
    code = 0
    # Each test has a module `tasks` of its own, and a script may change these two.
    sys.modules.pop("tasks", None)
    argv, path = sys.argv, list(sys.path)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(out):
        patch.chdir(cwd)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv, sys.path[:] = argv, path
    return Shown(out.getvalue(), code)


def stable(text: str) -> str:
    """A text without what differs from run to run and from machine to machine."""
    text = re.sub(r"-\d{8}-\d{6}-[0-9a-f]{6}", "-RUN", text)
    text = re.sub(r'"(/[^"]*/)', '"/', text)
    text = re.sub(r"/\S*/jobs\b", "/jobs", text)
    text = re.sub(r'("(?:submitted|started|ended|starts)": )\d+(\.\d+)?', r"\1TIME", text)
    text = re.sub(r'("(?:node|nodes|host)": )"[^"]+"', r'\1"HOST"', text)
    text = re.sub(r'("job_id": )"\d+', r'\1"ID', text)
    text = re.sub(r"\bjob \d+", "job ID", text)
    text = re.sub(rf"\b{re.escape(os.uname().nodename.split('.')[0])}\b", "HOST", text)
    text = re.sub(r"(?m)^(  job +)\d+$", r"\1ID", text)
    text = re.sub(r"\bafter \d\d:\d\d:\d\d", "after TIME", text)
    text = re.sub(r"(?m)^(  (?:ran|runs for|submitted) +)\S+", r"\1TIME", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def check_snapshot(folder: Path, name: str, text: str) -> None:
    """Compare with the snapshot of this name; UPDATE_GOLDEN=1 writes it."""
    path = folder / name
    found = stable(text)
    if os.environ.get(UPDATE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()
