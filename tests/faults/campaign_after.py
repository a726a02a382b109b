"""What is asked and looked for when a run of the campaign is over and all is mended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from breaking import BreakableSlurm, eventually
from campaign_plan import Plan

CLIENT = Path(__file__).with_name("campaign_client.py")
#: Guards against hangs: of a judge, and of the queue after the end.
JUDGE_LIMIT, QUEUE_LIMIT = 200, 90
#: How long a job without a process may still be called running.
GHOST = 10


class Aftermath:
    """A run of the campaign that is over."""

    def __init__(self, plan: Plan, slurm: BreakableSlurm, base: Path) -> None:
        self.plan, self.slurm, self.base = plan, slurm, base
        self.env = {**os.environ, **slurm.cluster.env}
        #: How many jobs only Slurm believed to run.
        self.ghosts = 0

    def _asked(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=90)
        return done.stdout

    def judge(self) -> dict[str, list[str]]:
        done = subprocess.run(
            [sys.executable, str(CLIENT), "judge", str(self.base)],
            env=self.env,
            cwd=self.base.parent,
            capture_output=True,
            text=True,
            timeout=JUDGE_LIMIT,
        )
        assert done.returncode == 0, f"the judge failed: {done.stderr[-2000:]}"
        found: dict[str, list[str]] = json.loads(done.stdout)
        return found

    def _queued(self) -> list[list[str]]:
        """Id, state, name and reason of each job of this run's that Slurm has not ended."""
        rows = self._asked("squeue", "-h", "-r", "-o", "%i|%T|%j|%r|%Z").splitlines()
        return [row.split("|")[:4] for row in rows if f"|{self.base}/" in row]

    def _emptied(self) -> bool:
        """Whether the queue is empty; what a controller has set aside when it crashed goes on.

        It takes a job for new that it had started already, the node refuses the id that it knows,
        and Slurm holds the job and drains the node. Once released the job finds its result.
        """
        queued = self._queued()
        if queued and self.plan.fault("slurmctld"):
            self.slurm.resume_nodes()
            self._asked("scontrol", "release", *(job for job, *_ in queued))
            time.sleep(2)
        return not queued

    def _ghosts(self) -> list[str]:
        """Jobs that only Slurm believes to run: it missed how they ended when a daemon died."""
        alone = any(self.plan.fault(v) for v in ("slurmstepd", "slurmd", "slurmctld"))
        if not alone or not self._queued() or of_place(self.base):
            return []
        time.sleep(GHOST)  # what has just ended is still told
        queued = self._queued()
        ghosts = [job for job, state, *_ in queued if state in ("RUNNING", "COMPLETING")]
        # What waits for a ghost is a small job of ours.
        others = [name for _, state, name, _ in queued if state == "PENDING"]
        told = all(name.endswith((":retry", ":next")) for name in others)
        return ghosts if told and not of_place(self.base) else []

    def left_behind(self) -> Iterator[str]:
        """What is still there although every outcome is known, and after the sweep."""
        if not in_time(lambda: self._emptied() or self._ghosts(), QUEUE_LIMIT):
            yield f"left in the queue: {self._queued()!r}"
        if ghosts := self._ghosts():
            self.ghosts = len(ghosts)
            self._asked("scancel", *ghosts)
            if not in_time(lambda: not self._queued(), QUEUE_LIMIT):
                yield f"cancelled, and left in the queue: {self._queued()!r}"
        if not in_time(lambda: not of_place(self.base), 30):
            yield f"left running: {of_place(self.base)}"
        sweep = ["gc", "--older-than", "0", "--keep", "0", "--yes"]
        words = [sys.executable, "-m", "slurm.cli", *sweep, "--job-base-dir", str(self.base)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=120)
        if done.returncode:
            yield f"slurm gc failed: {done.stdout}{done.stderr}"
        for path in self.base.iterdir():
            if not path.name.startswith(".") or path.name.startswith(".gone"):
                yield f"left after gc: {path.name}: {sorted(p.name for p in path.iterdir())}"
        for path in [*self.base.rglob("*.tmp"), *self.base.glob(".ids/*")]:
            yield f"left after gc: {path.relative_to(self.base)}"


def in_time(condition: Callable[[], Any], timeout: float) -> bool:
    try:
        eventually(condition, timeout)
    except AssertionError:
        return False
    return True


def of_place(place: Path) -> list[tuple[int, str]]:
    """The processes whose command line names a directory."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if f"{place}/" in words and int(folder.name) != os.getpid():
                    found.append((int(folder.name), words))
    return found
