"""How the client's time and memory grow with the number of jobs that wait."""

from __future__ import annotations

from benchmarks import race
from benchmarks.figures import Row, Section
from benchmarks.ground import Ground
from benchmarks.race import Race

SUBMITTED = "Submission of {count:,} that wait"
MEMORY = "Memory of {count:,} that wait"
SIZES = (10, 100, 1_000, 10_000)
LONG_S = 1.0


def growth(ground: Ground) -> Section:
    """Submission and memory of n calls that wait; a library that was late stops."""
    late: set[str] = set()
    rows: list[Row] = []
    memory: list[Row] = []
    files = 0
    for count in SIZES[:2] if ground.quick else SIZES:
        keys = tuple(one.key for one in ground.able("hold") if one.key not in late)
        rounds = 1 if count > 1000 or ground.quick else 2
        # A new program each time: memory that one round freed would serve the next.
        ground.end_peers()
        answers = race.run(
            ground,
            Race(SUBMITTED.format(count=count), f"hold {count}", rounds,
                 20.0 if ground.quick else 40.0, size=count, keys=keys, warm_up="hold 5",
                 leaves_jobs=True),
        )  # fmt: skip
        late |= answers.late
        rows += answers.rows()
        memory += answers.rows("kib", "KiB", MEMORY.format(count=count))
        files = answers.found["ours"][-1]["files"]
    ours = next(row for row in reversed(rows) if row.library == "ours")
    held = [
        race.held_to(race.renamed(ours, f"our map of {ours.size:,}: until .map returns"), LONG_S),
        Row(f"our map of {ours.size:,}: files in its run directory", (float(files),), "files"),
    ]
    notes = (
        "Nothing runs: arrays are held or begin in an hour, pilots have no worker. Memory is what "
        "the client's process grew by; the schedulers of Dask and HyperQueue live in it.",
    )
    return Section("Growth with the number of jobs", (*rows, *memory, *held), notes)
