"""A measured program in a process of its own, and the environment that its library lives in."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "peers"
ENVIRONMENTS = Path(__file__).parent.parent / ".cache" / "benchmarks"

#: A guard against hangs, far above any round.
PATIENCE_S = 120.0


class PeerFailed(Exception):
    """A peer cannot be measured here; the text says why."""


class Peer:
    """A program of `benchmarks/peers` that plays one round whenever it is told to."""

    def __init__(
        self, name: str, python: str, program: str, *args: str, env: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, str(PROGRAMS / program), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**env, "PYTHONPATH": str(PROGRAMS)},
                cwd=log.parent,
            )
        try:
            self.facts: dict[str, Any] = self._answer()
        except PeerFailed:
            self.close()
            raise

    def play(self, order: str = "one") -> Any:
        """Play one round; its answer as the program gave it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(f"{self.name} ended: {self._last_words()}") from None
        return self._answer()

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> Any:
        out = self._process.stdout
        assert out is not None
        # The program writes one whole line per round and nothing else, so the buffer is empty here.
        ready, _, _ = select.select([out], [], [], PATIENCE_S)
        if not ready:
            raise PeerFailed(f"{self.name} did not answer within {PATIENCE_S:.0f} s")
        line = out.readline()
        if not line:
            raise PeerFailed(f"{self.name} ended: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"


def environment(requirement: str) -> str:
    """The Python of a virtual environment with this one package, made on first use."""
    place = ENVIRONMENTS / requirement.replace("==", "-")
    python, done = place / "bin" / "python", place / "installed"
    if not done.exists():
        print(f"installing {requirement} into an environment of its own", flush=True)
        try:
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(place)],
                [str(python), "-m", "pip", "install", "--quiet", requirement],
            ):
                subprocess.run(command, check=True, capture_output=True, timeout=300)
        except subprocess.SubprocessError as error:
            words = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
            last = words.splitlines()[-1] if words else str(error)
            raise PeerFailed(f"{requirement} cannot be installed: {last}") from error
        done.write_text(time.strftime("%Y-%m-%d\n"))
    return str(python)
