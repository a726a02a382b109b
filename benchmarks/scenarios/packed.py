"""Very many no-op calls in two workers, and how the time grows with them."""

from __future__ import annotations

from benchmarks import race
from benchmarks.figures import Row, Section
from benchmarks.ground import Ground
from benchmarks.libraries import OURS
from benchmarks.race import Race

CALLS = "{count:,} calls in two workers"
PER_CALL_US = 10.0
SIZES = (10, 100, 1_000, 10_000, 100_000)


def packed(ground: Ground) -> Section:
    """From ten calls to 100,000 in an allocation that is up; a library that was late stops."""
    cap = 20.0 if ground.quick else 60.0
    sizes = SIZES[:2] if ground.quick else SIZES
    late: set[str] = set()
    rows: list[Row] = []
    held: list[Row] = []
    for count in sizes:
        keys = tuple(one.key for one in ground.able("pack") if one.key not in late)
        rounds = 1 if count > 1000 or ground.quick else 3
        # The calls of a warm executor; the packed map, whose job starts for it, is told apart.
        word = "pack" if count == SIZES[-1] else "warm"
        answers = race.run(
            ground,
            Race(CALLS.format(count=count), f"pack {count}", rounds, cap,
                 size=count, keys=keys, warm_up="pack 10", ours=f"{word} {count}"),
        )  # fmt: skip
        late |= answers.late
        rows += answers.rows()
    ours = ground.library(OURS)
    most = 20_000 if ground.quick else SIZES[-1]
    found = [ours.play(f"pack {most}") for _ in range(ground.times(3, 1))]
    each = tuple(1e6 / one["rate"] for one in found)
    held += [
        Row("packed map, in the job once its workers run, per call", each, "us", limit=PER_CALL_US),
        Row(f"packed map of {most:,}: until .map returns",
            tuple(1000 * one["submit"] for one in found)),
        Row(f"packed map of {most:,}: submit to all results, its job's start included",
            tuple(1000 * one["total"] for one in found)),
        Row("packed map: files on its node", (float(found[-1]["files"]),), "files", limit=10.0),
        Row(f"executor, warm, {most:,} calls with chunksize=100", (ours.play(f"warm {most}"),),
            "s"),
    ]  # fmt: skip
    pool = ground.peer("pool", "packed_pool.py", env=ground.bare_env)
    name = f"the standard library's ProcessPoolExecutor, chunksize=100, {most:,} calls"
    held.append(Row(name, (pool.play(f"map {most}"),), "s"))
    notes = (
        "One Slurm job of two workers that is up before the clock starts; from the first "
        "submission to the last result. Ours are `cluster.executor(...).map` with a chunksize, "
        "and for the largest number `.map(items, pack=...)` with the start of its job in it.",
        "HyperQueue's calls are processes of `/bin/true` without values.",
    )
    return Section("Many calls in workers that are up", (*rows, *held), notes)
