"""A measured program in a process of its own, and the environment that its library lives in."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "peers"
SOURCE = Path(__file__).parent.parent / "src"
ENVIRONMENTS = Path(__file__).parent.parent / ".cache" / "benchmarks"

#: A guard against hangs, far above any round.
PATIENCE_S = 120.0


class PeerFailed(Exception):
    """A peer cannot be measured here; the text says why."""


class PeerLate(PeerFailed):
    """A peer had no answer in the time that it was given; it was ended."""


class Peer:
    """A program of `benchmarks/peers` that plays one round whenever it is told to."""

    def __init__(
        self,
        name: str,
        python: str,
        program: str,
        *args: str,
        env: Mapping[str, str],
        log: Path,
        cwd: Path,
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, str(PROGRAMS / program), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        try:
            self.facts: dict[str, Any] = self._answer(PATIENCE_S)
        except PeerFailed:
            self.close()
            raise

    def play(self, order: str = "one", patience: float = PATIENCE_S) -> Any:
        """Play one round; its answer as the program gave it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise PeerFailed(f"{self.name} ended: {self._last_words()}") from None
        return self._answer(patience)

    @property
    def alive(self) -> bool:
        """Whether another round can be played."""
        return self._process.poll() is None

    def close(self, at_once: bool = False) -> None:
        """End the program, and what it started on this host."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if at_once else 15)
        # The session is the program's own; what it left in it goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def _answer(self, patience: float) -> Any:
        out = self._process.stdout
        assert out is not None
        # The program writes one whole line per round and nothing else, so the buffer is empty here.
        ready, _, _ = select.select([out], [], [], patience)
        if not ready:
            self.close(at_once=True)
            raise PeerLate(f"{self.name} did not answer within {patience:.0f} s")
        line = out.readline()
        if not line:
            raise PeerFailed(f"{self.name} ended: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"


def import_path(own: bool) -> str:
    """PYTHONPATH of a measured program; our own also finds the source beside this folder."""
    return os.pathsep.join(map(str, (PROGRAMS, SOURCE) if own else (PROGRAMS,)))


def environment(*requirements: str) -> str:
    """The Python of a virtual environment with these packages, made on first use."""
    place = ENVIRONMENTS / requirements[0].replace("==", "-")
    python, done = place / "bin" / "python", place / "installed"
    wanted = " ".join(requirements) + "\n"
    if not done.exists() or done.read_text() != wanted:
        print(f"installing {wanted.strip()} into an environment of its own", flush=True)
        try:
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(place)],
                [str(python), "-m", "pip", "install", "--quiet", *requirements],
            ):
                subprocess.run(command, check=True, capture_output=True, timeout=600)
        except subprocess.SubprocessError as error:
            words = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
            last = words.splitlines()[-1] if words else str(error)
            raise PeerFailed(f"{requirements[0]} cannot be installed: {last}") from error
        done.write_text(wanted)
    return str(python)
