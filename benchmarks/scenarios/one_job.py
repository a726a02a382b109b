"""How long one call takes that does nothing, from submission to its result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Row, Section, compared
from benchmarks.ground import SLURM_SDK, SUBMITIT, Ground, timed

RAW = "raw: sbatch, then squeue in a tight loop"
BY_REFERENCE = "ours, function by reference"
BY_VALUE = "ours, function by value"
PART = "; from the script's start on"
TO_RAW = 1.3
EMBEDDED_MS = 150.0


def on_slurm(ground: Ground) -> Section:
    """One no-op job on real Slurm, beside raw commands, submitit and slurm-sdk 0.4."""
    env = ground.slurm_env
    ours = ground.peer("ours", "ours.py", "local", str(ground.folder("jobs")), env=env)
    raw = ground.peer("raw", "raw.py", str(ground.folder("raw")), env=env)
    assert ours is not None
    assert raw is not None
    submitit = ground.peer(
        "submitit", "with_submitit.py", "slurm", str(ground.folder("sub")), env=env, needs=SUBMITIT
    )
    other = ground.peer(
        "slurm-sdk", "with_slurm_sdk.py", str(ground.folder("other")), env=env, needs=SLURM_SDK
    )
    ground.versions["Slurm"] = raw.facts["version"]
    turns: dict[str, Callable[[], Any]] = {
        RAW: raw.play,
        BY_REFERENCE: lambda: ours.play("reference"),
        BY_VALUE: lambda: ours.play("value"),
    }
    if submitit:
        turns["submitit"] = submitit.play
    if other:
        turns["slurm-sdk 0.4, asked to poll every 50 ms"] = other.play
    for play in turns.values():
        play()  # the first call of each also fills caches
    found = ground.alternate(ground.times(12, 4), turns, aligned=True)
    totals = _milliseconds(found)
    limits = {BY_REFERENCE: TO_RAW, BY_VALUE: TO_RAW}
    rows = compared(totals, RAW, limits)
    split = _milliseconds({name: found[name] for name in (RAW, *limits)}, "run")
    rows += compared({f"{name}{PART}": values for name, values in split.items()}, RAW + PART)
    submit = _milliseconds({BY_REFERENCE: found[BY_REFERENCE]}, "submit")[BY_REFERENCE]
    rows += (Row("ours: the submitting call alone", tuple(submit)),)
    note = (
        "slurmctld starts a job when its loop comes round, once a second: up to a second of every "
        "total is that wait. So all turns of a round begin at the same fraction of a second, and "
        "the last rows leave the wait out: they count from the moment Slurm started the script."
    )
    peers = "submitit looks for the result once a second: that is most of its time."
    return Section("One no-op job on real Slurm, submit to result", rows, (note, peers))


def on_embedded(ground: Ground) -> Section:
    """One no-op job on the warm embedded scheduler, beside submitit's local executor."""
    env = ground.embedded_env
    ours = ground.peer("ours embedded", "ours.py", "embedded", str(ground.folder("ejobs")), env=env)
    assert ours is not None
    submitit = ground.peer(
        "submitit local",
        "with_submitit.py",
        "local",
        str(ground.folder("sublocal")),
        env=env,
        needs=SUBMITIT,
    )
    nothing = "no scheduler at all: bash that starts `python -c pass`"
    turns: dict[str, Callable[[], Any]] = {
        nothing: lambda: timed(["bash", "-c", f"{sys.executable} -c pass; exit $?"], env),
        BY_REFERENCE: lambda: ours.play("reference"),
        BY_VALUE: lambda: ours.play("value"),
    }
    if submitit:
        turns["submitit, local executor"] = submitit.play
    for play in turns.values():
        play()
    samples = _milliseconds(ground.alternate(ground.times(15, 6), turns))
    rows = compared(samples, nothing)
    held = (BY_REFERENCE, BY_VALUE)
    return Section(
        "One no-op job on the embedded scheduler, warm",
        tuple(
            Row(r.name, r.samples, r.unit, r.ratio, EMBEDDED_MS) if r.name in held else r
            for r in rows
        ),
    )


def submission_rate(ground: Ground) -> Section:
    """Many single submissions in a row, beside as many sbatch commands."""
    env, count = ground.slurm_env, ground.times(25, 10)
    ours = ground.peer("ours submits", "ours.py", "local", str(ground.folder("jobs")), env=env)
    raw = ground.peer("raw submits", "raw.py", str(ground.folder("raw")), env=env)
    assert ours is not None
    assert raw is not None
    submitit = ground.peer(
        "submitit submits",
        "with_submitit.py",
        "slurm",
        str(ground.folder("sub")),
        env=env,
        needs=SUBMITIT,
    )
    baseline = "raw: sbatch"
    turns: dict[str, Callable[[], Any]] = {
        baseline: lambda: raw.play(f"submit {count}") / count,
        "ours": lambda: ours.play(f"submit {count}") / count,
    }
    if submitit:
        turns["submitit"] = lambda: submitit.play(f"submit {count}") / count
    ours.play("submit 1")
    samples = _milliseconds(ground.alternate(ground.times(4, 2), turns))
    ground.empty_queue()
    return Section(
        "Submission: single calls in a row, each a job that waits",
        compared(samples, baseline),
        (
            f"Per job, in blocks of {count} jobs that begin in an hour. submitit leaves 0.2 s "
            "between two submissions on purpose; its `batch()` makes one array of many calls.",
        ),
    )


def _milliseconds(samples: dict[str, list[Any]], part: str = "total") -> dict[str, list[float]]:
    """Seconds, or one part of the answers that come in parts, as milliseconds."""
    return {
        name: [1000 * (value[part] if isinstance(value, dict) else value) for value in values]
        for name, values in samples.items()
    }
