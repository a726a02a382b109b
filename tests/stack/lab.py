"""A cluster in containers for tests: its commands, and what became of jobs."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm.stack import health, life, record
from slurm.stack.converge import Stack, open_stack
from slurm.stack.read import parse_topology

PATIENCE = 240


def until(true: Callable[[], bool], told: Callable[[], object]) -> None:
    """Wait for something; a guard against hangs that shows how it was last."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, told()
        time.sleep(0.5)


class Lab:
    """One cluster, its directory and its file."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        self.text = text
        self.name = parse_topology(text).name
        self.said: list[str] = []

    def up(self) -> Lab:
        """Bring it up, or go on with what an interruption left."""
        file = self.directory / "cluster.toml"
        text = file.read_text() if file.exists() else self.text
        life.up(self.directory, parse_topology(text), text, self.said.append)
        return self

    @property
    def stack(self) -> Stack:
        """The cluster as it is on disk now."""
        return open_stack(self.directory, self.said.append)

    @property
    def record(self) -> record.Record:
        """What is written down about it."""
        found = record.load(self.directory)
        assert found is not None
        return found

    def podman(self, *words: str) -> str:
        """Run podman; it must succeed."""
        done = subprocess.run(
            ["podman", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def user(self, *words: str) -> str:
        """A command of the user's on the login node."""
        options = ("exec", "--user", "user", "--workdir", "/home/user")
        return self.podman(*options, f"{self.name}-login", *words).strip()

    def batch(self, command: str, *options: str) -> str:
        """Submit a job; its id."""
        words = ("sbatch", "--parsable", "--mem=20", "--output=/dev/null", *options)
        return self.user(*words, f"--wrap={command}")

    def marks(self) -> list[str]:
        """A line for each time that a job of `marking` has run, in order."""
        return sorted(self.user("bash", "-c", "cat marks.* 2>/dev/null || true").split())

    def wait_empty(self) -> None:
        """Until no job is in the queue, and accounting has been told all."""
        end = time.monotonic() + PATIENCE
        while self.user("squeue", "--noheader") or not self._all_told():
            assert time.monotonic() < end, self.user("squeue")
            time.sleep(1)

    def wait_mended(self) -> None:
        """The same after a crash: what `status` says that it left is put right by its command."""
        end = time.monotonic() + PATIENCE
        while self.user("squeue", "--noheader") or not self._all_told():
            assert time.monotonic() < end, self.user("squeue")
            if any("a crash left" in note for note in health.look(self.directory).notes):
                self.up()
            time.sleep(2)

    def wait_gone(self, job: str) -> None:
        """Until a job is no longer in the queue."""
        end = time.monotonic() + PATIENCE
        while self.user("squeue", "--noheader", f"--jobs={job}", "--states=PD,R,CG"):
            assert time.monotonic() < end, self.user("squeue")
            time.sleep(0.5)

    def _all_told(self) -> bool:
        return "DBD Agent queue size: 0" in self.user("sdiag")

    @property
    def prometheus(self) -> str:
        """Its address and port on this host."""
        monitoring = self.stack.plan.topology.monitoring
        return f"{monitoring.address}:{monitoring.prometheus_port}"

    def targets(self, address: str = "") -> dict[str, str]:
        """What Prometheus scrapes, and whether that answers."""
        every = _asked(address or self.prometheus, "targets")["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in every}

    def query(self, text: str) -> float:
        """The one value of a query; 0 where there is none yet."""
        query = "query?" + urllib.parse.urlencode({"query": text})
        found = _asked(self.prometheus, query)["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def wait_state(self, job: str, state: str) -> None:
        """Until a job, or one of an array, is in that state."""
        end = time.monotonic() + PATIENCE
        while state not in self.user("squeue", "-h", "-r", "-o", "%T", "-j", job).split():
            assert time.monotonic() < end, self.user("squeue")
            time.sleep(0.5)

    def kill(self, *services: str) -> None:
        """SIGKILL, as a crash does it."""
        for service in services:
            self.podman("kill", f"{self.name}-{service}")

    def containers(self) -> str:
        """The ids of the containers that run."""
        return self.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={self.name}")

    def accounted(self, job: str) -> list[str]:
        """The states of a job, or of an array's tasks, in accounting."""
        return self.user("sacct", "-X", "-n", "-P", "-o", "state", "-j", job).split()


def _asked(address: str, what: str) -> Any:
    with urllib.request.urlopen(f"http://{address}/api/v1/{what}", timeout=30) as reply:
        return json.load(reply)["data"]


def marking(seconds: float) -> str:
    """A command that takes a while and leaves a mark with its id."""
    return f"sleep {seconds}; id=${{SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}}; echo $id >> marks.$id"
