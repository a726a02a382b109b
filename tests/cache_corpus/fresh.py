"""Runs scripts, each in a process of its own that is a copy of one which has imported the SDK.

A new interpreter for each would take most of the time. The copies share nothing with each other;
the second server has another seed for the order of sets.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_SERVER = """
import json, os, runpy, sys, traceback, gc
import slurm.cluster, slurm.debug, slurm.cache, slurm.submission, slurm.packaging.capture
import cloudpickle, dataclasses, enum, functools, numpy, pandas, pyarrow, logging
import slurm.api.slurm_scheduler, slurm.api.connect, slurm.content.origins, slurm.files
slurm.packaging.capture._state.loaded.modules()
for line in sys.stdin:
    folder, argv = json.loads(line)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.dup2(write, 1); os.dup2(write, 2)
        sys.stdin.close()
        os.chdir(folder)
        sys.argv = argv
        sys.path.insert(0, folder)
        code = 0
        try:
            runpy.run_path(argv[0], run_name="__main__")
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as f:
        said = f.read()
    _, status = os.waitpid(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), said]), flush=True)
"""


class Fresh:
    """Processes that have imported the SDK, and nothing of the programs that they run."""

    def __init__(self, env: dict[str, str]) -> None:
        self._servers = [
            subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **env, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
            )
            for seed in ("1", "2")
        ]

    def run(self, folder: str, *argv: str, seed: int = 0) -> str:
        """What a script says; one that fails is an error."""
        server: Any = self._servers[seed]
        server.stdin.write(json.dumps([folder, list(argv)]) + "\n")
        server.stdin.flush()
        code, said = json.loads(server.stdout.readline())
        assert code == 0, said
        return str(said).strip()

    def close(self) -> None:
        """End the processes."""
        for server in self._servers:
            with contextlib.suppress(OSError):
                server.communicate(timeout=30)


@contextlib.contextmanager
def fresh(**env: str) -> Iterator[Fresh]:
    """Processes for a block."""
    found = Fresh(env)
    try:
        yield found
    finally:
        found.close()
