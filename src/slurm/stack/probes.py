"""Questions to a running cluster through Slurm's own commands: nodes, a first job, accounting."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from slurm.errors import StackError
from slurm.stack.accounts import accounting_commands
from slurm.stack.daemons import program
from slurm.stack.native_plan import NativeCluster
from slurm.stack.processes import last_lines, wait_until

_IN_SERVICE = frozenset({"idle", "mixed", "allocated", "completing", "planned", "reserved"})
_OF_A_CALLER = ("SLURM", "SBATCH", "SRUN", "SINFO", "SACCT")


def node_states(cluster: NativeCluster) -> dict[str, str]:
    """Each node's state as slurmctld sees it; empty when it does not answer."""
    done = _command(cluster, ["scontrol", "show", "nodes", "--oneliner"], timeout=15)
    return parse_nodes(done.stdout) if done.returncode == 0 else {}


def in_service(state: str | None) -> bool:
    """Whether a node in this state takes jobs, now or when present ones end (idle+completing)."""
    return state is not None and _IN_SERVICE.issuperset(state.split("+"))


def parse_nodes(text: str) -> dict[str, str]:
    """Node -> state from `scontrol show nodes --oneliner`; `*` in it means: not responding."""
    found = re.findall(r"^NodeName=(\S+) .*? State=(\S+)", text, re.MULTILINE)
    return {name: state.lower() for name, state in found}


def widest_job(text: str) -> tuple[str, int] | None:
    """The default partition (else the first) and the most nodes that a job in it may have.

    Reads `sinfo -o "%P|%D|%s"`: name, with `*` for the default; nodes; smallest-largest job.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    if not rows:
        return None
    name, nodes, sizes = next((row for row in rows if row[0].endswith("*")), rows[0])
    largest = sizes.rpartition("-")[2]
    return name.rstrip("*"), min(int(nodes), int(largest) if largest.isdigit() else int(nodes))


def add_cluster(cluster: NativeCluster) -> None:
    """Tell accounting the cluster's name before its controller starts.

    A controller that finds its name missing adds it itself, on several connections at once; when
    they meet, slurmdbd 22.05 refuses the controller from then on ("no remote port"). Where this
    fails (a wrong line in slurm.conf) the controller is next, and says why in its own words.
    """
    argv = ["sacctmgr", "--immediate", "--quiet", "add", "cluster", cluster.name]
    _command(cluster, argv, timeout=30)


def set_accounts(cluster: NativeCluster) -> None:
    """Make QOS, accounts and users what the topology says; what exists already stays."""
    for words in accounting_commands(cluster.plan):
        _command(cluster, ["sacctmgr", "--immediate", "--quiet", *words], timeout=30)


def busy_nodes(cluster: NativeCluster, nodes: Sequence[str]) -> list[str]:
    """Those of some nodes that have jobs."""
    states = node_states(cluster) if nodes else {}
    return [n for n in nodes if re.search("alloc|mix|compl", states.get(n, ""))]


def reconfigure(cluster: NativeCluster) -> None:
    """Let all daemons read their files again."""
    _command(cluster, ["scontrol", "reconfigure"], timeout=60)


def run_everywhere(cluster: NativeCluster) -> str:
    """Prove that the cluster takes a job: run one on all nodes of a partition; its job id."""
    listed = _command(cluster, ["sinfo", "-h", "-a", "-o", "%P|%D|%s"], timeout=15)
    partition, nodes = widest_job(listed.stdout) or ("main", len(cluster.plan.nodes))
    argv = ["srun", f"--partition={partition}", f"--nodes={nodes}", "--time=1", "--job-name=first"]
    done = _command(cluster, [*argv, "sh", "-c", "echo job=$SLURM_JOB_ID"], timeout=60)
    found = re.findall(r"^job=(\d+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(found) != nodes:
        raise StackError(
            f"the first job did not run on {nodes} nodes; srun's and slurmctld's words are below",
            evidence=[*done.stdout.splitlines()[-6:], *last_lines(cluster.log("slurmctld"), 6)],
            hint=f"look into the logs in {cluster.directory}/log",
        )
    return str(found[0])


def await_accounted(cluster: NativeCluster, job_id: str, patience: float = 60) -> None:
    """Wait until accounting lists the first job.

    It must be in the list of all jobs: by its id a job can be found some seconds before the
    controller has registered its nodes with slurmdbd, and lists stay empty until then.
    """
    argv = ["sacct", "-n", "-a", "-X", "-P", "-o", "JobID,State", "-S", "now-1hour"]

    def accounted() -> bool:
        return f"{job_id}|COMPLETED" in _command(cluster, argv, timeout=15).stdout.splitlines()

    if not wait_until(accounted, patience):
        raise StackError(
            f"the first job did not reach accounting within {patience:g} s",
            evidence=last_lines(cluster.log("slurmdbd")),
        )


def _command(
    cluster: NativeCluster, argv: list[str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run one Slurm command; a command that takes too long counts as failed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(_OF_A_CALLER)}
    try:
        return subprocess.run(
            [program(argv[0]), *argv[1:]],
            env={**env, **cluster.client_env, "LC_ALL": "C"},
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
