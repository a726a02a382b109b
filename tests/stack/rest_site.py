"""A cluster with slurmrestd for tests: with GPUs, licences and QOS, and files in common."""

from __future__ import annotations

import os
from pathlib import Path

from lab import Lab

from slurm import Cluster
from slurm.api.rest_scheduler import RestScheduler

#: Debian's own, which is on every node.
PYTHON = "/usr/bin/python3"

# Any device file will do for a GPU that nobody computes with.
_TOPOLOGY = """\
version = "{version}"
[rest]
enabled = true
[shared]
path = "{shared}"
source = "{shared}"
[conf]
slurm = [
  "GresTypes=gpu,tape",
  "NodeName=DEFAULT Gres=gpu:a100:4,tape:2",
  "Licenses=matlab:8,abaqus:4",
  "AccountingStorageTRES=gres/gpu,gres/gpu:a100,license/matlab",
]
gres = [
  "Name=gpu Type=a100 File=/dev/null",
  "Name=gpu Type=a100 File=/dev/zero",
  "Name=gpu Type=a100 File=/dev/full",
  "Name=gpu Type=a100 File=/dev/random",
  "Name=tape Count=2 Flags=CountOnly",
]
[[nodes]]
names = "n[1-2]"
cpus = 4
memory = "2G"
features = ["fast", "big"]
[[partitions]]
name = "side"
max_time = "1h"
default_time = "30m"
[[partitions]]
name = "main"
default = true
[[qos]]
name = "few"
max_submit = 2
"""


def topology(version: str, shared: Path) -> str:
    """The cluster.toml of it, without a name."""
    return _TOPOLOGY.format(version=version, shared=shared)


class Site:
    """A cluster with slurmrestd, and a directory that it shares with this process."""

    def __init__(self, lab: Lab, shared: Path) -> None:
        self.lab = lab
        self.shared = shared
        self.version = lab.record.version
        self.token_file = shared / "token"
        self.url = f"http://127.0.0.1:{lab.record.ports['slurmrestd'][1]}"
        self.renew()
        # This process is root, and so are its jobs.
        lab.stack.fleet.must("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=few")

    def renew(self) -> None:
        """Put a new token where the client looks for it."""
        words = ("scontrol", "token", "username=root", "lifespan=3600")
        self.token_file.write_text(self.lab.stack.fleet.must(*words))

    def cluster(self) -> Cluster:
        """The cluster as a user sees it."""
        return Cluster(
            "rest",
            rest_url=self.url,
            token_file=self.token_file,
            job_base_dir=self.shared / "jobs",
            time="5m",
            mem="50M",
            python=PYTHON,
        )

    def scheduler(self) -> RestScheduler:
        """What is behind it."""
        return RestScheduler(self.url, str(self.token_file))

    def script(self, name: str, lines: list[str], body: str = "true") -> Path:
        """A batch script in the shared directory."""
        path = self.shared / name
        head = "".join(f"#SBATCH {line}\n" for line in lines)
        path.write_text(f"#!/bin/bash\n{head}{body}\n")
        return path

    def login(self, command: str) -> str:
        """What a shell of root's on the login node prints."""
        words = ("exec", "--user", "root", "--workdir", os.fspath(self.shared))
        return self.lab.podman(*words, f"{self.lab.name}-login", "bash", "-c", command)
