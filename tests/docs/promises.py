"""What each example prints, on the embedded scheduler and on Slurm alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

PROMISES: dict[str, tuple[str, ...]] = {
    "first_tasks": (
        "add: 33, state COMPLETED (CD)",
        "it printed: adding 1 and 10",
        "as a plain function: 5",
    ),
    "failing_job": (
        "ValueError: invalid literal for int() with base 10: '12x'",
        "in the job:",
        "called sys.exit('no licence found') instead of returning a value",
        "SLURM-E301 JobFailed: die",
        "SLURM-E401 UnpicklableResult: numbers",
        "SLURM-E302 JobCancelled: parse",
    ),
    "options_and_units": (
        "GREETING=it's $HOME, literally",
        "DEMO_TOKEN=not written to any file",
        "the other job: with-options COMPLETED",
        "#SBATCH --time=01:30:00",
        "#SBATCH --mem=500M",
        "did you mean cpus_per_task?",
    ),
    "context_and_checkpoint": (
        "near the limit: stopped by SIGUSR2",
        "after a requeue: attempt 1 went on after step 5 or later: True",
    ),
    "training_checkpoints": (
        "trained 500 epochs, w = 3.00",
        "attempts: 2 - first: Unfinished: stopped by SIGUSR2",
        "the last one began later than at 0: True",
    ),
    "over_ssh": ("counted: 2 times 'the'", "longest word: laptop"),
    "in_a_container": ("packaging: container", "podman starts it: True", "nothing was submitted"),
    "own_cluster": (
        "NodeName=n1",
        "PartitionName=short Nodes=ALL Default=YES MaxTime=01:00:00",
        "hello from a job",
    ),
    "monitor": ("in the queue: ['RUNNING']", "partitions: True", "and now: CANCELLED"),
    "project_as_wheel": (
        "packaging: wheel by reference",
        "wheel: pendulum_example-0.1-py3-none-any.whl",
        "one swing: 2.006 s",
        "in an environment of its own: True",
        "swings: [1.003, 2.006, 4.012]",
        "from a snapshot: 4.012",
    ),
    "cached_results": (
        "first: 0.5564, from the cache: False",
        "again: 0.5564, from the cache: True",
        "of four more seeds from the cache: 2",
        "forgotten: 6 of simulate",
    ),
    "retry_flaky": (
        "total: 30",
        "part 0: ['it worked']",
        "'ConnectionError: part 2: busy, try 2', 'it worked']",
        "for good: part 3 is damaged",
        "attempts: 4",
    ),
    "submitit_checkpoint": ("totals: [30, 60, 90]", "the second job lived 2 times"),
    "attach_later": ("by run name: 144", "by job id:   144", "in another call: 147"),
    "async_await": (
        "gathered: [0, 2, 4, 6, 8]",
        "awaited: item 7",
        "the job goes on: True",
        "later: 42",
    ),
    "as_they_complete": (
        "the callback saw 0.1",
        "    0.2 s\n    2.0 s\n",
        "2 done, 0 pending",
        "cancelled: True",
    ),
    "workflow_training": (
        "losses: [0.36, 0.0144, 0.0006, 0.0]",
        "it said: halfway",
        "children: evaluate train",
    ),
    "workflow_dag": (
        "14 words, the longest is 'workflow'",
        "├─ count_words x 3 |",
        "└─ report | count_words x 3, longest_word x 3",
    ),
    "many_small_tasks": (
        "100000 results; the longest way, 350 steps, begins at 77031",
        "100000 of 100000 done, 0 failed; 2 jobs",
        "20 of 20 done, 2 failed",
        "kills workers: True",
    ),
    "parameter_sweep": (
        "train: one array of 6, one call of sbatch",
        "6 of 6 done, 2 failed",
        "failed: [{'lr': 0.1, 'depth': 4}, {'lr': 0.01, 'depth': 4}]",
        "log of item 1: lr=0.1 depth=3",
        "best: {'lr': 0.01, 'depth': 3}, loss 0.05",
    ),
    "map_reduce": (
        "most common: [('the', 4), ('fox', 3), ('dog', 3)]",
        "words: 24 and in two of the texts: 17",
    ),
    "pipeline_after": (
        "squares: [1, 4, 9, IndexError('list index out of range')]",
        "removed: True - item 3 failed",
        "never ran: UpstreamFailed",
    ),
    "fan_out_fan_in": (
        "6 shards, means from 4.5 to 54.7",
        "6 means in 1 array; shard 5: 54.7",
    ),
    "debug_backend": ("before: PENDING", "in this process: True - MODE: debug", "raised: with"),
    "ranks": ("rank 0: (0, 2)", "all ranks: [(0, 2), (1, 2)]", "raised by a rank: rank 1"),
    "rendezvous": ("srun started them: [1, 1]", "torchrun did: [1, 1]"),
    "phases": (
        "letters on each of four nodes: [11, 9, 8, 7]",
        "in all: 35",
        "ranks of each simulation: 2",
        "side by side: True",
        "one job for all: True",
        "steps: 5",
    ),
    "threads": ("checksums: True", "CPUs: 2, OMP_NUM_THREADS: 2"),
    "processes": (
        "fork: [Point(x=2, y=1), Point(x=4, y=3)]",
        "spawn: [Point(x=2, y=1), Point(x=4, y=3)]",
        "forkserver: [Point(x=2, y=1), Point(x=4, y=3)]",
    ),
    "executor": (
        "one call: 144",
        "in order: [0, 1, 4, 9, 16]",
        "10,000 in chunks: 333283335000",
        "as they end: 328350",
        "a worker died: finished by another worker",
        "the call killed 3 worker(s), the last one by exit code 1",
    ),
    "slurmfile_profile": ("'profile')", "debug: laptop", "did you mean 'laptop'?"),
    "logs": (
        "followed: line 4",
        "stderr: a warning",
        "talk: CD, exit code 0, ended True",
        "the last two lines: ['line 3', 'line 4']",
    ),
}


def run_example(name: str, backend: str | None, env: Mapping[str, str], folder: Path) -> str:
    """Run an example in an empty folder and check what it prints; None: its own backend."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *([backend] if backend else [])],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for promise in PROMISES.get(name, ()):
        assert promise in done.stdout, f"{promise!r} is not in\n{done.stdout}\n{done.stderr}"
    return done.stdout
