"""What importing the SDK and starting its runner cost above a bare interpreter."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable

from benchmarks.figures import Section, above
from benchmarks.ground import SLURM_SDK, SUBMITIT, Ground, timed
from benchmarks.peer import PROGRAMS, PeerFailed, environment

IMPORT_MS, RUNNER_MS = 40.0, 30.0
BARE = "python -c pass"
BY_REFERENCE = "runner, function by reference in a module with @task"
BY_VALUE = "runner, function by value"
CLOUDPICKLE = "import cloudpickle"

# Makes the two run directories by running the two jobs, on the embedded scheduler.
_MAKE_RUNS = """
import json, sys
from noop import by_reference
from slurm import Cluster, task
from slurm.packaging.sdk import sdk_hash

@task
def by_value():
    return 1

cluster = Cluster("embedded", job_base_dir=sys.argv[1])
jobs = [cluster.submit(f)() for f in (by_reference, by_value)]
assert [job.result(60) for job in jobs] == [1, 1]
home = cluster.base + "/.sdk/" + sdk_hash()
runs = [cluster.base + "/" + job.run for job in jobs]
print(json.dumps([home + "/slurm/runner/__main__.py", *runs]))
"""


def start_up(ground: Ground) -> Section:
    """Import and runner start, in turn with a bare interpreter."""
    env = {**ground.embedded_env, "PYTHONPATH": str(PROGRAMS)}
    made = subprocess.check_output(
        [sys.executable, "-c", _MAKE_RUNS, str(ground.folder("ejobs"))], env=env, timeout=120
    )
    runner, by_reference, by_value = json.loads(made)
    bare = ground.bare_env
    in_job = {**bare, "SLURM_JOB_ID": "1"}
    python = sys.executable

    def starts(env: dict[str, str], *words: str) -> Callable[[], float]:
        return lambda: 1000 * timed([python, *words], env)

    turns = {
        BARE: starts(bare, "-c", "pass"),
        "import slurm": starts(bare, "-c", "import slurm"),
        "from slurm import Cluster, task, Job": starts(
            bare, "-c", "from slurm import Cluster, task, Job"
        ),
        BY_REFERENCE: starts(in_job, runner, by_reference),
        BY_VALUE: starts(in_job, runner, by_value),
        CLOUDPICKLE: starts(bare, "-c", "import cloudpickle"),
    }
    for play in turns.values():
        play()  # compiles and caches byte code
    samples = ground.alternate(ground.times(30, 10), turns)
    cloudpickle = statistics.median(samples[CLOUDPICKLE]) - statistics.median(samples[BARE])
    limits = {
        "import slurm": IMPORT_MS,
        BY_REFERENCE: RUNNER_MS,
        BY_VALUE: round(RUNNER_MS + cloudpickle, 1),
    }
    samples.update(_peers(ground))
    return Section(
        "Start-up above a bare interpreter",
        above(samples, BARE, limits),
        (
            "Targets are held to medians. Starting Python is work for the processor alone, so the "
            "distance to the lowest values tells how busy the host was.",
            "`import slurm` loads little; what a script pays is the row after it, for which no "
            "target is set.",
            "The runner's time is its whole life around a function that does nothing, the result "
            "brought to the disk (fsync) included. By value it may take cloudpickle's own import "
            "longer.",
        ),
    )


def _peers(ground: Ground) -> dict[str, list[float]]:
    """The imports of the peers, by Pythons of the same version in their own environments."""
    turns: dict[str, Callable[[], float]] = {}
    for name, needs, module in (
        ("import submitit", SUBMITIT, "submitit"),
        ("import slurm of slurm-sdk 0.4", SLURM_SDK, "slurm"),
    ):
        try:
            command = [environment(needs), "-c", f"import {module}"]
        except PeerFailed as error:
            ground.skip(f"{name} is left out: {error}")
            continue
        turns[name] = lambda command=command: 1000 * timed(command, ground.bare_env)  # type: ignore[misc]
        turns[name]()
    return ground.alternate(ground.times(8, 3), turns)
