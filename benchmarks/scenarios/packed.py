"""Very many no-op calls: a packed map beside the pools and executors that others use for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground

EXECUTORLIB = "executorlib==1.11.0"
DASK = "distributed==2026.8.0"
PARSL = "parsl==2026.10.26"

OURS = "ours: packed map, in the job once its workers run"
POOL = "the standard library's ProcessPoolExecutor, chunksize=100"
PER_CALL_US = 10.0
TO_EXECUTORLIB = 1 / 20


def packed(ground: Ground) -> Section:
    """Microseconds per call, of 100,000 calls in two workers; the peers do fewer."""
    count, fewer = ground.times(100_000, 20_000), ground.times(3_000, 1_000)
    local, embedded = ground.slurm_env, ground.embedded_env
    on_slurm = ground.peer("packed", "packed.py", "local", str(ground.folder("packs")), env=local)
    here = ground.peer(
        "packed embedded", "packed.py", "embedded", str(ground.folder("epacks")), env=embedded
    )
    pool = ground.peer("pool", "packed_pool.py", env=ground.bare_env)
    assert on_slurm is not None
    assert here is not None
    assert pool is not None
    on_slurm.play("map 1000")
    here.play("map 1000")
    turns: dict[str, Callable[[], Any]] = {
        "slurm": lambda: on_slurm.play(f"map {count}"),
        "embedded": lambda: here.play(f"map {count}"),
        POOL: lambda: pool.play(f"map {count}") / count,
    }
    found = ground.alternate(ground.times(5, 2), turns)
    others = _others(ground, fewer)
    samples = {name: [1e6 * x for x in values] for name, values in others.items()}
    samples[POOL] = [1e6 * x for x in found[POOL]]
    base = _median(next(v for n, v in samples.items() if "executorlib" in n)) if others else None
    rows = [_ours(found, kind, base) for kind in ("slurm", "embedded")]
    if base:
        name = "the same on slurm, held to a twentieth of executorlib's"
        rows.append(replace(rows[0], name=name, limit=TO_EXECUTORLIB, limit_of="ratio"))
    rows += [
        Row(name, tuple(values), "us", ratio=_median(values) / base if base else None)
        for name, values in sorted(samples.items(), key=lambda pair: _median(pair[1]))
    ]
    for kind in ("slurm", "embedded"):
        for part, text in (("submit", "until .map returns"), ("total", "submit to all results")):
            each = tuple(1000 * one[part] for one in found[kind])
            rows.append(Row(f"ours on {kind}: {count} calls, {text}", each))
    last = found["slurm"][-1]
    notes = (
        f"{count} calls, ours in one job of two workers; executorlib, Dask and Parsl do {fewer}, "
        "each with two workers on this host and no scheduler around them. Their figures are from "
        "the first submission to the last result with the workers warm; ours are from the start "
        "of the workers to the last outcome on disk. Ratios are to executorlib.",
        f"Files of one such run on its node: {last['files']}; values read back in "
        f"{1000 * last['read']:.0f} ms.",
    )
    return Section(f"{count} no-op calls in two warm workers, per call", tuple(rows), notes)


def _ours(found: dict[str, list[Any]], kind: str, base: float | None) -> Row:
    each = tuple(1e6 / one["rate"] for one in found[kind])
    ratio = _median(each) / base if base else None
    return Row(f"{OURS} ({kind})", each, "us", ratio=ratio, limit=PER_CALL_US)


def _others(ground: Ground, count: int) -> dict[str, list[Any]]:
    turns: dict[str, Callable[[], Any]] = {}
    for name, program, needs in (
        ("executorlib: block allocation", "packed_executorlib.py", EXECUTORLIB),
        ("Dask: client.map on a warm local cluster", "packed_dask.py", DASK),
        ("Parsl: HighThroughputExecutor", "packed_parsl.py", PARSL),
    ):
        peer = ground.peer(program, program, env=ground.bare_env, needs=needs)
        if peer is not None:
            turns[name] = lambda peer=peer: peer.play(f"map {count}") / count
    return ground.alternate(ground.times(3, 1), turns) if turns else {}


def _median(values: Any) -> float:
    ordered = sorted(values)
    return float(ordered[len(ordered) // 2])
