"""How soon a client knows that a call died."""

from __future__ import annotations

from benchmarks import race
from benchmarks.figures import Row, Section
from benchmarks.ground import Ground
from benchmarks.race import Race

NOTICED_MS = 5000.0
WAYS = {
    "exception": "the function raises",
    "exit": "os._exit(3)",
    "kill": "SIGKILL of its process",
    "memory": "it takes more memory than it asked for",
    "scancel": "scancel of its job",
}


def deaths(ground: Ground) -> Section:
    """Each way to die, in turn."""
    cap = 6.0 if ground.quick else 20.0
    rows: list[Row] = []
    for way, text in list(WAYS.items())[: 2 if ground.quick else None]:
        no_job = way in ("memory", "scancel")
        keys = tuple(
            one.key for one in ground.able("die") if not (no_job and one.key == "hyperqueue")
        )
        asked = Race(
            f"Death noticed: {text}", f"die {way} {cap}", ground.times(3, 1), cap, keys=keys,
            set_up_s=90.0, together=True,
        )  # fmt: skip
        rows += race.run(ground, asked).rows()
    held = [
        race.held_to(race.renamed(row, row.question), NOTICED_MS / 1000)
        for row in rows
        if row.library == "ours"
    ]
    notes = (
        "From the last moment in the function (or the kill, or the start of scancel) to the "
        f"exception in the client. Who has not noticed after {cap:.0f} s is asked no longer. All "
        "libraries at the same time, for most of them only wait.",
        "A call in Dask's or Parsl's workers shares their job and its memory. HyperQueue has no "
        "Slurm job here.",
    )
    return Section("Time until a death is noticed", (*rows, *held), notes)
