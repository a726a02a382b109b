"""Where the measurements happen: scratch directories, a real Slurm of its own, and the peers."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.libraries import LIBRARIES, Library
from benchmarks.peer import SOURCE, Peer, PeerFailed, environment, import_path
from slurm.stack import up

#: The commands that a scheduler has to answer.
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo", "srun", "sstat")
#: A turn that takes longer is not repeated.
LONG_TURN_S = 20.0

_FROM_OUTSIDE = ("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "PYTHON")

# Waits for the end of this process, whatever way it ends, and then takes the cluster down.
_GUARD = """
import contextlib, shutil, sys
from slurm.errors import StackError
from slurm.stack import down
sys.stdin.read()
with contextlib.suppress(StackError):
    down(sys.argv[1])
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class Ground:
    """One run of the benchmarks: what was brought up for it goes away with it."""

    def __init__(self, quick: bool, until: float) -> None:
        self._quick = quick
        self.until = until
        self.skipped: list[str] = []
        self.left_out: dict[tuple[str, str], set[str]] = {}
        self.versions: dict[str, str] = {}
        self._open = ExitStack()
        self._peers: list[Peer] = []
        self._libraries: dict[str, Peer] = {}
        self.scratch = Path(tempfile.mkdtemp(prefix="slurm-bench-", dir="/tmp"))
        self._open.callback(shutil.rmtree, self.scratch, ignore_errors=True)

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        with self._open:
            self.end_peers()

    @property
    def quick(self) -> bool:
        """Whether to do less: it was asked for, or the time is spent."""
        return self._quick or time.monotonic() > self.until

    def times(self, full: int, quick: int) -> int:
        """How much this run does of something."""
        return quick if self.quick else full

    @cached_property
    def bare_env(self) -> dict[str, str]:
        """What every child gets: as a user has it, with byte code cached and no Slurm set."""
        return {k: v for k, v in os.environ.items() if not k.startswith(_FROM_OUTSIDE)}

    @cached_property
    def own_env(self) -> dict[str, str]:
        """The same for a child that imports our package: the one beside this folder."""
        return {**self.bare_env, "PYTHONPATH": str(SOURCE)}

    @cached_property
    def slurm_env(self) -> dict[str, str]:
        """The environment of a client of a real Slurm of four nodes, brought up on first use."""
        # Room for a long array: the defaults end at 1,000 elements and 10,000 jobs.
        return self.cluster(nodes=4, extra_conf=["MaxArraySize=20000", "MaxJobCount=50000"])

    def cluster(self, **options: Any) -> dict[str, str]:
        """The environment of a client of a further Slurm; takes the options of `slurm.stack.up`."""
        directory = Path(tempfile.mkdtemp(prefix="slurm-bench-", dir="/tmp"))
        guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(directory)],
            stdin=subprocess.PIPE,
            env=self.own_env,
            start_new_session=True,
        )
        self._open.callback(guard.wait, 60)
        assert guard.stdin is not None
        self._open.callback(guard.stdin.close)
        return {**self.bare_env, **up(directory, **options).env}

    @cached_property
    def embedded_env(self) -> dict[str, str]:
        """The environment of a client of an embedded scheduler of this run alone."""
        place = self.folder("embedded")
        place.chmod(0o700)
        env = {**self.bare_env, "SLURM_SDK_EMBEDDED_DIR": str(place)}
        stop = "from slurm.api.embedded import EmbeddedScheduler; EmbeddedScheduler().stop()"
        env_of_stop = {**env, **self.own_env}
        self._open.callback(
            subprocess.run, [sys.executable, "-c", stop], env=env_of_stop, timeout=60
        )
        return env

    def folder(self, name: str) -> Path:
        """A directory of this run; it may be there already."""
        path = self.scratch / name
        path.mkdir(exist_ok=True)
        return path

    def peer(
        self,
        name: str,
        program: str,
        *args: str,
        env: Mapping[str, str],
        needs: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> Peer:
        """Start a peer; with the packages that it needs, in an environment of its own."""
        python = environment(*needs) if needs else sys.executable
        log = self.folder("logs") / f"{name.replace(' ', '-')}.txt"
        found = Peer(
            name, python, program, *args,
            env={**env, "PYTHONPATH": import_path(own=not needs)}, log=log, cwd=cwd or log.parent,
        )  # fmt: skip
        self._peers.append(found)
        return found

    def library(self, library: Library) -> Peer:
        """The library's program on real Slurm; another one where the last was ended."""
        found = self._libraries.get(library.key)
        if found is None or not found.alive:
            env = {**self.slurm_env, "PATH": self._counting_path(library.key)}
            place = self.folder(library.key)
            found = self.peer(
                library.label, library.program, str(place), env=env, needs=library.needs, cwd=place
            )
            self._libraries[library.key] = found
            self.versions[library.label] = str(found.facts["version"])
        return found

    def _counting_path(self, key: str) -> str:
        """A PATH whose Slurm commands leave a line each time before they do their work."""
        place = self.folder(f"commands-{key}")
        for name in COMMANDS:
            real = shutil.which(name, path=self.slurm_env["PATH"])
            counting = place / name
            counting.write_text(f'#!/bin/sh\necho {name} >> {place}/.asked\nexec {real} "$@"\n')
            counting.chmod(0o755)
        return f"{place}{os.pathsep}{self.slurm_env['PATH']}"

    def cost_so_far(self, key: str) -> dict[str, int]:
        """How often the library has asked the scheduler, and what files there are by now."""
        asked = self.folder(f"commands-{key}") / ".asked"
        calls = len(asked.read_text().splitlines()) if asked.exists() else 0
        names = [name for _, _, names in os.walk(self.folder(key)) for name in names]
        logs = sum(name.endswith((".out", ".err", ".log")) for name in names)
        return {"asked": calls, "made": len(names), "made_but_logs": len(names) - logs}

    def end_peers(self) -> None:
        """End the programs of a scenario, so that the next one has the host to itself."""
        self._libraries.clear()
        while self._peers:
            self._peers.pop().close()
        if "slurm_env" in vars(self):
            self.empty_queue()

    def able(self, order: str, keys: Iterable[str] = ()) -> list[Library]:
        """The libraries that can play an order; the reasons of the others are kept."""
        found = []
        for one in LIBRARIES:
            if keys and one.key not in keys:
                continue
            if order in one.cannot:
                self.leave_out(one.label, order, one.cannot[order])
            elif not one.needs or self._installed(one):
                found.append(one)
        return found

    def _installed(self, library: Library) -> bool:
        try:
            environment(*library.needs)
        except PeerFailed as error:
            self.leave_out(library.label, "everything", str(error))
            return False
        return True

    def leave_out(self, label: str, order: str, reason: str) -> None:
        """Keep why a library has no figure."""
        self.left_out.setdefault((label, reason), set()).add(order)

    def skip(self, reason: str) -> None:
        """Keep and print why something was not measured."""
        self.skipped.append(reason)
        print(reason, flush=True)

    def alternate(
        self, rounds: int, turns: Mapping[str, Callable[[], Any]], aligned: bool = False
    ) -> dict[str, list[Any]]:
        """Play every turn once per round, each time in another order.

        What fails is left out from then on, and who needs long plays once; a run that is out of
        time ends after a whole round.
        `aligned` turns of one round begin at the same fraction of a second: slurmctld starts jobs
        once a second, and each turn must wait for it as long as its peers.
        """
        found: dict[str, list[Any]] = {name: [] for name in turns}
        names = list(turns)
        slow: set[str] = set()
        dice = random.Random(1)
        for number in range(rounds):
            if number >= 1 and time.monotonic() > self.until:
                self.skip(f"out of time after {number} of {rounds} rounds")
                break
            for name in dice.sample(names, len(names)):
                if aligned:
                    _await_fraction(number / rounds)
                began = time.monotonic()
                try:
                    found[name].append(turns[name]())
                except PeerFailed as error:
                    print(f"{name} is left out: {error}", flush=True)
                if time.monotonic() - began > LONG_TURN_S:
                    slow.add(name)
            names = [name for name in names if len(found[name]) > number and name not in slow]
        return found

    def empty_queue(self, key: str = "") -> None:
        """Cancel what a library, or everybody, left in the queue and wait until it is gone."""
        deadline = time.monotonic() + 60
        while jobs := self._queued(key):
            if time.monotonic() > deadline:
                self.skip(f"a job of {key or 'before'} is still in the queue")
                return
            subprocess.run(["scancel", *jobs], env=self.slurm_env, timeout=60)
            time.sleep(0.2)

    def _queued(self, key: str) -> list[str]:
        """The jobs in the queue; those of a library work somewhere in its folder."""
        words = ["squeue", "--noheader", "--format=%A %Z"]
        lines = subprocess.check_output(words, env=self.slurm_env, text=True, timeout=60)
        place = str(self.folder(key)) if key else ""
        found = (line.partition(" ") for line in lines.splitlines())
        return sorted({job for job, _, folder in found if folder.startswith(place)})[:1000]


def _await_fraction(fraction: float) -> None:
    """Wait at least a moment, and until the clock shows this fraction of a second."""
    time.sleep(0.2)
    time.sleep((fraction - time.time()) % 1)


def timed(command: list[str], env: Mapping[str, str]) -> float:
    """How many seconds a command takes.

    Not `subprocess.run(timeout=...)`: that looks for the end ever more rarely, up to 50 ms late.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    guard = threading.Timer(60, process.kill)
    guard.start()
    code = process.wait()
    taken = time.perf_counter() - began
    guard.cancel()
    if code != 0:
        raise PeerFailed(f"{command[:3]} ended with exit code {code}")
    return taken
