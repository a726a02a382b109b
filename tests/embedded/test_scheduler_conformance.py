"""The same script on the embedded scheduler and on a real Slurm: what it sees must be the same."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_scheduler_bench import PATIENCE_S, Bench, bench

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

__all__ = ["bench"]

# What belongs to one installation of Slurm, or to its version, and means nothing here.
THEIRS = {
    "SLURM_CONF", "SLURM_JOB_ACCOUNT", "SLURM_NODE_ALIASES", "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_WORKING_CLUSTER",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", "SLURM_DISTRIBUTION", "SLURM_STEP_LAUNCHER_PORT",
    "SLURM_SRUN_COMM_PORT", "SLURM_OOM_KILL_STEP", "SLURM_TRES_PER_TASK",
    "SLURMD_DEBUG",
}  # fmt: skip
# What names the job, its place and its host, which are others; and the priority of who submitted,
# who may be somebody with `nice`.
DIFFERENT = {
    "SLURM_ARRAY_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_JOBID", "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION", "SLURM_NODELIST", "SLURM_STEP_NODELIST",
    "SLURM_PRIO_PROCESS", "SLURM_SUBMIT_DIR", "SLURMD_NODENAME", "SLURM_JOB_START_TIME",
}  # fmt: skip
# The CPUs of the whole job in 22.05, of the step in 24.11.
IN_A_STEP = {"SLURM_CPUS_ON_NODE"}
# What newer releases of Slurm take for a job without a time limit.
YEAR_S = 365 * 24 * 3600

# One worker has them all: each would bring up a Slurm of its own.
pytestmark = pytest.mark.xdist_group("slurm")


def run_on_slurm(cluster: RunningCluster, folder: Path, script: str) -> str:
    folder.mkdir()
    (folder / "job.sh").write_text(script)
    env = {**os.environ, **cluster.env}

    def ask(*command: str) -> str:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    job = ask("sbatch", "--parsable", "job.sh")
    deadline = time.monotonic() + PATIENCE_S
    while ask("squeue", "-h", "--me", "-t", "PD,R,CG,CF", "-o", "%A").splitlines().count(job):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return (folder / "log").read_text()


def run_here(bench: Bench, folder: Path, script: str) -> str:
    folder.mkdir()
    (folder / "job.sh").write_text(script)
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_CONF")}
    bench.ended(bench.scheduler.submit(str(folder / "job.sh"), env, str(folder)))
    return (folder / "log").read_text()


def both(cluster: RunningCluster, bench: Bench, script: str) -> tuple[str, str]:
    return (
        run_on_slurm(cluster, bench.work / "slurm", script),
        run_here(bench, bench.work / "here", script),
    )


def variables(text: str) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines())
    found = {name: value for name, _, value in lines if name.startswith(("SLURM", "CUDA"))}
    end = int(found.pop("SLURM_JOB_END_TIME", 0))
    limit = end - int(found.get("SLURM_JOB_START_TIME", 0))
    if end and limit != YEAR_S:
        found["SLURM_JOB_END_TIME"] = f"{limit} s after the start"
    return found


@pytest.mark.parametrize(
    "flags",
    [
        "--mem-per-cpu=50",
        "-n 2 -c 2 -t 5 --mem=100 -J named",
        "-N 2 --ntasks-per-node=2 --mem=100",
        "--array=2-3:2 --mem-per-cpu=50",
    ],
)
def test_a_job_sees_the_same_variables(
    bench: Bench, slurm_cluster: RunningCluster, flags: str
) -> None:
    script = f"#!/bin/bash\n#SBATCH {flags} -o log\nenv\necho ==\nsrun -n 1 -N 1 env\n"
    for theirs, ours, differ in zip(
        *(map(variables, text.split("==\n")) for text in both(slurm_cluster, bench, script)),
        (DIFFERENT, DIFFERENT | IN_A_STEP),
        strict=True,
    ):
        expected = {k: v for k, v in theirs.items() if k not in THEIRS | differ}
        assert {name: ours.get(name) for name in expected} == expected
        assert set(theirs) & differ <= set(ours)


def test_ranks_are_laid_out_alike(bench: Bench, slurm_cluster: RunningCluster) -> None:
    names = "PROCID NODEID LOCALID NTASKS STEP_ID STEP_NUM_TASKS STEP_NUM_NODES TASKS_PER_NODE"
    line = " ".join(f"$SLURM_{name}" for name in names.split())
    script = (
        "#!/bin/bash\n#SBATCH -N 2 -n 4 --ntasks-per-node=2 --mem=100 -o log\n"
        f"srun bash -c 'echo {line}'\nsrun -n 3 bash -c 'echo {line}' 2>/dev/null\n"
        f"srun -n 2 -N 1 bash -c 'exit $SLURM_PROCID' 2>/dev/null; echo $?\n"
    )
    theirs, ours = both(slurm_cluster, bench, script)
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())


@pytest.mark.parametrize(
    "line",
    [
        "-J 'a b'", '-J "a \\"b\\" c"', "-Ja#b", "-J one # -J two", "--job-name a",
        "-J a\\#b", "-J 'a#b'", "-J a\\\\b", "-J a\\'b", "-J 'a\\'b'", "-J \"it's\"",
        "-J 'back\\slash'", '-J "dollar$HOME"', "-J one -J two", "-J a'b'c",
    ],
)  # fmt: skip
def test_quotes_in_sbatch_lines_are_read_alike(
    bench: Bench, slurm_cluster: RunningCluster, line: str
) -> None:
    script = f'#!/bin/bash\n#SBATCH --mem=50 -o log\n#SBATCH {line}\necho "<$SLURM_JOB_NAME>"\n'
    theirs, ours = both(slurm_cluster, bench, script)
    assert ours == theirs


def test_names_of_logs_are_filled_alike(bench: Bench, slurm_cluster: RunningCluster) -> None:
    for pattern in ("%x-%u", "%%x", "%4t", "a%%%%b", "%s-%n"):
        found = []
        for kind in ("slurm", "here"):
            folder = bench.work / f"{kind}-{len(list(bench.work.iterdir()))}"
            script = f"#!/bin/bash\n#SBATCH --mem=50 -J n -o {pattern}\necho x > log\n"
            if kind == "slurm":
                run_on_slurm(slurm_cluster, folder, script)
            else:
                run_here(bench, folder, script)
            found.append({path.name for path in folder.iterdir()} - {"log", "job.sh"})
        assert found[1] == found[0], pattern
