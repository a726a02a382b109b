"""Questions to a running cluster through Slurm's own commands: nodes, a first job, accounting."""

from __future__ import annotations

import os
import re
import subprocess

from slurm.errors import StackError
from slurm.stack.daemons import program
from slurm.stack.processes import last_lines, wait_until
from slurm.stack.topology import Topology

IN_SERVICE = frozenset({"idle", "mixed", "allocated", "completing"})
_OF_A_CALLER = ("SLURM", "SBATCH", "SRUN", "SINFO", "SACCT")


def node_states(topology: Topology) -> dict[str, str]:
    """Each node's state as slurmctld sees it; empty when it does not answer."""
    done = _command(topology, ["sinfo", "-h", "-N", "-o", "%N %T"], timeout=15)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return dict(parse_node_state(line) for line in lines if " " in line)


def parse_node_state(line: str) -> tuple[str, str]:
    """Node and state of one line of `sinfo -N -o "%N %T"`; `*` after it means: not responding."""
    name, state = line.split(None, 1)
    return name, state.strip()


def run_everywhere(topology: Topology) -> str:
    """Prove that the cluster takes a job: run one on every node; its job id."""
    argv = ["srun", f"--nodes={len(topology.nodes)}", "--time=1", "--job-name=first"]
    done = _command(topology, [*argv, "sh", "-c", "echo job=$SLURM_JOB_ID"], timeout=60)
    found = re.findall(r"^job=(\d+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(found) != len(topology.nodes):
        raise StackError(
            "the first job did not run on all nodes; the words of srun and slurmctld are below",
            evidence=[*done.stdout.splitlines()[-6:], *last_lines(topology.log("slurmctld"), 6)],
            hint=f"look into the logs in {topology.directory}/log",
        )
    return str(found[0])


def await_accounted(topology: Topology, job_id: str, patience: float = 60) -> None:
    """Wait until the first job has come through slurmdbd into the database."""
    argv = ["sacct", "-n", "-X", "-P", "-o", "State", "-S", "now-1day", "-j", job_id]

    def accounted() -> bool:
        return "COMPLETED" in _command(topology, argv, timeout=15).stdout

    if not wait_until(accounted, patience):
        raise StackError(
            f"the first job did not reach accounting within {patience:g} s",
            evidence=last_lines(topology.log("slurmdbd")),
        )


def _command(
    topology: Topology, argv: list[str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run one Slurm command; a command that takes too long counts as failed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(_OF_A_CALLER)}
    try:
        return subprocess.run(
            [program(argv[0]), *argv[1:]],
            env={**env, **topology.client_env, "LC_ALL": "C"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, f"{argv[0]}: no answer in {timeout:g} s", "")
