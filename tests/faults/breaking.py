"""What tests do to a real Slurm: lose nodes, crash daemons, forget jobs; and how it is mended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm import Job
from slurm.errors import StackError
from slurm.stack import RunningCluster

#: A guard against hangs, far above what any of these needs.
SOON = 60


class BreakableSlurm:
    """A cluster of three nodes, and what tests do to it."""

    def __init__(self, cluster: RunningCluster, prolog_flag: Path) -> None:
        self.cluster = cluster
        self._prolog_flag = prolog_flag

    def run(self, *command: str) -> str:
        """The output of a Slurm command."""
        env = {**os.environ, **self.cluster.env}
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SOON, env=env
        )
        return done.stdout.strip()

    def state(self, job_id: str) -> str:
        """The state of a job, "" when the controller does not know it."""
        env = {**os.environ, **self.cluster.env}
        command = ["squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, env=env)
        return done.stdout.strip()

    def lose_node(self, node: str) -> None:
        """The node's daemon dies, and the controller is told at once."""
        self.cluster.stop_daemon("slurmd", node, signal=signal.SIGKILL)
        # An answer that the daemon gave just before may be noted a second later and take the node
        # into service again: drained, it still gets no job.
        for state in ("down", "drain"):
            self.run("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")

    def fail_prolog(self, node: str) -> None:
        """From now on no job can start on this node."""
        Path(f"{self._prolog_flag}-{node}").touch()

    def crash_and_forget(self, act: Callable[[], Any]) -> Any:
        """The controller crashes and comes back as it was before `act`.

        A crash soon after a submission does that when its state had not been saved; when exactly
        it is saved nobody can know, so the state of before is put back.
        """
        state, copy = self.cluster.dir / "state", self.cluster.dir / "state-before"
        # What was done before is saved within five seconds.
        time.sleep(6)
        shutil.copytree(state, copy)
        try:
            found = act()
            self.cluster.stop_daemon("slurmctld", signal=signal.SIGKILL)
            shutil.rmtree(state)
            shutil.copytree(copy, state)
        finally:
            shutil.rmtree(copy)
        self.start("slurmctld")
        return found

    def start(self, daemon: str, node: str | None = None) -> None:
        """Start a daemon again; the child of a killed one may hold its port for a moment."""
        end = time.monotonic() + SOON
        while True:
            try:
                return self.cluster.start_daemon(daemon, node)
            except StackError as error:
                if "in use" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def start_all(self) -> None:
        """Start every daemon that is down."""
        for daemon in ("munged", "mariadbd", "slurmdbd", "slurmctld"):
            self.start(daemon)
        for node in self.cluster.nodes:
            self.start("slurmd", node)
            Path(f"{self._prolog_flag}-{node}").unlink(missing_ok=True)

    def mend(self) -> None:
        """Start what is down, resume nodes, and end all jobs."""
        self.start_all()
        # A node refuses an id that it has just been told to forget: the next job gets a new one.
        self.run("sbatch", "--hold", "--output=/dev/null", "--wrap", "true")
        self.run("scancel", "--user=root" if os.getuid() == 0 else f"--user={os.getuid()}")
        self.resume_nodes()
        eventually(lambda: not self.run("squeue", "-h"))
        self.cluster.wait_ready(SOON)

    def resume_nodes(self) -> None:
        """Take nodes that are down or drained into service again."""
        for node in self.cluster.nodes:
            # Refused where the node has come back by itself: then it is in service already.
            with contextlib.suppress(subprocess.CalledProcessError):
                self.run("scontrol", "update", f"nodename={node}", "state=resume")


def eventually(condition: Callable[[], Any], timeout: float = SOON) -> Any:
    """What the condition gives, once it is true."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def runner_pid(job: Job[Any], attempt: int = 0) -> int:
    """The process that runs the function, once it does."""

    def find() -> int:
        for path in Path(job.path, "events").glob("*.txt"):
            for line in path.read_text().splitlines():
                if line.startswith("start ") and f" attempt={attempt} " in line:
                    return int(line.partition(" pid=")[2].split()[0])
        return 0

    return int(eventually(find))
