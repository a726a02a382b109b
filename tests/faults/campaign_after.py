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
#: How long Slurm may take to see that a job has no process.
GHOST = 60


class Aftermath:
    """A run of the campaign that is over."""

    def __init__(self, plan: Plan, slurm: BreakableSlurm, base: Path) -> None:
        self.plan, self.slurm, self.base = plan, slurm, base
        self.env = {**os.environ, **slurm.cluster.env}
        #: How many jobs Slurm still believed to run at last, and what is wrong.
        self.ghosts = 0
        self.wrong: list[str] = []

    def _asked(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=90)
        return done.stdout

    def judge(self) -> dict[str, list[str]]:
        """What a new client says about every run."""
        words = [sys.executable, str(CLIENT), "judge", str(self.base)]
        try:
            done = subprocess.run(
                words, env=self.env, capture_output=True, text=True, timeout=JUDGE_LIMIT
            )
            found: dict[str, list[str]] = json.loads(done.stdout)
            return found
        except subprocess.TimeoutExpired:
            self.wrong.append("a judge hangs")
        except ValueError:
            self.wrong.append(f"a judge failed: {done.stderr[-2000:]}")
        return {}

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

    def lay_ghosts(self) -> None:
        """See to it that Slurm knows which jobs are over.

        Where slurmstepd is killed nobody tells it. It looks when a node registers anew, every few
        minutes or when slurmd starts, and then only for jobs that began some time ago.
        """
        if not any(self.plan.fault(victim) for victim in ("slurmstepd", "slurmd", "slurmctld")):
            return
        end = time.monotonic() + GHOST
        while (ghosts := self._ghosts()) and time.monotonic() < end:
            for node in set(ghosts.values()):
                self.slurm.cluster.stop_daemon("slurmd", node)
                self.slurm.start("slurmd", node)
            time.sleep(5)
        self.ghosts = len(ghosts)
        if ghosts:
            self._asked("scancel", *ghosts)

    def _ghosts(self) -> dict[str, str]:
        """Jobs that Slurm calls running, and where, of runs that twice had no process."""
        found = self._without_process()
        if found:
            time.sleep(3)
            found = {job: node for job, node in self._without_process().items() if job in found}
        return found

    def _without_process(self) -> dict[str, str]:
        rows = self._asked("squeue", "-h", "-r", "-t", "R", "-o", "%i|%N|%Z").splitlines()
        running = [row.split("|") for row in rows if f"|{self.base}/" in row]
        # As a word of its own: a workflow's run is also the beginning of its children's.
        alive = {word for _, words in of_place(self.base) for word in words.split()}
        return {job: node for job, node, run in running if run not in alive}

    def left_behind(self) -> Iterator[str]:
        """What is still there although every outcome is known, and after the sweep."""
        if not in_time(self._emptied, QUEUE_LIMIT):
            yield f"left in the queue: {self._queued()!r}"
        if not in_time(lambda: not of_place(self.base), 30):
            yield f"left running: {of_place(self.base)}"
        sweep = ["gc", "--older-than", "0", "--keep", "0", "--yes"]
        words = [sys.executable, "-m", "slurm.cli", *sweep, "--job-base-dir", str(self.base)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=120)
        if done.returncode:
            yield f"slurm gc failed: {done.stdout}{done.stderr}"
        left = [p for p in self.base.iterdir() if p.name[0] != "." or p.name.startswith(".gone")]
        left += [*self.base.rglob("*.tmp"), *self.base.glob(".ids/*")]
        if left:
            names = ", ".join(str(path.relative_to(self.base)) for path in left)
            yield f"left after gc: {names}; it said: {done.stdout}"


def in_time(condition: Callable[[], Any], timeout: float) -> bool:
    try:
        eventually(condition, timeout)
    except AssertionError:
        return False
    return True


def processes() -> Iterator[tuple[int, str]]:
    """All processes with their command lines."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(folder.name), words.decode(errors="replace")


def of_place(place: Path) -> list[tuple[int, str]]:
    """The processes whose command line names a directory."""
    return [(pid, w) for pid, w in processes() if f"{place}/" in w and pid != os.getpid()]
