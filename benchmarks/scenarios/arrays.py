"""Maps and graphs: an array of no-ops, a long array's submission, a thousand nodes in layers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Row, Section, compared
from benchmarks.ground import SLURM_SDK, SUBMITIT, Ground, timed

RAW = "raw: sbatch --array of `python -c pass`"
OURS = "ours: .map and all results"
TO_RAW = 1.5
LONG = 10_000
LONG_MS = 1000.0
DAG_S = 30.0
DAG_PER_JOB_MS = 100.0
DAG_SBATCH = 20.0


def map_on_slurm(ground: Ground) -> Section:
    """A map of no-ops on real Slurm, beside a raw array, submitit and slurm-sdk 0.4."""
    env, count = ground.slurm_env, 100
    ours = ground.peer("map", "maps.py", "local", str(ground.folder("jobs")), env=env)
    raw = ground.peer("raw array", "maps_raw.py", str(ground.folder("raw")), env=env)
    assert ours is not None
    assert raw is not None
    ground.versions["Slurm"] = raw.facts["version"]
    ours.play("map 1")
    turns: dict[str, Callable[[], Any]] = {
        RAW: lambda: raw.play(f"map {count}"),
        OURS: lambda: ours.play(f"map {count}"),
    }
    found = ground.alternate(ground.times(5, 3), turns, aligned=True)
    files = found[OURS][-1]["files"]
    samples = _seconds(found)
    samples |= _seconds(ground.alternate(ground.times(2, 1), _peers(ground, count), aligned=True))
    submit = Row(
        "ours: the submitting call alone",
        tuple(1000 * one["submit"] for one in found[OURS]),
    )
    notes = (
        f"{count} items on four nodes. The peers play fewer rounds, after ours, because they are "
        "slow. Raw looks at squeue ten times a second, and knows no results.",
        f"Files in the run directory of one such map: {files['other']} and {files['logs']} logs.",
    )
    rows = (*compared(samples, RAW, {OURS: TO_RAW}, "s"), submit)
    return Section(f"A map of {count} no-ops on real Slurm, submit to results", rows, notes)


def _peers(ground: Ground, count: int) -> dict[str, Callable[[], Any]]:
    env = ground.slurm_env
    submitit = ground.peer(
        "submitit array", "maps_submitit.py", str(ground.folder("sub")), env=env, needs=SUBMITIT
    )
    other = ground.peer(
        "slurm-sdk map", "maps_slurm_sdk.py", str(ground.folder("other")), env=env, needs=SLURM_SDK
    )
    turns: dict[str, Callable[[], Any]] = {}
    if submitit:
        turns["submitit: map_array"] = lambda: submitit.play(f"map {count}")
    if other:
        turns["slurm-sdk 0.4: .map"] = lambda: other.play(f"map {count}")
    return turns


def long_map(ground: Ground) -> Section:
    """The submission of a long map, held so that nothing of it runs."""
    backends = {"embedded": ground.embedded_env, "local": ground.slurm_env}
    rows: list[Row] = []
    notes: list[str] = []
    for backend, env in backends.items():
        name = "Slurm" if backend == "local" else backend
        base = str(ground.folder(f"long-{backend}"))
        ours = ground.peer(f"long map {name}", "maps.py", backend, base, env=env)
        assert ours is not None
        ours.play("map 1")
        found = [ours.play(f"submit {LONG}") for _ in range(ground.times(5, 3))]
        times = tuple(1000 * one["total"] for one in found)
        rows.append(Row(f"{name}: until .map returns", times, limit=LONG_MS))
        rows.append(Row(f"{name}: CPU of the client", tuple(1000 * one["cpu"] for one in found)))
        ends = tuple(1000 * one["cancel"] for one in found)
        rows.append(Row(f"{name}: cancel, until every future has ended", ends))
        files = float(found[-1]["files"]["other"])
        rows.append(Row(f"{name}: files in the run directory", (files,), ""))
        notes.append(f"{name}: {found[-1]['parts']} array(s).")
    ground.end_peers()
    ground.empty_queue()
    return Section(f"Submission of a map of {LONG:,} items", tuple(rows), tuple(notes))


def graph(ground: Ground) -> Section:
    """A graph of 1,000 nodes in ten layers, each node after two of the layer before."""
    count = 1000
    ours = ground.peer(
        "graph", "maps.py", "embedded", str(ground.folder("dag")), env=ground.embedded_env
    )
    on_slurm = ground.peer(
        "graph on Slurm", "maps.py", "local", str(ground.folder("dagslurm")), env=ground.slurm_env
    )
    assert ours is not None
    assert on_slurm is not None
    ours.play("single 20")
    bare = _bare(ground) * count
    rows = [Row(f"no scheduler: `python -c pass` by bash, {count:,} times", (bare,), "s")]
    for kind, name in (("single", "single submissions"), ("batch", "inside cluster.batch()")):
        one = ours.play(f"{kind} {count}")
        rows += [
            Row(f"embedded, {name}: all results", (one["total"],), "s",
                one["total"] / bare, DAG_S),
            Row("... per job, function included", (1000 * one["total"] / count,), "ms",
                limit=DAG_PER_JOB_MS),
            Row("... submission alone", (one["submit"],), "s"),
        ]  # fmt: skip
    one = on_slurm.play(f"batch {count}")
    rows += [
        Row("Slurm, inside cluster.batch(): sbatch calls", (float(one["submissions"]),), "",
            limit=DAG_SBATCH),
        Row("... submission alone", (one["submit"],), "s"),
        Row("... all results", (one["total"],), "s"),
    ]  # fmt: skip
    note = (
        "Every node is a process of its own, so a busy host shows in all of this: the first row is "
        f"what {count:,} processes cost at that moment, as many at once as there are cores."
    )
    return Section(f"A graph of {count:,} nodes in 10 layers", tuple(rows), (note,))


def _bare(ground: Ground, count: int = 100) -> float:
    """Seconds for one process that does nothing, where all cores start them."""
    script = f"{sys.executable} -c pass; exit $?"
    numbers = ground.folder("bare") / "numbers.txt"
    numbers.write_text("\n".join(map(str, range(count))))
    at_once = ["-P", str(os.cpu_count() or 1), "-n", "1"]
    command = ["xargs", "-a", str(numbers), *at_once, "bash", "-c", script]
    return timed(command, ground.bare_env) / count


def _seconds(samples: dict[str, list[Any]]) -> dict[str, list[float]]:
    return {
        name: [one["total"] if isinstance(one, dict) else one for one in values]
        for name, values in samples.items()
    }
