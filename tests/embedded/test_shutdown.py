"""Every program that serves ends on SIGTERM, at whatever moment of its life it comes."""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Far above what any end takes, and below what the kernel's own end would hide.
PATIENCE = 30.0

PILOT = """
from slurm.context import JobContext
from slurm.runner import pilot, signals
import os, sys
ctx = JobContext(dict(os.environ), os.environ["SLURM_SDK_RUN"])
signals.install(ctx, True)
sys.stderr.write("serving\\n")
pilot.serve(600, "", ctx)
"""
# The same as `python -m slurm.api.embedded`, which leaves its starter alone with a child.
DAEMON = """
import os
from slurm.api.embedded import daemon, place
found = daemon._begin(place.find_place(os.environ))
os.write(2, b"serving\\n")
found.run()
"""
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: c, user: {token: none}}]
"""


@dataclass(frozen=True)
class Program:
    """A program that serves: how it is started, and what its first line on stderr has in it."""

    words: list[str]
    ready: str
    environ: dict[str, str]
    stdin: bytes = b""


def exporter(folder: Path) -> Program:
    (folder / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (folder / "sbatch").chmod(0o755)
    words = ["-m", "slurm.monitor", "serve", "--port", "0"]
    return Program(words, "serving http", {"PATH": str(folder)})


def dashboard(folder: Path) -> Program:
    pytest.importorskip("uvicorn")
    words = ["-m", "slurm.cli", "dashboard", "--port", "0", "--interval", "1"]
    words += ["--cluster", "embedded", "--job-base-dir", str(folder / "jobs")]
    return Program(words, "Dashboard: http", {})


def mcp(folder: Path) -> Program:
    words = ["-c", "import sys; sys.stdout = sys.stderr; from slurm.cli import main; main()", "mcp"]
    request = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    return Program(words, '"result"', {}, request)


def bridge(folder: Path) -> Program:
    pytest.importorskip("aiohttp")
    (folder / "kubeconfig").write_text(KUBECONFIG)
    (folder / "config.yaml").write_text("namespaces: [demo]\n")
    words = ["-m", "slurm.cli", "bridge", "run", "--config", str(folder / "config.yaml")]
    return Program([*words, "--kubeconfig", str(folder / "kubeconfig")], "Kubernetes", {})


def daemon(folder: Path) -> Program:
    return Program(["-c", DAEMON], "serving", {"SLURM_SDK_EMBEDDED_IDLE_S": "600"})


def pilot(folder: Path) -> Program:
    (folder / "base" / "run").mkdir(parents=True, mode=0o700)
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "1", "SLURM_SDK_BASE": str(folder / "base")}
    return Program(["-c", PILOT], "serving", {**job, "SLURM_SDK_RUN": str(folder / "base" / "run")})


@contextmanager
def started(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, **program.environ}
    process = subprocess.Popen(
        [sys.executable, *program.words],
        env=environ,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stderr is not None
    try:
        if program.stdin:
            process.stdin.write(program.stdin)
            process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.stdin.close()
        process.stderr.close()
        process.wait()


def first_line(process: subprocess.Popen[bytes], ready: str, seconds: float) -> bytes:
    """What it has said until it is ready, or until the time is over."""
    assert process.stderr is not None
    said, end = b"", time.monotonic() + seconds
    os.set_blocking(process.stderr.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while ready.encode() not in said and (left := end - time.monotonic()) > 0:
            if selector.select(left):
                piece = os.read(process.stderr.fileno(), 65536)
                if not piece:
                    break
                said += piece
    return said


def moments(random: random.Random, launch: float) -> Iterator[tuple[str, float]]:
    """When the signal comes: before the first line, right after it, and during requests."""
    while True:
        yield "after its start", random.uniform(0, 1.1 * launch)
        yield "after its first line", random.choice([0.0, random.uniform(0, 0.005)])
        yield "after a request", random.choice([0.0, random.uniform(0, 0.03)])


def ask(said: bytes) -> None:
    """A request to what serves HTTP; what does not is only given a moment to work."""
    address = next((word for word in said.decode().split() if word.startswith("http://")), "")
    if address:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10) as answer:
            answer.read(100)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("starts", [6, pytest.param(500, marks=pytest.mark.full)])
@pytest.mark.parametrize("make", [exporter, dashboard, mcp, bridge, daemon, pilot])
def test_it_ends_at_whatever_moment_sigterm_comes(
    make: Callable[[Path], Program], starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = time.time_ns()
    chance = random.Random(seed)
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("SLURM_SDK_EMBEDDED_DIR", str(place))
    program = make(tmp_path)
    began = time.monotonic()
    with started(program) as process:
        said = first_line(process, program.ready, 60)
        assert program.ready in said.decode(), said.decode()
        launch = time.monotonic() - began
        process.terminate()
        process.wait(PATIENCE)
    longest = 0.0
    for number, (moment, delay) in zip(range(starts), moments(chance, launch), strict=False):
        case = f"start {number} of seed {seed}: SIGTERM {delay:.6f} s {moment}"
        with started(program) as process:
            said = b""
            if moment == "after its start":
                time.sleep(delay)
            else:
                said = first_line(process, program.ready, 60)
                assert program.ready in said.decode(), f"{case}: {said.decode()}"
                if moment == "after a request":
                    ask(said)
                end = time.perf_counter() + delay
                while time.perf_counter() < end:
                    pass
            sent = time.monotonic()
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                pytest.fail(f"{case}: it has not ended after {PATIENCE} s")
            longest = max(longest, time.monotonic() - sent)
            assert process.stderr is not None
            rest = said + (process.stderr.read() or b"")
        assert b"Traceback" not in rest, f"{case}: {rest.decode()}"
        # By the signal itself where it does not serve yet; never by the kernel's alarm.
        orderly = program.ready in said.decode() and make is not mcp
        assert code in ((0,) if orderly else (0, -signal.SIGTERM)), f"{case}: {rest.decode()}"
    print(
        f"{make.__name__}: {starts} starts, the longest end {longest:.2f} s, launch {launch:.2f} s"
    )
