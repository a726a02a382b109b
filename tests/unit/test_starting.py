"""Programs that are started while other threads fork: no child holds their pipes open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slurm.api import starting

#: How long a child lives, and how long a program may take to start while children live.
CHILD, SOON = 60, 30
FORKS = 150


@contextmanager
def forking(count: int) -> Iterator[None]:
    """Children that do nothing, forked while the block's threads start programs."""
    children: list[int] = []
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                time.sleep(CHILD)
                os._exit(0)
            children.append(child)
            time.sleep(0.005)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_program_starts_and_ends_while_forked_children_live() -> None:
    longest, over = [0.0], threading.Event()

    def start() -> None:
        while not over.is_set():
            begun = time.monotonic()
            assert starting.run(["true"], stdin=subprocess.DEVNULL, stdout=-1).returncode == 0
            longest[0] = max(longest[0], time.monotonic() - begun)

    threads = [threading.Thread(target=start, daemon=True) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        with forking(FORKS):
            over.set()
            for thread in threads:
                thread.join(SOON)
                assert not thread.is_alive(), "a child holds a pipe of a program open"
    finally:
        sys.setswitchinterval(interval)
    assert 0 < longest[0] < SOON


def test_it_runs_programs_as_subprocess_does() -> None:
    done = starting.run(["sh", "-c", "echo a; echo b >&2; exit 3"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\n", "b\n")
    with pytest.raises(subprocess.CalledProcessError):
        starting.run(["false"], check=True)
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        starting.run(["sleep", "60"], timeout=0.2, stdout=subprocess.PIPE)
    assert time.monotonic() - begun < SOON
