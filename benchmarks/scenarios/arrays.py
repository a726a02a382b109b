"""Maps and graphs: arrays of no-ops, what they ask and leave, and a thousand nodes in layers."""

from __future__ import annotations

import os
import sys

from benchmarks import race
from benchmarks.figures import Row, Section
from benchmarks.ground import Ground, timed
from benchmarks.race import Race

TO_RAW = 1.5
ASKED = "Scheduler commands for {count:,} tasks"
FILES = "Files for {count:,} tasks, logs apart"
ALL_FILES = "Files for {count:,} tasks with the logs"
GRAPH = "A graph of {count:,} nodes in 10 layers"
DAG_S = 30.0
DAG_SBATCH = 20.0


def map_on_slurm(ground: Ground) -> Section:
    """A map with a job for each item, of a hundred and of a thousand; what it asks and leaves."""
    rows: list[Row] = []
    held: list[Row] = []
    most = 20 if ground.quick else 1000
    whole = ((10, 1, 30), (100, ground.times(3, 1), 60), (1000, 1, 100))
    for count, rounds, cap in ((most, 1, 20),) if ground.quick else whole:
        question = f"A map of {count:,}, a job for each item"
        answers = race.run(
            ground,
            Race(question, f"map {count}", rounds, cap, size=count, aligned=True,
                 warm_up="one" if count < 100 else ""),
        )  # fmt: skip
        rows += answers.rows()
        if count >= 100 or count == most:
            held.append(
                race.named(race.bettered(answers.rows(), TO_RAW, "raw"), f"map of {count}: ")
            )
            submit = next(r for r in answers.rows("submit", "ms") if r.library == "ours")
            held.append(race.renamed(submit, f"map of {count}: our submitting call alone"))
        if count == most:
            rows += answers.rows("asked", "calls", ASKED.format(count=count))
            rows += answers.rows("made_but_logs", "files", FILES.format(count=count))
            rows += answers.rows("made", "files", ALL_FILES.format(count=count))
    notes = (
        "Four nodes. Commands are sbatch, squeue, sacct, scontrol, scancel, sinfo and srun, by the "
        "client and by its jobs, counted by programs of these names early in PATH. Files are all "
        "that the library and Slurm left in the library's folder; logs end in .out, .err or .log. "
        "We keep both outputs of each job apart, so that a job has two logs.",
        "Raw knows no results and no failures; it asks squeue ten times a second.",
    )
    return Section("Maps", (*rows, *held), notes)


def graph(ground: Ground) -> Section:
    """A graph of nodes in ten layers, each node after two of the layer before."""
    count = 20 if ground.quick else 1000
    title = GRAPH.format(count=count)
    answers = race.run(ground, Race(title, f"graph {count}", 1, 20 if ground.quick else 100))
    rows = answers.rows()
    ground.end_peers()
    held = [
        race.renamed(row, f"{row.name}: {text}")
        for part, unit, text in (
            ("submit", "s", "the submission alone, with `cluster.batch()`"),
            ("calls", "calls", "sbatch"),
        )
        for row in answers.rows(part, unit)
        if row.library == "ours"
    ]
    held = [race.held_to(row, DAG_SBATCH) if "sbatch" in row.name else row for row in held]
    here = ground.peer(
        "graph embedded", "with_ours.py", str(ground.folder("dag")), "embedded",
        env=ground.embedded_env,
    )  # fmt: skip
    here.play("graph 20 single")
    bare = _bare(ground) * count
    one = here.play(f"graph {count}")
    held += [
        Row(f"no scheduler: `python -c pass` by bash, {count:,} times", (bare,), "s"),
        Row("Slurm SDK on its embedded scheduler", (one["total"],), "s", limit=DAG_S),
    ]
    notes = (
        "With us, slurm-sdk and executorlib each node is a Slurm job and a process of its own; "
        "Dask, Parsl and HyperQueue send the nodes to workers that are up.",
    )
    return Section("A graph", (*rows, *held), notes)


def _bare(ground: Ground, count: int = 100) -> float:
    """Seconds for one process that does nothing, where all cores start them."""
    script = f"{sys.executable} -c pass; exit $?"
    numbers = ground.folder("bare") / "numbers.txt"
    numbers.write_text("\n".join(map(str, range(count))))
    at_once = ["-P", str(os.cpu_count() or 1), "-n", "1"]
    command = ["xargs", "-a", str(numbers), *at_once, "bash", "-c", script]
    return timed(command, ground.bare_env) / count
