"""What importing the SDK and starting its runner cost above a bare interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from benchmarks.figures import Row, Section, above
from benchmarks.ground import Ground, timed

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
    from benchmarks.peer import PROGRAMS

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
    cloudpickle = Row("", tuple(samples[CLOUDPICKLE])).median - Row("", tuple(samples[BARE])).median
    limits = {
        "import slurm": IMPORT_MS,
        "from slurm import Cluster, task, Job": IMPORT_MS,
        BY_REFERENCE: RUNNER_MS,
        BY_VALUE: round(RUNNER_MS + cloudpickle, 1),
    }
    return Section(
        "Start-up above a bare interpreter",
        above(samples, BARE, limits),
        (
            "The runner's time is its whole life around a function that does nothing, the result "
            "brought to the disk (fsync) included. By value it may take cloudpickle's own import "
            "longer.",
        ),
    )
