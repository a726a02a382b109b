"""What importing the SDK and starting its runner cost above a bare interpreter."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable

from benchmarks.figures import Row, Section, above
from benchmarks.ground import Ground, timed
from benchmarks.libraries import LIBRARIES, OURS, Library
from benchmarks.peer import environment, import_path

IMPORT_MS, RUNNER_MS = 40.0, 30.0
IMPORT, CLI = "Import of what a script needs", "The command line's help"
#: What a script with one task imports, and the program of those that have one.
IMPORTS = {
    "ours": "from slurm import Cluster, task",
    "submitit": "import submitit",
    "slurm-sdk": "from slurm.cluster import Cluster; from slurm.decorators import task",
    "executorlib": "from executorlib import SlurmClusterExecutor",
    "dask": "from dask_jobqueue import SLURMCluster; from distributed import Client",
    "parsl": "import parsl; from parsl.executors import HighThroughputExecutor; "
    "from parsl.providers import SlurmProvider",
    "hyperqueue": "from hyperqueue import Client, Job",
}
PROGRAMS = {
    "ours": ("-m", "slurm.cli", "--help"),
    "slurm-sdk": ("-c", "import sys; from slurm.cli import main; main()", "--help"),
    "dask": ("-m", "dask", "--help"),
}
BARE = "python -c pass"
BY_REFERENCE = "runner, function by reference in a module with @task"
BY_VALUE = "runner, function by value"
CLOUDPICKLE = "import cloudpickle"

# Makes the two run directories by running the two jobs, on the embedded scheduler.
_MAKE_RUNS = """
import json, sys
from our_tasks import noop
from slurm import Cluster, task
from slurm.packaging.sdk import sdk_hash

@task
def by_value(item):
    return item

cluster = Cluster("embedded", job_base_dir=sys.argv[1])
jobs = [cluster.submit(f)(1) for f in (noop, by_value)]
assert [job.result(60) for job in jobs] == [1, 1]
home = cluster.base + "/.sdk/" + sdk_hash()
runs = [cluster.base + "/" + job.run for job in jobs]
print(json.dumps([home + "/slurm/runner/__main__.py", *runs]))
"""


def start_up(ground: Ground) -> Section:
    """Import and runner start, in turn with a bare interpreter."""
    env = {**ground.embedded_env, "PYTHONPATH": import_path(own=True)}
    made = subprocess.check_output(
        [sys.executable, "-c", _MAKE_RUNS, str(ground.folder("ejobs"))], env=env, timeout=120
    )
    runner, by_reference, by_value = json.loads(made)
    bare = ground.own_env
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
    rows = (*_raced(ground, IMPORT, _imports(ground)), *_raced(ground, CLI, _programs(ground)))
    return Section(
        "Import and start-up",
        (*rows, *above(samples, BARE, limits)),
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


def _raced(ground: Ground, question: str, words: dict[str, list[str]]) -> list[Row]:
    """What each of these programs takes, the interpreter's own start in it."""
    turns: dict[str, Callable[[], float]] = {
        key: lambda key=key, line=line: 1000 * timed(  # type: ignore[misc]
            line, ground.own_env if key == OURS.key else ground.bare_env
        )
        for key, line in words.items()
    }  # fmt: skip
    for play in turns.values():
        play()
    found = ground.alternate(ground.times(8, 3), turns)
    base = statistics.median(found[OURS.key])
    return [
        Row(one.label, tuple(found[one.key]), ratio=statistics.median(found[one.key]) / base,
            question=question, library=one.key)
        for one in LIBRARIES
        if found.get(one.key)
    ]  # fmt: skip


def _imports(ground: Ground) -> dict[str, list[str]]:
    able = {one.key: one for one in ground.able("import")}
    return {key: [_python(able[key]), "-c", text] for key, text in IMPORTS.items() if key in able}


def _programs(ground: Ground) -> dict[str, list[str]]:
    able = {one.key: one for one in ground.able("command line")}
    for key in able.keys() - PROGRAMS.keys() - {"raw"}:
        ground.leave_out(able[key].label, "command line", "its package has no program of its own")
    return {key: [_python(able[key]), *words] for key, words in PROGRAMS.items() if key in able}


def _python(library: Library) -> str:
    return environment(*library.needs) if library.needs else sys.executable
